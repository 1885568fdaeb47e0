"""The reference server for machines without a compiler: same options, same stream, same log as server.c.

Standard library only; runs as `python -I -S fallback.py --ttft-us … --truth FILE`.
"""

import heapq
import os
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path

FAULTS = (
    "none",
    "stall",
    "coalesce",
    "reset",
    "truncate",
    "garbage",
    "bad-chunk",
    "error",
    "short",
    "empty",
    "slow-loris",
    "split",
    "429",
    "503",
    "no-usage",
    "hang",
)
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
MODELS = b'{"object":"list","data":[{"id":"reference","object":"model"}]}'
ROLE = '"delta":{"role":"assistant","content":""}'
SO_TIMESTAMPNS = 35
now = time.monotonic_ns


class Exchange:
    """One connection and the request on it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.data = b""
        self.reset()

    def reset(self) -> None:
        self.number, self.done, self.total, self.fault = -1, 0, 0, "none"
        self.log: list[tuple[int, int, int]] = []
        self.loris, self.due, self.arrival, self.prompt = b"", 0, 0, 0
        self.chat = self.each_usage = False


class Server:
    """The loop: what is due is sent, what arrives is begun."""

    def __init__(self, options: dict[str, str]) -> None:
        self.ttft_ns = int(options.get("ttft-us", 50000)) * 1000
        self.itl_ns = int(options.get("itl-us", 20000)) * 1000
        self.stall_ns = int(options.get("stall-us", 200000)) * 1000
        self.per_chunk = min(64, max(1, int(options.get("per-chunk", 1))))
        self.seed = int(options.get("seed", 1))
        self.faults = [name for name in options.get("faults", "").split(",") if name in FAULTS]
        self.every = max(1, int(options.get("every", 5)))
        self.close_each = options.get("close-each") == "1"
        self.mark = options.get("mark") == "1"
        self.role_alone = options.get("role-alone") == "1"
        self.truth = Path(options["truth"]).open("wb") if "truth" in options else None  # noqa: SIM115
        self.offset_ns = time.time_ns() - now()
        self.numbers = 0
        self.heap: list[tuple[int, int, Exchange]] = []
        self.links: dict[int, Exchange] = {}
        self.epoll = select.epoll()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setblocking(False)
        self.running = True

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, self.stop)
        self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        try:
            self.epoll.register(0, select.EPOLLIN)
        except OSError:
            pass
        port = self.listener.getsockname()[1]
        print(f'{{"port":{port},"kind":"python","realtime":false}}', flush=True)
        while self.running:
            wait_s = max(0.0, (self.heap[0][0] - now()) / 1e9) if self.heap else 1.0
            if 0 < wait_s < 0.001:
                time.sleep(wait_s)
                wait_s = 0.0
            for fd, _ in self.epoll.poll(int(wait_s * 1000) / 1000):
                self.ready(fd)
            while self.heap and self.heap[0][0] <= now():
                due, _, link = heapq.heappop(self.heap)
                if link.due == due:
                    link.due = 0
                    self.send_due(link, due)
        for link in list(self.links.values()):
            self.drop(link)
        if self.truth:
            self.truth.close()

    def stop(self, *_: object) -> None:
        self.running = False

    def ready(self, fd: int) -> None:
        if fd == 0:
            self.running = bool(os.read(0, 1))
        elif fd == self.listener.fileno():
            try:
                while True:
                    sock, _ = self.listener.accept()
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                    sock.settimeout(5)
                    self.links[sock.fileno()] = Exchange(sock)
                    self.epoll.register(sock.fileno(), select.EPOLLIN)
            except BlockingIOError:
                pass
        elif fd in self.links:
            self.read(self.links[fd])

    def read(self, link: Exchange) -> None:
        try:
            data, control, _, _ = link.sock.recvmsg(65536, 64)
        except OSError:
            data = b""
        if not data:
            self.drop(link)
            return
        arrival = now()
        if control:
            seconds, nanoseconds = struct.unpack("@qq", control[0][2][:16])
            arrival = seconds * 1_000_000_000 + nanoseconds - self.offset_ns
        link.data += data
        head, blank, body = link.data.partition(b"\r\n\r\n")
        if not blank:
            return
        fields = dict(line.lower().partition(b":")[::2] for line in head.split(b"\r\n")[1:])
        if len(body) < int(fields.get(b"content-length", b"0")):
            return
        link.data = b""
        path = head.split(b" ", 2)[1]
        if head.startswith(b"GET") or b"completions" not in path:
            found = path == b"/v1/models"
            self.answer(link, "200 OK" if found else "404 Not Found", MODELS if found else b"{}")
            return
        self.begin(link, arrival, path, body)

    def answer(self, link: Exchange, status: str, body: bytes) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.push(link, head.encode() + body)

    def begin(self, link: Exchange, arrival: int, path: bytes, body: bytes) -> None:
        link.number, self.numbers = self.numbers, self.numbers + 1
        link.arrival = arrival
        link.chat = b"/chat/" in path
        tail = body.partition(b'"max_tokens":')[2] or body.partition(b'"max_completion_tokens":')[2]
        digits = tail[: len(tail) - len(tail.lstrip(b"0123456789"))]
        link.total = max(1, int(digits or b"16"))
        link.each_usage = b'"continuous_usage_stats":true' in body
        text = body.partition(b'"content"' if link.chat else b'"prompt"')[2].partition(b"}")[0]
        link.prompt = 1 + text.count(b" ")
        turn = link.number // self.every
        if self.faults and link.number % self.every == self.every - 1:
            link.fault = self.faults[turn % len(self.faults)]
        if link.fault in ("429", "503"):
            reason = "Too Many Requests" if link.fault == "429" else "Service Unavailable"
            self.answer(link, f"{link.fault} {reason}", b'{"error":"busy"}')
            self.finish(link)
            return
        if not self.push(link, HEAD):
            return
        if self.role_alone and link.chat:
            self.push(link, self.event(link, ROLE))
        phase = (link.number * 2654435761 + self.seed * 40503) % self.itl_ns if self.itl_ns else 0
        self.schedule(link, arrival + self.ttft_ns + phase)

    def schedule(self, link: Exchange, due: int) -> None:
        link.due = due
        heapq.heappush(self.heap, (due, link.number, link))

    def event(self, link: Exchange, delta: str, finish: str = "null", usage: bool = False) -> bytes:
        counts = f',"usage":{self.usage(link)}' if usage else ""
        kind = "chat.completion.chunk" if link.chat else "text_completion"
        return chunk(
            f'data: {{"id":"ref-{link.number}","object":"{kind}","created":1700000000,"model":"reference",'
            f'"choices":[{{"index":0,{delta},"logprobs":null,"finish_reason":{finish}}}]{counts}}}\n\n'
        )

    def usage(self, link: Exchange) -> str:
        total = link.prompt + link.done
        return f'{{"prompt_tokens":{link.prompt},"completion_tokens":{link.done},"total_tokens":{total}}}'

    def words(self, link: Exchange, count: int) -> bytes:
        texts = [f" tok{(link.done + i) % 1000}" for i in range(count)]
        if self.mark and link.done == 0:
            texts[0] = f" r{link.number}"
        text = "".join(texts)
        link.done += count
        delta = f'"delta":{{"content":"{text}"}}' if link.chat else f'"text":"{text}"'
        return self.event(link, delta, usage=link.each_usage)

    def ending(self, link: Exchange, reason: str) -> bytes:
        delta = '"delta":{}' if link.chat else '"text":""'
        parts = [self.event(link, delta, f'"{reason}"', link.each_usage)]
        if link.fault != "no-usage":
            parts.append(
                chunk(
                    f'data: {{"id":"ref-{link.number}","object":"chat.completion.chunk","created":1700000000,'
                    f'"model":"reference","choices":[],"usage":{self.usage(link)}}}\n\n'
                )
            )
        return b"".join(parts) + chunk("data: [DONE]\n\n") + b"0\r\n\r\n"

    def send_due(self, link: Exchange, due: int) -> None:
        if link.loris:
            self.push(link, link.loris[:1])
            link.loris = link.loris[1:]
            if link.loris:
                self.schedule(link, due + 1_000_000)
            else:
                link.log.append((now(), now(), link.done))
                self.finish(link)
            return
        if link.fault == "empty":
            self.push(link, self.ending(link, "stop"))
            self.finish(link)
            return
        if link.done >= (link.total + 1) // 2 and self.broken(link):
            return
        self.send_tokens(link, due)

    def send_tokens(self, link: Exchange, due: int) -> None:
        left, first = link.total - link.done, link.done == 0
        count = min(self.per_chunk, left)
        if link.fault == "coalesce" and link.done >= link.total // 2:
            count = min(left, 100)
            data = b"".join(self.words(link, 1) for _ in range(count))
        else:
            opener = self.event(link, ROLE) if first and link.chat and not self.role_alone else b""
            data = opener + self.words(link, count)
        if link.fault == "slow-loris" and not first:
            link.loris = data + self.ending(link, "length")
            self.schedule(link, due)
            return
        if link.done >= link.total:
            data += self.ending(link, "length")
        if link.fault == "split":
            self.push(link, data[: len(data) // 2])
            time.sleep(0.002)
            data = data[len(data) // 2 :]
        before = now()
        sent = self.push(link, data)
        link.log.append((before, now(), count))
        if not sent:
            return
        if link.done >= link.total:
            self.finish(link)
            return
        stall = self.stall_ns if link.fault == "stall" and link.done == link.total // 2 else 0
        self.schedule(link, due + self.itl_ns + stall)

    def broken(self, link: Exchange) -> bool:
        """Faults that replace a token; true when the exchange is over."""
        fault = link.fault
        if fault == "garbage":
            self.push(link, chunk(b'data: {"id": garb\xff\n\n'))
            link.fault = "-garbage"
            return False
        if fault == "reset":
            link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if fault in ("reset", "truncate"):
            self.drop(link)
        elif fault == "bad-chunk":
            self.push(link, b"zz\r\nnonsense\r\n")
            self.finish(link)
            self.drop(link)
        elif fault == "error":
            self.push(
                link, chunk('data: {"error":{"message":"out of memory","code":500}}\n\n') + b"0\r\n\r\n"
            )
            self.finish(link)
        elif fault == "short":
            self.push(link, self.ending(link, "stop"))
            self.finish(link)
        return fault in ("reset", "truncate", "bad-chunk", "error", "short", "hang")

    def push(self, link: Exchange, data: bytes) -> bool:
        try:
            link.sock.sendall(data)
        except OSError:
            self.drop(link)
            return False
        return True

    def finish(self, link: Exchange) -> None:
        self.log(link)
        link.reset()
        if self.close_each:
            self.drop(link)

    def log(self, link: Exchange) -> None:
        if self.truth and link.number >= 0:
            fault = FAULTS.index(link.fault.lstrip("-"))
            self.truth.write(struct.pack("@qqqq", link.number, link.arrival, fault, len(link.log)))
            self.truth.writelines(struct.pack("@qqq", *sent) for sent in link.log)

    def drop(self, link: Exchange) -> None:
        if self.links.pop(link.sock.fileno(), None) is not None:
            self.log(link)
            link.reset()
            link.sock.close()


def chunk(text: str | bytes) -> bytes:
    """One chunk of the transfer encoding."""
    data = text if isinstance(text, bytes) else text.encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


if __name__ == "__main__":
    words = sys.argv[1:]
    Server({name[2:]: value for name, value in zip(words[::2], words[1::2], strict=True)}).serve()
