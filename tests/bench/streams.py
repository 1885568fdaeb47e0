"""Streams for tests: what a server sends, cut into reads at will."""

import struct

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of the transfer encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(text: str, *, ident: str = "ref-7", finish: str = "null") -> bytes:
    """A chat event that carries one piece of text (already escaped for JSON)."""
    return (
        f'data: {{"id":"{ident}","object":"chat.completion.chunk","choices":[{{"index":0,'
        f'"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":{finish}}}]}}\n\n'
    ).encode()


ROLE = (
    b'data: {"id":"ref-7","choices":[{"index":0,"delta":{"role":"assistant","content":""},'
    b'"finish_reason":null}]}\n\n'
)
FINISH = b'data: {"id":"ref-7","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n'
DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"


def usage(prompt: int, completion: int) -> bytes:
    """The usage record at the end of a stream."""
    return (
        f'data: {{"id":"ref-7","choices":[],"usage":{{"prompt_tokens":{prompt},'
        f'"completion_tokens":{completion}}}}}\n\n'
    ).encode()


def answer(texts: list[str], *, tokens: int | None = None) -> list[bytes]:
    """The reads of a whole answer as an exact server sends it: one chunk a token, the rest with the last."""
    parts = [HEAD, chunk(ROLE) + chunk(event(texts[0]))]
    parts += [chunk(event(text)) for text in texts[1:]]
    parts[-1] += chunk(FINISH) + chunk(usage(5, len(texts) if tokens is None else tokens)) + chunk(DONE) + END
    return parts


def stamps(count: int, *, first_s: int = 100, step_ns: int = 20_000_000) -> bytearray:
    """Kernel stamps `step_ns` apart, from `first_s` seconds on."""
    at = (first_s * 10**9 + i * step_ns for i in range(count))
    return bytearray(b"".join(struct.pack("@qq", *divmod(ns, 10**9)) for ns in at))
