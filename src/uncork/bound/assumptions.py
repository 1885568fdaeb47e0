"""What a bound assumes, one line each, printed beside the number."""

from uncork.model.bound import Curve, Hardware, ModelBytes, Parallel, Sharding, Speculation


def assumptions(
    model: ModelBytes,
    hardware: Hardware,
    parallel: Parallel,
    kv_format: str,
    curve: Curve | None,
    speculation: Speculation | None,
    *,
    batch: float,
    concurrency: int,
    count: int | None = None,
    memory_share: float = 1.0,
) -> tuple[str, ...]:
    """Every assumption behind one bound, in the order in which they matter."""
    lines = [*model.assumptions]
    lines.append(f"memory bandwidth {hardware.bandwidth_gb_s:g} GB/s a device: {hardware.bandwidth_source}")
    if hardware.notes and hardware.id.startswith("rtx_pro_6000"):
        lines.append(
            "one name, two memory speeds: 1792 GB/s (Workstation), 1597 (Server); read the clock on the host"
        )
    lines.extend(hardware.read)
    used = parallel.tp * parallel.pp * parallel.dp
    if count is not None and used < count:
        lines.append(f"{used} of {count} devices used: --tp, --pp and --dp say no more")
    lines.extend(_layout(model, parallel))
    lines.extend(_collectives(hardware, parallel, curve))
    lines.append(f"KV cache in {kv_format}; every sequence has a context of its own")
    if hardware.memory_bytes is None:
        lines.append(
            "the size of memory is not known, so whether all of it fits was not checked (--memory GB)"
        )
    else:
        lines.append(
            f"weights and cache may use {memory_share:.0%} of {hardware.memory_bytes / 1e9:.0f} GB a device"
        )
    if batch < concurrency:
        lines.append(f"only {batch:g} of {concurrency} sequences run at once; the others wait")
    if model.experts and batch > 1:
        lines.append(
            "distinct experts lie between all tokens agreeing and uniform routing; the first figure of each"
            " tier is for the fewest, since only that cannot be beaten"
        )
    lines.extend(_rates(model, hardware))
    lines.append(_speculation(speculation))
    return tuple(lines)


def _rates(model: ModelBytes, hardware: Hardware) -> list[str]:
    lines = []
    if not hardware.peaks_tflops:
        lines.append("no matrix rate is known for this device, so compute is left out (the bound stays safe)")
    peaks = hardware.peaks_tflops
    if any(part.format.startswith("INT8") for part in model.parts) and peaks.get("int8", 1e9) < peaks.get(
        "bf16", 0
    ):
        lines.append(
            f"INT8 runs at {peaks['int8']:g} TOPS here, slower than BF16: do not serve INT8 on this device"
        )
    if hardware.kind == "cpu":
        lines.append("engine tier on a CPU: no floor a layer is known, so it equals the fabric tier")
    else:
        share = "measured on this host" if hardware.copy_share else "0.93 of peak, the best published copy"
        lines.append(
            f"engine tier: bandwidth {share}; floor a layer from the best published run of this family"
        )
    return lines


def _layout(model: ModelBytes, parallel: Parallel) -> list[str]:
    lines = []
    same = sum(p.bytes for p in model.parts if p.sharding is Sharding.REPLICATED and not p.mtp)
    if parallel.tp > 1:
        lines.append(f"TP{parallel.tp} as engines do it: {same / 1e9:.2f} GB replicated on every rank")
        heads = [cache.kv_heads for cache in model.caches if cache.kind != "state"]
        if any(h < parallel.tp for h in heads) and parallel.dcp == 1:
            lines.append("the KV cache has fewer heads than there are ranks, so it is held more than once")
    if parallel.dp > 1:
        lines.append(f"DP{parallel.dp}: each attention replica serves an equal share of the sequences")
    if parallel.ep > 1:
        lines.append(f"EP{parallel.ep}: experts spread evenly; real routing is less even")
    if parallel.pp > 1:
        lines.append(
            f"PP{parallel.pp}: equal stages; a token passes all of them, so one stream gains nothing"
        )
    return lines


def _collectives(hardware: Hardware, parallel: Parallel, curve: Curve | None) -> list[str]:
    if parallel.tp == 1 and parallel.dp == 1 and parallel.pp == 1:
        return []
    lines = []
    if parallel.tp > 1 and curve is None:
        lines.append("no all-reduce curve for this link: the fabric tier has its physical floor only")
    elif curve is not None and curve.foreign:
        lines.append(f"all-reduce times are FOREIGN: {curve.source}; measure this host with --allreduce-us")
    elif curve is not None:
        lines.append(f"all-reduce times measured: {curve.source}")
    if parallel.ep > 1 and parallel.dp > 1:
        lines.append("all-to-all taken at the speed of the link: no curve for it")
    if hardware.link_gb_s:
        lines.append(f"link {hardware.link}, {hardware.link_gb_s:g} GB/s a direction")
    return lines


def _speculation(spec: Speculation | None) -> str:
    if spec is None:
        return "no speculative decoding"
    cost = "the MTP layer is read once a draft token" if spec.uses_mtp_layer else "drafting taken as free"
    return f"speculation: {spec.draft_tokens} draft tokens, {spec.tokens_per_step:g} tokens a step; {cost}"
