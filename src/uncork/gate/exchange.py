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
    ended: dict[int, Moved] = {}
    checked = [number for number, move in enumerate(moves) if move.key is not None]
    if checked:
        _ready(ranks, moves, checked, stride, kind, ended)
    timed = _copy(ranks, moves, stride, deadline_s, kind, ended)
    if checked:
        _check(ranks, moves, checked, stride, kind, ended)
    return tuple(ended.get(number) or timed[number] for number in range(len(moves)))


def _note(ended: dict[int, Moved], numbers: Sequence[int], reply: Reply) -> None:
    if reply.ended is not Ended.OK:
        for number in numbers:
            ended.setdefault(number, Moved(ended=reply.ended, says=reply.says))


def _slot(move: Move, at: int, kind: Kind) -> dict[str, Any]:
    assert move.key is not None
    begin = GUARD_BYTES + move.offset_bytes
    return {
        "at": at,
        "offset": begin,
        "size": move.size_bytes,
        "room": slot_bytes(move.size_bytes),
        "key": move.key,
        "kind": kind(move),
        "poison": (move.key >> 17 ^ 0xA5) & 0xFF,
    }


def _ready(
    ranks: Ranks,
    moves: Sequence[Move],
    checked: Sequence[int],
    stride: int,
    kind: Kind,
    ended: dict[int, Moved],
) -> None:
    work: Slots = defaultdict(lambda: {"poison": [], "fill": []})
    touched: dict[int, list[int]] = defaultdict(list)
    for number in checked:
        move = moves[number]
        work[move.dst]["poison"].append(_slot(move, move.src * stride, kind))
        work[move.src]["fill"].append(_slot(move, move.dst * stride, kind))
        touched[move.src].append(number)
        touched[move.dst].append(number)
    requests = {index: {"op": "ready", **slots} for index, slots in work.items()}
    for index, reply in ranks.call(requests, deadline_s=PREPARE_DEADLINE_S).items():
        _note(ended, touched[index], reply)


def _copy(
    ranks: Ranks, moves: Sequence[Move], stride: int, deadline_s: float, kind: Kind, ended: dict[int, Moved]
) -> dict[int, Moved]:
    work: dict[int, list[dict[str, Any]]] = defaultdict(list)
    order: dict[int, list[int]] = defaultdict(list)
    for number, move in enumerate(moves):
        if number in ended:
            continue
        begin = GUARD_BYTES + move.offset_bytes
        copy = {
            "src": move.src,
            "dst": move.dst,
            "from": move.dst * stride + begin,
            "to": move.src * stride + begin,
            "size": move.size_bytes,
            "loops": move.loops,
            "engine": str(move.engine),
            "kind": kind(move),
        }
        work[initiator(move)].append(copy)
        order[initiator(move)].append(number)
    start_at_s = time.monotonic() + (START_DELAY_S if len(work) > 1 else 0.0)
    requests = {i: {"op": "copy", "moves": copies, "start_at_s": start_at_s} for i, copies in work.items()}
    timed: dict[int, Moved] = {}
    for index, reply in ranks.call(requests, deadline_s=deadline_s).items():
        _note(ended, order[index], reply)
        if reply.ended is Ended.OK:
            value = reply.value
            disturbed = value.get("disturbed") or [False] * len(order[index])
            for number, seconds, other in zip(order[index], value["seconds"], disturbed, strict=True):
                timed[number] = Moved(seconds=seconds, disturbed=other)
    return timed


def _check(
    ranks: Ranks,
    moves: Sequence[Move],
    checked: Sequence[int],
    stride: int,
    kind: Kind,
    ended: dict[int, Moved],
) -> None:
    work: Slots = defaultdict(lambda: {"received": [], "sent": []})
    arrived: dict[int, list[int]] = defaultdict(list)
    left: dict[int, list[int]] = defaultdict(list)
    for number in checked:
        move = moves[number]
        if number in ended:
            continue
        work[move.dst]["received"].append(_slot(move, move.src * stride, kind))
        work[move.src]["sent"].append(_slot(move, move.dst * stride, kind))
        arrived[move.dst].append(number)
        left[move.src].append(number)
    requests = {index: {"op": "check", **slots} for index, slots in work.items()}
    changed: dict[int, bool] = {}
    found: dict[int, dict[str, Any]] = {}
    for index, reply in ranks.call(requests, deadline_s=PREPARE_DEADLINE_S).items():
        _note(ended, arrived[index] + left[index], reply)
        if reply.ended is Ended.OK:
            found.update(zip(arrived[index], reply.value["arrived"], strict=True))
            changed.update(zip(left[index], reply.value["changed"], strict=True))
    for number in checked:
        if number not in ended:
            one = found[number]
            ended[number] = Moved(
                wrong_words=one["wrong"],
                first_wrong_bytes=one["first"],
                guard_touched=one["guard"],
                source_changed=changed[number],
            )
