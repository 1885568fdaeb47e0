"""Recognise the usual token event by its bytes, while they are still in the processor's cache.

The events of one answer differ in their text alone, mostly. Once one of them has been decoded, the bytes
around its text are known; a read that is exactly one chunk with those bytes before and after and no quote
between can be nothing but another such event. Of it only the stamp is kept: that saves decoding and nine
tenths of the memory. Everything else is kept whole and decoded when the answer has ended.
"""

from uncork.bench.http1 import split_chunks

NEVER = b"\0never"
TRIES = 16  # events looked at per answer: servers that put a clock into each event have no shape


class Plain:
    """The bytes around the text of one answer's token events; `prefixes` by the length of a whole read."""

    __slots__ = ("before", "prefixes", "suffix", "suffix_len")

    def __init__(self, before: bytes, after: bytes) -> None:
        self.before = before
        self.suffix = after + b"\r\n"
        self.suffix_len = len(self.suffix)
        self.prefixes: dict[int, bytes] = {}

    def prefix(self, total: int) -> bytes:
        """What a read of that length begins with if it is one plain event: chunk size and the bytes before."""
        found = NEVER
        for digits in (2, 3, 1, 4):
            size = b"%x" % max(0, total - digits - 4)
            if len(size) == digits:
                found = size + b"\r\n" + self.before
        if total < len(found) + self.suffix_len:
            found = NEVER
        self.prefixes[total] = found
        return found

    def events(self, data: bytes) -> int:
        """How many plain events a read holds that holds nothing else; 0 for any other read."""
        pieces = data.split(self.suffix)
        if pieces.pop():
            return 0
        prefixes = self.prefixes
        for piece in pieces:
            total = len(piece) + self.suffix_len
            prefix = prefixes.get(total) or self.prefix(total)
            if not piece.startswith(prefix) or piece.find(b'"', len(prefix)) >= 0:
                return 0
        return len(pieces)


def last_event(data: bytes) -> bytes | None:
    """The last event of a read that holds whole chunks and whole events, its blank line included."""
    if data[-4:] != b"\n\n\r\n":
        return None
    head = data.find(b"\r\n\r\n") + 4 if data.startswith(b"HTTP/") else 0
    pieces = split_chunks(data[head:])
    if not pieces or not pieces[-1].endswith(b"\n\n"):
        return None
    return pieces[-1][pieces[-1].rfind(b"\n\n", 0, -2) + 2 :] if b"\n\n" in pieces[-1][:-2] else pieces[-1]
