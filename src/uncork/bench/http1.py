"""HTTP/1.1 by hand: a request as bytes, and a response taken apart after it has ended.

Nothing here runs while tokens arrive. Every piece of a response knows the read it came in, so that an event
gets the time at which its last byte arrived.
"""

from itertools import accumulate

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


class Head(msgspec.Struct):
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
    lines = raw[:end].decode("latin-1").split("\r\n")
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
        length=end + 4,
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
        return tail.endswith(b"\r\n0\r\n\r\n") or _walks_to_end(b"".join(parts), head)
    if head.content_length >= 0:
        return sum(map(len, parts)) >= head.length + head.content_length
    return head.status in (204, 304)


def _walks_to_end(raw: bytes, head: Head) -> bool:
    try:
        return _dechunk(raw, head.length)[2]
    except ValueError:
        return True  # garbage: no more bytes will mend it; the caller reports it


def take_apart(parts: list[bytes], framing: str) -> Response:
    """Split a whole (or broken-off) response into events. Never raises; `garbage` says what was wrong."""
    raw = b"".join(parts)
    try:
        head = parse_head(raw)
    except ValueError as error:
        return Response(0, False, False, False, [], [], b"", str(error))
    if head is None:
        return Response(0, False, False, False, [], [], b"", "")
    garbage = ""
    if head.chunked:
        try:
            pieces, ends, complete = _dechunk(raw, head.length)
        except ValueError as error:
            pieces, ends, complete, garbage = [], [], False, str(error)
    else:
        body = raw[head.length :]
        pieces, ends = [body], [len(raw)]
        complete = head.content_length < 0 or len(body) >= head.content_length
    if head.status != 200 or not (head.stream or framing == "ndjson"):
        return Response(
            head.status, head.chunked, head.keep_alive, complete, [], [], b"".join(pieces), garbage
        )
    separator = b"\n" if framing == "ndjson" else _separator(pieces)
    events, offsets = _split(pieces, ends, separator)
    reads = _locate(offsets, list(accumulate(map(len, parts))))
    return Response(head.status, head.chunked, head.keep_alive, complete, events, reads, b"", garbage)


def _dechunk(raw: bytes, at: int) -> tuple[list[bytes], list[int], bool]:
    """Chunks, the offset in `raw` at which each ends, and whether the last chunk was there."""
    pieces: list[bytes] = []
    ends: list[int] = []
    find, total = raw.find, len(raw)
    while True:
        eol = find(b"\r\n", at, at + 64)
        if eol < 0:
            if total - at > 20:
                raise ValueError("a chunk has no size")
            return pieces, ends, False
        try:
            size = int(raw[at:eol].partition(b";")[0], 16)
        except ValueError:
            raise ValueError(f"a chunk size is {raw[at:eol][:20]!r}") from None
        if size == 0:
            return pieces, ends, find(b"\r\n", eol + 2) >= 0
        at = eol + 2 + size
        if at > total:
            pieces.append(raw[eol + 2 :])
            ends.append(total)
            return pieces, ends, False
        pieces.append(raw[eol + 2 : at])
        ends.append(at)
        at += 2


def _separator(pieces: list[bytes]) -> bytes:
    return b"\r\n\r\n" if any(b"\r\n\r\n" in piece for piece in pieces[:2]) else b"\n\n"


def _split(pieces: list[bytes], ends: list[int], separator: bytes) -> tuple[list[bytes], list[int]]:
    """Events and the raw offset of each one's end. An event may span chunks; a chunk may hold several."""
    events: list[bytes] = []
    offsets: list[int] = []
    width = len(separator)
    carry = b""
    for piece, end in zip(pieces, ends, strict=True):
        if not carry and piece.find(separator) == len(piece) - width:
            events.append(piece[:-width])  # the usual case: one chunk, one event
            offsets.append(end)
            continue
        text = carry + piece
        start = end - len(text)  # right for the bytes of this chunk, which is where every event here ends
        at = 0
        while (stop := text.find(separator, at)) >= 0:
            events.append(text[at:stop])
            at = stop + width
            offsets.append(start + at)
        carry = text[at:]
    return events, offsets


def _locate(offsets: list[int], read_ends: list[int]) -> list[int]:
    """For each offset the first read that reached it."""
    found: list[int] = []
    read = 0
    for offset in offsets:
        while read_ends[read] < offset:
            read += 1
        found.append(read)
    return found


def payload(event: bytes) -> bytes:
    """The data of one SSE event; empty for a comment."""
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)
