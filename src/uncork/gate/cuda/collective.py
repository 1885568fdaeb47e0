"""All ranks together: start the server's NCCL, measure its all-reduce, read its transports."""

import time
from collections.abc import Sequence

from uncork.gate.fabric import AllReduce, Ended
from uncork.gate.ranks import Ranks, Reply
from uncork.model.unknown import Unknown

# NCCL needs 2-5 s to start on eight GPUs; a start that hangs is the most reported failure of all.
DEADLINE_S = 20.0


def all_reduce(
    ranks: Ranks, count: int, library: str, sizes: Sequence[int], rounds: int
) -> AllReduce | Unknown:
    """Microseconds by size and the transports; `hung` is set where a call did not end. Raises `Stuck`."""
    first = ranks.call({0: {"op": "nccl_id", "library": library}}, deadline_s=DEADLINE_S)[0]
    if first.ended is not Ended.OK:
        return _ended(library, first, "did not load")
    name = f"NCCL {_version(first.value['version'])}"
    start = {"op": "nccl_start", "library": library, "identity": first.value["id"], "ranks": count}
    started = ranks.call({i: {**start, "rank": i} for i in range(count)}, deadline_s=DEADLINE_S)
    if bad := _bad(started):
        return _ended(name, bad, "did not start")
    ask = {"op": "all_reduce", "sizes": list(sizes), "rounds": rounds, "start_at_s": time.monotonic() + 0.002}
    replies = ranks.call(dict.fromkeys(range(count), ask), deadline_s=DEADLINE_S)
    if bad := _bad(replies):
        return _ended(name, bad, "did not finish an all-reduce")
    samples = {size: tuple(replies[0].value["samples_us"][at]) for at, size in enumerate(sizes)}
    transports: dict[str, str] = {}
    for reply in started.values():
        transports.update(reply.value["transports"])
    return AllReduce(name, samples, transports)


def _bad(replies: dict[int, Reply]) -> Reply | None:
    """The reply that tells most: one that hung or failed by itself."""
    ended = [reply for reply in replies.values() if reply.ended is not Ended.OK]
    return min(ended, key=lambda reply: reply.ended is Ended.HANG, default=None)


def _ended(name: str, reply: Reply, what: str) -> AllReduce | Unknown:
    says = f"{name} {what}: {reply.says}"
    return AllReduce(name, {}, {}, hung=says) if reply.ended is Ended.HANG else Unknown(says)


def _version(code: int) -> str:
    """`NCCL_VERSION`: major * 10000 + minor * 100 + patch since 2.9 (nccl.h)."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
