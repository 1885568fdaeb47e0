"""Recognise the usual token event by its bytes, while they are still in the processor's cache.

The events of one answer differ in their text alone, mostly. Once one of them has been decoded, the bytes
around its text are known; a read that is exactly one chunk with those bytes before and after and no quote
between can be nothing but another such event. Of it only the stamp is kept: that saves decoding and nine
tenths of the memory. Everything else is kept whole and decoded when the answer has ended.
"""

from uncork.bench.http1 import split_chunks

TRIES = 16  # events looked at per answer: servers that put a clock into each event have no shape
QUOTE = 0x22


class _SizeLines(dict[int, tuple[bytes, int]]):
    """For a read of so many bytes that is exactly one chunk: its first line, and how many bytes follow that."""

    def __missing__(self, total: int) -> tuple[bytes, int]:
        found = (b"\0never", -1)
        for digits in (2, 3, 1, 4):
            size = b"%x" % max(0, total - digits - 4)
            if len(size) == digits:
                found = size + b"\r\n", total - digits - 2
        self[total] = found
        return found


SIZE_LINES = _SizeLines()


class Plain:
    """The bytes around the text of one answer's token events; `around` is how many they are."""

    __slots__ = ("around", "before", "suffix")

    def __init__(self, before: bytes, after: bytes) -> None:
        self.before = before
        self.suffix = after + b"\r\n"
        self.around = len(before) + len(self.suffix)

    def events(self, data: bytes) -> int:
        """How many plain events a read holds that holds nothing else; 0 for any other read."""
        suffix_len, before, around = len(self.suffix), self.before, self.around
        pieces = data.split(self.suffix)
        if pieces.pop():
            return 0
        for piece in pieces:
            line, rest = SIZE_LINES[len(piece) + suffix_len]
            text = piece.removeprefix(line).removeprefix(before)
            if len(text) != rest - around or QUOTE in text:
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
