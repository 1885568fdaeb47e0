"""Checked and timed transfers between ranks: poison and fill, copy, compare. The same for host memory and CUDA.

Each source has a region of its own at each destination, so that every pattern of transfers can run at once. The
owner of a destination compares, never the initiator: a read back over the same path could undo what it did wrong.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from uncork.gate.fabric import Direction, Ended, Move, Moved
from uncork.gate.ranks import Ranks, Reply

GUARD_BYTES = 4096
PREPARE_DEADLINE_S = 20.0
# Ranks start their copies at one moment of the machine's monotonic clock, this long after the request leaves.
START_DELAY_S = 0.002

Kind = Callable[[Move], str]
Slots = dict[int, dict[str, list[dict[str, Any]]]]


def slot_bytes(size: int) -> int:
    """Room for a checked transfer at any offset below a page, with a guard before and behind it."""
    return (size + 2 * GUARD_BYTES + 2 * 4096 - 1) // 4096 * 4096


def initiator(move: Move) -> int:
    """Whose process starts the copy."""
    return move.src if move.direction is Direction.PUSH else move.dst


def exchange(
    ranks: Ranks, moves: Sequence[Move], *, stride: int, deadline_s: float, kind: Kind = lambda move: ""
) -> tuple[Moved, ...]:
    """Run these moves at the same time. Raises `Stuck`.

    `stride` is the distance between regions; `kind` names which of a rank's memories a move works on.
    """
    one = _Exchange(ranks, moves, stride, kind)
    one.ready()
    timed = one.copy(deadline_s)
    one.check()
    return tuple(one.ended.get(number) or timed[number] for number in range(len(moves)))


class _Exchange:
    """Moves under way; `ended` holds those of which the end is known, by their number."""

    def __init__(self, ranks: Ranks, moves: Sequence[Move], stride: int, kind: Kind) -> None:
        self.ranks, self.moves, self.stride, self.kind = ranks, moves, stride, kind
        self.ended: dict[int, Moved] = {}

    def ready(self) -> None:
        """Poison the destinations of checked moves, fill their sources."""
        work, touched = self._slots("poison", "fill")
        requests = {index: {"op": "ready", **slots} for index, slots in work.items()}
        for index, reply in self.ranks.call(requests, deadline_s=PREPARE_DEADLINE_S).items():
            self._note([*touched["poison", index], *touched["fill", index]], reply)

    def copy(self, deadline_s: float) -> dict[int, Moved]:
        """Start every copy at one moment, each at its initiator; the seconds of those that ended well."""
        work: dict[int, list[dict[str, Any]]] = defaultdict(list)
        order: dict[int, list[int]] = defaultdict(list)
        for number in self._open():
            begins = initiator(self.moves[number])
            work[begins].append(self._copy_of(self.moves[number]))
            order[begins].append(number)
        start_at_s = time.monotonic() + (START_DELAY_S if len(work) > 1 else 0.0)
        requests = {
            i: {"op": "copy", "moves": copies, "start_at_s": start_at_s} for i, copies in work.items()
        }
        timed: dict[int, Moved] = {}
        for index, reply in self.ranks.call(requests, deadline_s=deadline_s).items():
            self._note(order[index], reply)
            if reply.ended is Ended.OK:
                value = reply.value
                disturbed = value.get("disturbed") or [False] * len(order[index])
                for number, seconds, other in zip(order[index], value["seconds"], disturbed, strict=True):
                    timed[number] = Moved(seconds=seconds, disturbed=other)
        return timed

    def check(self) -> None:
        """Compare at the destinations of checked moves, and their sources once more."""
        work, touched = self._slots("received", "sent")
        requests = {index: {"op": "check", **slots} for index, slots in work.items()}
        found: dict[int, dict[str, Any]] = {}
        changed: dict[int, bool] = {}
        for index, reply in self.ranks.call(requests, deadline_s=PREPARE_DEADLINE_S).items():
            arrived, left = touched["received", index], touched["sent", index]
            self._note([*arrived, *left], reply)
            if reply.ended is Ended.OK:
                found.update(zip(arrived, reply.value["arrived"], strict=True))
                changed.update(zip(left, reply.value["changed"], strict=True))
        for number in self._open():
            if self.moves[number].key is not None:
                one = found[number]
                self.ended[number] = Moved(
                    wrong_words=one["wrong"],
                    first_wrong_bytes=one["first"],
                    guard_touched=one["guard"],
                    source_changed=changed[number],
                )

    def _open(self) -> list[int]:
        return [number for number in range(len(self.moves)) if number not in self.ended]

    def _slots(self, at_destination: str, at_source: str) -> tuple[Slots, dict[tuple[str, int], list[int]]]:
        """What each rank has to do about checked moves, by rank, and the numbers of the moves behind it."""
        work: Slots = defaultdict(lambda: {at_destination: [], at_source: []})
        touched: dict[tuple[str, int], list[int]] = defaultdict(list)
        for number in self._open():
            move = self.moves[number]
            if move.key is None:
                continue
            for what, rank, far in ((at_destination, move.dst, move.src), (at_source, move.src, move.dst)):
                work[rank][what].append(self._slot(move, far * self.stride))
                touched[what, rank].append(number)
        return work, touched

    def _slot(self, move: Move, at: int) -> dict[str, Any]:
        assert move.key is not None
        return {
            "at": at,
            "offset": GUARD_BYTES + move.offset_bytes,
            "size": move.size_bytes,
            "room": slot_bytes(move.size_bytes),
            "key": move.key,
            "kind": self.kind(move),
            "poison": (move.key >> 17 ^ 0xA5) & 0xFF,
        }

    def _copy_of(self, move: Move) -> dict[str, Any]:
        begin = GUARD_BYTES + move.offset_bytes
        return {
            "src": move.src,
            "dst": move.dst,
            "from": move.dst * self.stride + begin,
            "to": move.src * self.stride + begin,
            "size": move.size_bytes,
            "loops": move.loops,
            "engine": str(move.engine),
            "kind": self.kind(move),
        }

    def _note(self, numbers: Sequence[int], reply: Reply) -> None:
        if reply.ended is not Ended.OK:
            for number in numbers:
                self.ended.setdefault(number, Moved(ended=reply.ended, says=reply.says))
