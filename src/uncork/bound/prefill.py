"""The least time from a prompt to its first token, and what that leaves of throughput."""

from uncork.bound import caches, fabric
from uncork.bound.decode import distinct_experts
from uncork.bound.hardware import peak_tflops
from uncork.bound.layout import UNREAD, check_parallel, share_of
from uncork.errors import BadInput
from uncork.model.bound import Bound, Curve, Hardware, ModelBytes, Parallel, Prefill, Role


def prefill_bound(
    model: ModelBytes,
    hardware: Hardware,
    parallel: Parallel,
    prompt_len: int,
    *,
    curve: Curve | None = None,
    count: int | None = None,
) -> Prefill:
    """The least time of one prompt of `prompt_len` tokens, alone on its replica, nothing cached.

    silicon is the largest of computing at dense peak, reading the weights once and the collectives' floor;
    fabric adds the collectives as `curve` says. Raises BadInput on an impossible layout or an empty prompt.
    """
    check_parallel(model, parallel, count)
    if prompt_len < 1:
        raise BadInput("the prompt must have at least one token")
    curve = curve or fabric.foreign_curve(hardware, parallel.tp)
    compute = _compute_ms(model, hardware, parallel, prompt_len)
    memory = _memory_ms(model, hardware, parallel, prompt_len)
    size = prompt_len * model.hidden * 2
    floor = slow = 0.0
    if parallel.tp > 1:
        one = fabric.all_reduce_floor_us(hardware, parallel.tp, size)
        floor = model.all_reduces * one / 1e3
        slow = model.all_reduces * max(one, fabric.curve_us(curve, size) if curve else one) / 1e3
    if parallel.pp > 1:
        hop = (parallel.pp - 1) * fabric.send_floor_us(hardware, size) / 1e3
        floor, slow = floor + hop, slow + hop
    lines = ["one prompt alone, nothing cached, causal attention, output layer for the last token only"]
    if not hardware.peaks_tflops:
        lines.append("no matrix rate is known for this device, so compute is left out (the bound stays safe)")
    return Prefill(
        prompt_len=prompt_len,
        compute_ms=compute,
        memory_ms=memory,
        collective_floor_ms=floor,
        collective_ms=slow,
        silicon_ms=max(compute, memory, floor),
        fabric_ms=max(compute, memory) + slow,
        assumptions=tuple(lines),
    )


def _ranks(parallel: Parallel) -> int:
    """A long prompt keeps every stage of a pipeline busy in chunks, so all ranks of its replica can work at once."""
    return parallel.tp * parallel.pp


def _compute_ms(model: ModelBytes, hardware: Hardware, parallel: Parallel, prompt_len: int) -> float:
    total_ms = 0.0
    for part in model.parts:
        peak = peak_tflops(hardware, part.bits)
        if part.mtp or part.role in UNREAD or peak is None:
            continue
        share = share_of(part, model, parallel) / parallel.pp
        tokens = 1 if part.role is Role.HEAD else prompt_len
        if part.role is Role.ROUTED:
            tokens_chosen = prompt_len * model.experts_per_token / model.experts
            total_ms += 2 * part.parameters * share * tokens_chosen / (peak * 1e9)
        else:
            total_ms += 2 * part.parameters * share * tokens / (peak * 1e9)
    peak = peak_tflops(hardware, 8)
    if peak is not None:
        flops = caches.prompt_flops(model, prompt_len)
        total_ms += flops / _ranks(parallel) / (peak * 1e9)
    return total_ms


def _memory_ms(model: ModelBytes, hardware: Hardware, parallel: Parallel, prompt_len: int) -> float:
    fewest, _ = distinct_experts(model.experts, model.experts_per_token, prompt_len)
    read = 0.0
    for part in model.parts:
        if not part.mtp and part.role not in UNREAD:
            touched = fewest / model.experts if part.role is Role.ROUTED else 1.0
            read += part.bytes * touched * share_of(part, model, parallel) / parallel.pp
    return read / (hardware.bandwidth_gb_s * 1e6)


def _prompts_per_step(bound: Bound, output_len: int) -> float:
    """How many prompts one replica takes in while it makes one decoding step, in steady state."""
    if output_len < 1:
        raise BadInput("the answer must have at least one token")
    return bound.batch * bound.tokens_per_step / bound.parallel.dp / output_len


def throughput_limit_tok_s(bound: Bound, prefill: Prefill, output_len: int) -> float:
    """Output tokens a second over all users, prompts included, that nothing can beat.

    Prompts share steps with decoding (chunked prefill), so their weights cost no second reading and only the
    largest of memory, compute and the collectives' floor counts.
    """
    prompts = _prompts_per_step(bound, output_len)
    step = bound.best
    memory = step.ideal_ms + step.replication_ms + step.kv_ms
    compute = step.compute_ms + prompts * prefill.compute_ms
    floor = step.collective_floor_ms + prompts * prefill.collective_floor_ms
    return bound.batch * bound.tokens_per_step * 1e3 / (max(memory, compute, floor) + step.draft_ms)


def throughput_serial_tok_s(bound: Bound, prefill: Prefill, output_len: int) -> float:
    """The same with uniform routing, collectives by the curve, and prompts one after another between steps."""
    step_ms = bound.fabric.ms_per_token_uniform * bound.tokens_per_step
    prompts_ms = _prompts_per_step(bound, output_len) * prefill.fabric_ms
    return bound.batch * bound.tokens_per_step * 1e3 / (step_ms + prompts_ms)
