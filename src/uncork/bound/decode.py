"""The least time of one decoding step, term by term, and the three tiers made of it.

silicon: the largest of reading memory, computing and the collectives' physical floor. Never beaten.
fabric:  the larger of memory and compute, plus the collectives as this host (or a table) takes them.
         Beaten only where an engine hides communication behind work.
engine:  the same with memory at the share of its peak that a copy achieves, plus a floor a layer that the
         best engines known still pay for launching and synchronising kernels.
"""

import math

from msgspec.structs import replace

from uncork.bound import caches, fabric
from uncork.bound.assumptions import assumptions
from uncork.bound.hardware import peak_tflops
from uncork.bound.layout import UNREAD, check_parallel, fit, share_of
from uncork.errors import BadInput
from uncork.model.bound import (
    Bound,
    Curve,
    Hardware,
    ModelBytes,
    Parallel,
    Role,
    Speculation,
    Step,
    Tier,
)

# Calibrated residual a layer, best published run of each family: (TPOT - memory - collectives) / layers on
# InferenceX rows at concurrency 4-8, and rtx6kpro's best GLM-5.2 host for latent attention.
KERNEL_FLOOR_US = {"dense": 44.0, "moe": 48.0, "mla-moe": 48.0, "hybrid": 48.0}
# The best share of peak bandwidth that a device copy reached in public measurements (0.83-0.93).
COPY_SHARE = 0.93


def distinct_experts(experts: int, chosen: int, tokens: float) -> tuple[float, float]:
    """How many different experts of a layer `tokens` tokens touch: (the fewest, expected if chosen uniformly)."""
    if not experts:
        return 0.0, 0.0
    return float(chosen), experts * (1 - (1 - chosen / experts) ** max(tokens, 1.0))


