"""What is left for caches, logs and core dumps; where swap lies."""

from collections.abc import Iterator

from uncork.checks import INFO, NONE, P1, P2, Verdict, check, fails, passes
from uncork.checks.hosts import GIB, known, seen, sizes
from uncork.model.facts import Facts
from uncork.model.unknown import is_unknown


@check("storage.free-space", P1, NONE)
def free_space(facts: Facts) -> Iterator[Verdict]:
    """File systems for models, caches and logs have room.

    Effect: an engine that cannot write its cache, log or core dump crashes
    Sure: high
    Fix: make room
    Undo: nothing to undo
    Wrong when: a large file system with hundreds of gigabytes left at 95 %
    Source: statvfs(3); own reasoning
    """
    for space in known(facts.storage.spaces):
        share = space.free_bytes / space.size_bytes
        inodes = space.free_inodes / space.inodes if space.inodes else 1.0
        evidence = seen(
            f"statvfs {space.path}",
            f"{sizes(space.free_bytes)} of {sizes(space.size_bytes)} free, {inodes:.0%} of inodes",
        )
        if space.path == "/dev/shm":
            continue  # container.shm-size judges it
        if share < 0.1 and space.free_bytes < 100 * GIB:
            priority = P1 if space.free_bytes < 20 * GIB else P2
            yield fails(
                f"{sizes(space.free_bytes)} left ({share:.0%})",
                space.path,
                evidence=evidence,
                priority=priority,
            )
        elif inodes < 0.05:
            yield fails("few inodes are left", space.path, evidence=evidence)
        else:
            yield passes("file systems have room", space.path, evidence=evidence)


@check("storage.swap-device", INFO, NONE)
def swap_device(facts: Facts) -> Iterator[Verdict]:
    """Where swap lies: a fact.

    Effect: see kernel.server-swapped-out
    Sure: high
    Fix: none
    Undo: nothing to undo
    Source: swapon(8); Linux admin-guide/mm/zswap.rst
    """
    areas = known(facts.kernel.swaps)
    zswap = facts.kernel.zswap
    text = (
        ", ".join(f"{area.name} {sizes(area.size_bytes)}, {sizes(area.used_bytes)} used" for area in areas)
        or "none"
    )
    compressed = "" if is_unknown(zswap) or zswap != "Y" else ", zswap on"
    yield passes(f"swap: {text}{compressed}", evidence=seen("/proc/swaps", text))
