"""How weights and caches lie on the ranks, and whether they fit."""

from uncork.bound import caches
from uncork.errors import BadInput, Refused
from uncork.model.bound import Hardware, ModelBytes, Parallel, Part, Role, Sharding

UNREAD = (Role.EMBEDDING, Role.OTHER)  # by decoding: one row of an embedding is nothing


def check_parallel(model: ModelBytes, parallel: Parallel, count: int | None = None) -> None:
    """Raises BadInput naming the option where the ranks cannot be laid out."""
    for name in ("tp", "pp", "dp", "ep", "dcp"):
        if getattr(parallel, name) < 1:
            raise BadInput(f"--{name}: {getattr(parallel, name)} is not a number of ranks")
    used = parallel.tp * parallel.pp * parallel.dp
    if count is not None and count < 1:
        raise BadInput(f"--count: {count} is not a number of devices")
    if count is not None and used > count:
        raise BadInput(f"--tp x --pp x --dp is {used}, more than --count {count}")
    if parallel.ep > 1 and not model.experts:
        raise BadInput(f"--ep: {model.name} has no experts to spread")
    if (parallel.tp * parallel.dp) % parallel.ep:
        raise BadInput(f"--ep: {parallel.ep} does not divide tp x dp = {parallel.tp * parallel.dp}")
    if parallel.tp % parallel.dcp:
        raise BadInput(f"--dcp: {parallel.dcp} does not divide tp = {parallel.tp}")
    if parallel.pp > model.layers:
        raise BadInput(f"--pp: {parallel.pp} stages for {model.layers} layers")


def share_of(part: Part, model: ModelBytes, parallel: Parallel) -> float:
    """The share of a part's bytes that one rank holds (within its pipeline stage)."""
    if part.sharding is Sharding.REPLICATED:
        return 1.0
    if part.sharding is Sharding.KV_HEADS:
        return 1 / min(parallel.tp, max(1, model.kv_heads))
    if part.sharding is Sharding.EXPERT:
        return 1 / max(parallel.tp, parallel.ep)
    return 1 / parallel.tp


def weights_per_rank(model: ModelBytes, parallel: Parallel, *, mtp: bool = False) -> float:
    """Bytes of weights that the fullest rank holds; pipeline stages are taken as equal."""
    held = [part for part in model.parts if mtp or not part.mtp]
    return sum(part.bytes * share_of(part, model, parallel) for part in held) / parallel.pp


def fit(
    model: ModelBytes,
    hardware: Hardware,
    parallel: Parallel,
    context: int,
    kv_format: str,
    memory_share: float,
) -> tuple[float | None, int | None]:
    """(sequences, tokens) that fit beside the weights; (None, None) where the memory size is not known.

    Raises Refused where the weights, or the cache of one sequence, do not fit: there is no such speed to bound.
    """
    if hardware.memory_bytes is None:
        return None, None
    held = weights_per_rank(model, parallel)
    if held > hardware.memory_bytes:
        raise Refused(
            f"the weights do not fit: {held / 1e9:.1f} GB a device,"
            f" {hardware.name} has {hardware.memory_bytes / 1e9:.0f}",
            next="raise --tp, --pp or --ep, or take a smaller checkpoint",
        )
    free = hardware.memory_bytes * memory_share - held
    one = caches.held_bytes(model, kv_format, max(context, 1), parallel)
    if one > free:
        raise Refused(
            f"the KV cache of one sequence does not fit: {one / 1e9:.2f} GB a device for {context} tokens,"
            f" {max(free, 0) / 1e9:.2f} GB are left at {memory_share:.0%} of memory",
            next="shorten --context, raise --tp or --dcp, or use --kv-dtype fp8",
        )
    sequences = free / one * parallel.dp
    return sequences, int(sequences * max(context, 1))