def step_times(
    model: ModelBytes,
    hardware: Hardware,
    parallel: Parallel,
    context: float,
    batch: float,
    kv_format: str,
    curve: Curve | None,
    *,
    uniform: bool,
    tokens_per_sequence: int = 1,
) -> Step:
    """The terms of one forward pass of `batch` sequences (over all ranks) at `context` cached tokens each."""
    local = max(1.0, batch / parallel.pp / parallel.dp)  # sequences of the fullest rank in one pass
    tokens = local * tokens_per_sequence
    # Expert parallelism over data-parallel ranks sees the tokens of all of them.
    routed_tokens = tokens * max(1, parallel.ep // parallel.tp)
    fewest, expected = distinct_experts(model.experts, model.experts_per_token, routed_tokens)
    distinct = expected if uniform else fewest
    per_ns = hardware.bandwidth_gb_s * 1e6  # bytes a millisecond
    weights, ideal = _weight_bytes(model, parallel, distinct)
    kv = local * caches.read_bytes(model, kv_format, int(context), parallel)
    floor_us, curve_us = _collective_us(model, hardware, parallel, tokens, curve)
    memory_ms = (weights + kv) / per_ns
    share = hardware.copy_share or (1.0 if hardware.kind == "cpu" else COPY_SHARE)
    layer_us = 0.0 if hardware.kind == "cpu" else KERNEL_FLOOR_US[model.family]
    return Step(
        distinct_experts=distinct,
        read_bytes=weights + kv,
        ideal_ms=ideal / per_ns,
        replication_ms=(weights - ideal) / per_ns,
        kv_ms=kv / per_ns,
        compute_ms=_compute_ms(model, hardware, parallel, tokens, context),
        collective_floor_ms=floor_us / 1e3,
        collective_ms=curve_us / 1e3,
        bandwidth_loss_ms=memory_ms / share - memory_ms,
        kernel_floor_ms=model.layers * layer_us / 1e3,
    )


def _weight_bytes(model: ModelBytes, parallel: Parallel, distinct: float) -> tuple[float, float]:
    """(bytes that the busiest rank reads in one pass, the same spread evenly over all ranks of a stage)."""
    busiest = total = 0.0
    for part in model.parts:
        if part.mtp or part.role in UNREAD:
            continue
        if part.role is not Role.ROUTED:
            busiest += part.bytes * share_of(part, model, parallel)
            total += part.bytes
            continue
        one = part.bytes / model.experts
        holders = max(parallel.tp, parallel.ep) / parallel.ep  # ranks that share one expert
        # Some rank holds at least an even share of the touched experts, and never less than one.
        busiest += max(distinct / parallel.ep, 1.0) * one / holders
        total += distinct * one
    return busiest, total / (parallel.tp * parallel.dp)


def _compute_ms(
    model: ModelBytes, hardware: Hardware, parallel: Parallel, tokens: float, context: float
) -> float:
    """Matrix work at dense peak; 0 where no peak is known, which leaves the bound safe."""
    total_ms = 0.0
    for part in model.parts:
        peak = peak_tflops(hardware, part.bits)
        if part.mtp or part.role in UNREAD or peak is None:
            continue
        parameters = part.parameters * share_of(part, model, parallel)
        work = tokens
        if part.role is Role.ROUTED:
            work = tokens * max(1, parallel.ep // parallel.tp) * model.experts_per_token / model.experts
        total_ms += 2 * parameters * work / (peak * 1e9)
    peak = peak_tflops(hardware, 8)
    if peak is not None:
        total_ms += tokens * caches.attention_flops(model, context) / parallel.tp / (peak * 1e9)
    return total_ms


def _collective_us(
    model: ModelBytes, hardware: Hardware, parallel: Parallel, tokens: float, curve: Curve | None
) -> tuple[float, float]:
    """(physical floor, as the curve says) of all collectives of one pass, in microseconds."""
    size = tokens * model.hidden * 2  # BF16 activations
    floor = by_curve = 0.0
    exchanged = parallel.ep > 1 and parallel.dp > 1
    reduces = model.all_reduces - (model.moe_layers if exchanged else 0)
    if parallel.tp > 1:
        one = fabric.all_reduce_floor_us(hardware, parallel.tp, size)
        floor += reduces * one
        by_curve += reduces * max(one, fabric.curve_us(curve, size) if curve else one)
    if exchanged:
        # Dispatch and combine; each token goes to at most `experts_per_token` other ranks.
        crossing = size * min(model.experts_per_token, parallel.ep - 1)
        one = 2 * model.moe_layers * fabric.send_floor_us(hardware, crossing)
        floor, by_curve = floor + one, by_curve + one
    if parallel.dcp > 1:
        layers = sum(cache.layers for cache in model.caches if cache.kind != "state")
        one = layers * fabric.flag_us(hardware)
        floor, by_curve = (
            floor + one,
            by_curve + max(one, layers * fabric.curve_us(curve, size) if curve else one),
        )
    if parallel.pp > 1:
        one = (parallel.pp - 1) * fabric.send_floor_us(hardware, size)
        floor, by_curve = floor + one, by_curve + one
    return floor, by_curve


def pass_ms(step: Step) -> tuple[float, float, float, float]:
    """A step's time by (ideal sharding, silicon, fabric, engine)."""
    memory = step.ideal_ms + step.replication_ms + step.kv_ms
    ideal = max(step.ideal_ms + step.kv_ms, step.compute_ms)
    silicon = max(memory, step.compute_ms, step.collective_floor_ms)
    fabric_ms = max(memory, step.compute_ms) + step.collective_ms
    engine = max(memory + step.bandwidth_loss_ms, step.compute_ms) + step.collective_ms + step.kernel_floor_ms
    return tuple(ms + step.draft_ms for ms in (ideal, silicon, fabric_ms, engine))  # type: ignore[return-value]


def _draft_ms(model: ModelBytes, hardware: Hardware, parallel: Parallel, spec: Speculation) -> float:
    """Drafting reads the MTP layer (its chosen experts only) and the output layer once a draft token."""
    if not spec.uses_mtp_layer:
        return 0.0
    read = 0.0
    for part in model.parts:
        copied = part.mtp and part.role in {Role.HEAD, Role.EMBEDDING}  # the same matrix as the model's own
        if (part.mtp and not copied) or (part.role is Role.HEAD and not part.mtp):
            chosen = model.experts_per_token / model.experts if part.role is Role.ROUTED else 1.0
            read += part.bytes * chosen / (parallel.tp * max(1, parallel.ep // parallel.tp))
    return spec.draft_tokens * read / (hardware.bandwidth_gb_s * 1e6)


def decode_bound(
    model: ModelBytes,
    hardware: Hardware,
    parallel: Parallel,
    context_len: int,
    concurrency: int,
    *,
    kv_dtype: str = "auto",
    curve: Curve | None = None,
    speculation: Speculation | None = None,
    max_num_seqs: int | None = None,
    memory_share: float = 1.0,
    count: int | None = None,
) -> Bound:
    """The tiers for `concurrency` sequences of `context_len` cached tokens each, in tokens/s.

    `curve` is this host's all-reduce; without one a published table stands in and says so. `memory_share` is
    the part of memory an engine may use. Raises BadInput on an impossible layout, Refused where it does not fit.
    """
    check_parallel(model, parallel, count)
    _check(concurrency, context_len, memory_share, max_num_seqs, speculation)
    kv_format = caches.kv_format_of(model, kv_dtype)
    curve = curve or fabric.foreign_curve(hardware, parallel.tp)
    sequences, kv_tokens = fit(model, hardware, parallel, context_len, kv_format, memory_share)
    batch = float(min(concurrency, max_num_seqs or concurrency))
    if sequences is not None:
        batch = max(1.0, min(batch, float(math.floor(sequences))))
    best, uniform = _steps(model, hardware, parallel, context_len, batch, kv_format, curve, speculation)
    per_step = speculation.tokens_per_step if speculation else 1.0
    tiers = [_tier(a, b, batch, per_step) for a, b in zip(pass_ms(best), pass_ms(uniform), strict=True)]
    return Bound(
        model=model.name,
        hardware=hardware.name,
        parallel=parallel,
        context_len=context_len,
        concurrency=concurrency,
        batch=batch,
        kv_format=kv_format,
        kv_tokens=kv_tokens,
        kv_bytes_per_token=caches.bytes_per_token(model, kv_format),
        ideal=tiers[0],
        silicon=tiers[1],
        fabric=tiers[2],
        engine=tiers[3],
        best=best,
        uniform=uniform,
        tokens_per_step=per_step,
        assumptions=assumptions(
            model,
            hardware,
            parallel,
            kv_format,
            curve,
            speculation,
            batch=batch,
            concurrency=concurrency,
            count=count,
            memory_share=memory_share,
        ),
    )


def _check(
    concurrency: int,
    context_len: int,
    memory_share: float,
    max_num_seqs: int | None,
    speculation: Speculation | None,
) -> None:
    if concurrency < 1 or context_len < 0:
        raise BadInput("--concurrency must be at least 1 and --context at least 0")
    if not 0 < memory_share <= 1:
        raise BadInput(f"--memory-share: {memory_share:g} is not a share of memory (above 0, at most 1)")
    if max_num_seqs is not None and max_num_seqs < 1:
        raise BadInput(f"--max-num-seqs: {max_num_seqs} is not a number of sequences")
    if speculation and not 1 <= speculation.tokens_per_step <= speculation.draft_tokens + 1:
        raise BadInput(
            f"--accept: {speculation.tokens_per_step:g} tokens a step cannot come from"
            f" {speculation.draft_tokens} draft tokens"
        )


def _steps(
    model: ModelBytes,
    hardware: Hardware,
    parallel: Parallel,
    context_len: int,
    batch: float,
    kv_format: str,
    curve: Curve | None,
    speculation: Speculation | None,
) -> tuple[Step, Step]:
    """One pass with the fewest distinct experts, and one with uniform routing."""
    per_pass = speculation.draft_tokens + 1 if speculation else 1
    given = (model, hardware, parallel, context_len, batch, kv_format, curve)
    best = step_times(*given, uniform=False, tokens_per_sequence=per_pass)
    uniform = step_times(*given, uniform=True, tokens_per_sequence=per_pass)
    if speculation:
        draft = _draft_ms(model, hardware, parallel, speculation)
        best, uniform = replace(best, draft_ms=draft), replace(uniform, draft_ms=draft)
    return best, uniform


def _tier(best_ms: float, uniform_ms: float, batch: float, per_step: float) -> Tier:
    best, even = best_ms / per_step, uniform_ms / per_step
    return Tier(best, batch * 1e3 / best, 1e3 / best, even, batch * 1e3 / even, 1e3 / even)
