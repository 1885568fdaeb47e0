"""HTTP/1.1 by hand: a request as bytes, and a response taken apart after it has ended.

Nothing here runs while tokens arrive. Every piece of a response knows the read it came in, so that an event
gets the time at which its last byte arrived.
"""

from functools import lru_cache

import msgspec

HEAD_END = b"\r\n\r\n"


class Response(msgspec.Struct):
    """A response after its end: events and, for each, the index of the read that completed it."""

    status: int
    chunked: bool
    keep_alive: bool
    complete: bool
    events: list[bytes]
    reads: list[int]
    body: bytes  # of a response that is not a stream
    garbage: str = ""


class Head(msgspec.Struct, frozen=True):
    """Status line and the headers that matter."""

    status: int
    length: int  # bytes up to and including the blank line
    chunked: bool
    content_length: int  # -1: none given
    keep_alive: bool
    stream: bool  # text/event-stream or newline-delimited JSON


def parse_head(raw: bytes) -> Head | None:
    """The head of a response, None while its blank line is missing. Raises ValueError on garbage."""
    end = raw.find(HEAD_END)
    if end < 0:
        if len(raw) > 65536 or not b"HTTP/".startswith(raw[:5]):
            raise ValueError("the answer is not HTTP")
        return None
    return _read_head(raw[:end])


@lru_cache(maxsize=256)  # the heads of one level are alike but for a date
def _read_head(raw: bytes) -> Head:
    lines = raw.decode("latin-1").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise ValueError(f"the answer is not HTTP/1.1: {lines[0][:60]!r}")
    fields = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip().lower()
    length = fields.get("content-length", "")
    if length and not length.isdigit():
        raise ValueError(f"content-length is {length[:20]!r}")
    kind = fields.get("content-type", "")
    return Head(
        status=int(rest[:3]),
        length=len(raw) + 4,
        chunked="chunked" in fields.get("transfer-encoding", ""),
        content_length=int(length) if length else -1,
        keep_alive="close"
        not in fields.get("connection", "keep-alive" if version == "HTTP/1.1" else "close"),
        stream="event-stream" in kind or "ndjson" in kind,
    )


def ended(parts: list[bytes], head: Head) -> bool:
    """Whether the pieces hold the whole body; asked only when the last piece ends like an end."""
    if head.chunked:
        tail = b"".join(parts[-4:])[-512:]
        return tail.endswith(b"\r\n0\r\n\r\n") or (tail.endswith(b"\r\n\r\n") and _walks_to_end(parts, head))
    if head.content_length >= 0:
        return sum(map(len, parts)) >= head.length + head.content_length
    return head.status in (204, 304)


def _walks_to_end(parts: list[bytes], head: Head) -> bool:
    """Follow the chunk sizes: for servers whose events end in CRLF CRLF, and for trailers."""
    _, _, complete, garbage = _bodies(parts, head.length)
    return complete or bool(garbage)  # no more bytes will mend garbage; the record says what it was


def take_apart(parts: list[bytes], framing: str) -> Response:
    """Split a whole (or broken-off) response into events. Never raises; `garbage` says what was wrong."""
    try:
        head = parse_head(b"".join(parts[:4])) or parse_head(b"".join(parts))
    except ValueError as error:
        return Response(0, False, False, False, [], [], b"", str(error))
    if head is None:
        return Response(0, False, False, False, [], [], b"", "")
    if head.chunked:
        pieces, reads, complete, garbage = _bodies(parts, head.length)
    else:
        body = b"".join(parts)[head.length :]
        complete = head.content_length < 0 or len(body) >= head.content_length
        pieces, reads, garbage = *_after_head(parts, head.length), ""
    if head.status != 200 or not (head.stream or framing == "ndjson"):
        body = b"".join(pieces)
        return Response(head.status, head.chunked, head.keep_alive, complete, [], [], body, garbage)
    separator = b"\n" if framing == "ndjson" else _separator(pieces)
    events, event_reads = _split(pieces, reads, separator)
    return Response(head.status, head.chunked, head.keep_alive, complete, events, event_reads, b"", garbage)


def _after_head(parts: list[bytes], length: int) -> tuple[list[bytes], list[int]]:
    """The reads without the head, each with its number."""
    first = 0
    while first < len(parts) and length >= len(parts[first]):
        length -= len(parts[first])
        first += 1
    rest = parts[first:]
    if rest and length:
        rest[0] = rest[0][length:]
    return rest, list(range(first, len(parts)))


def _bodies(parts: list[bytes], head_length: int) -> tuple[list[bytes], list[int], bool, str]:
    """Chunk payloads after the head, the read each came in, whether the body is whole, what was wrong."""
    rest, numbers = _after_head(parts, head_length)
    return _dechunk(rest, numbers[0] if numbers else 0)


def _dechunk(parts: list[bytes], first: int) -> tuple[list[bytes], list[int], bool, str]:
    """Chunk payloads, or what has come of them, each with its read. A chunk in one read stays one piece."""
    pieces: list[bytes] = []
    reads: list[int] = []
    need, carry = 0, b""  # bytes to the end of the current chunk and its CRLF; a chunk head cut in two
    for read, part in enumerate(parts, first):
        data = carry + part if carry else part
        carry = b""
        at, total = 0, len(data)
        while at < total:
            if not need:
                eol = data.find(b"\r\n", at, at + 64)
                if eol < 0:
                    if total - at > 20:
                        return pieces, reads, False, "a chunk has no size"
                    carry = data[at:]
                    break
                try:
                    need = int(data[at:eol], 16) + 2
                except ValueError:
                    try:
                        need = int(data[at:eol].partition(b";")[0], 16) + 2
                    except ValueError:
                        return pieces, reads, False, f"a chunk size is {data[at:eol][:20]!r}"
                if need < 2:
                    return pieces, reads, False, f"a chunk size is {data[at:eol][:20]!r}"
                at = eol + 2
                if need == 2:  # the last chunk; trailers may follow, then a blank line
                    rest = b"".join([data[at:], *parts[read - first + 1 :]])
                    return pieces, reads, rest.startswith(b"\r\n") or b"\r\n\r\n" in rest, ""
            end = at + need
            if end <= total:
                if need > 2:
                    pieces.append(data[at : end - 2])
                    reads.append(read)
                at, need = end, 0
            else:
                if at < min(total, end - 2):
                    pieces.append(data[at : min(total, end - 2)])
                    reads.append(read)
                need, at = end - total, total
    return pieces, reads, False, ""


def _separator(pieces: list[bytes]) -> bytes:
    return b"\r\n\r\n" if any(b"\r\n\r\n" in piece for piece in pieces[:2]) else b"\n\n"


def _split(pieces: list[bytes], reads: list[int], separator: bytes) -> tuple[list[bytes], list[int]]:
    """Events and the read in which each ended. An event may span pieces; a piece may hold several."""
    events: list[bytes] = []
    found: list[int] = []
    width = len(separator)
    carry = b""
    for piece, read in zip(pieces, reads, strict=True):
        if not carry and piece.endswith(separator) and piece.find(separator) == len(piece) - width:
            events.append(piece[:-width])  # the usual case: one chunk, one event
            found.append(read)
            continue
        *whole, carry = (carry + piece).split(separator)
        events += whole
        found += [read] * len(whole)
    return events, found


def payload(event: bytes) -> bytes:
    """The data of one SSE event; empty for a comment."""
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)
