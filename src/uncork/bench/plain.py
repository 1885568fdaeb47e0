"""Recognise the usual token event by its bytes, while they are still in the processor's cache.

The events of one answer differ in their text alone, mostly. Once one of them has been decoded, the bytes
around its text are known; a read that is exactly one chunk with those bytes before and after and no quote
between can be nothing but another such event. Of it only the stamp is kept: that saves decoding and nine
tenths of the memory. Everything else is kept whole and decoded when the answer has ended.
"""

from collections.abc import Iterator

TRIES = 16  # reads looked at per answer: servers that put a clock into each event have no shape
LATEST = 6  # events looked at per read: behind the last token stand a finish, a usage record and an end mark
EVENT_END = b"\n\n\r\n"
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

    def cut(self, data: bytes, keep: int = 0) -> tuple[bytes, int, bytes]:
        """The bytes before the first run of plain events, how many it has, the bytes behind it.

        `keep` of them stay with the bytes before.
        """
        pieces = data.split(self.suffix)
        last = pieces.pop()
        first = next((i for i, piece in enumerate(pieces) if self._ends(piece)), len(pieces)) + keep
        behind = next((i for i in range(first, len(pieces)) if not self._ends(pieces[i])), len(pieces))
        if behind <= first:
            return data, 0, b""
        before = b"".join(piece + self.suffix for piece in pieces[:first])
        return before, behind - first, self.suffix.join([*pieces[behind:], last])

    def _ends(self, piece: bytes) -> bool:
        """Whether these bytes and the suffix are a plain event."""
        line, rest = SIZE_LINES[len(piece) + len(self.suffix)]
        text = piece.removeprefix(line).removeprefix(self.before)
        return len(text) == rest - self.around and QUOTE not in text


def latest_events(data: bytes) -> Iterator[bytes]:
    """The last events of a read that end with their chunk, the latest first, blank lines included."""
    pieces = data.rsplit(EVENT_END, LATEST)[:-1]
    for piece in reversed(pieces):
        yield piece.rpartition(b"\r\n")[2].rpartition(b"\n\n")[2] + b"\n\n"
