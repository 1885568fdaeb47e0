"""Memory of GPUs: what is taken, what is left, what is pinned."""

import re
from collections.abc import Iterator

from uncork.checks import (
    INFO,
    NONE,
    P1,
    P2,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
)
from uncork.checks.engine.servers import each_server, name_of
from uncork.checks.gpus import each, gpus, ranks, subject_of, tensor_parallel, visible
from uncork.checks.hosts import known, seen, sizes
from uncork.checks.pcie.links import guest
from uncork.model.facts import Facts
from uncork.model.facts.driver import Gpu
from uncork.model.facts.engine import Server
from uncork.model.unknown import is_unknown

GIB = 1 << 30


@check("cuda.bar1-exhaustion", P1, NONE)
def bar1_use(facts: Facts) -> Iterator[Verdict]:
    """BAR1 has room for mappings of peers and NICs.

    Effect: peer and RDMA mappings fail or fall back
    Sure: medium
    Fix: a larger BAR1 (uefi.resizable-bar)
    Undo: nothing to undo
    Wrong when: a guest, whose readings are the hypervisor's
    Source: NVML API reference, BAR1 memory info; GPUDirect Storage troubleshooting guide
    """
    if guest(facts):
        yield not_applicable("a virtual machine: the window is the hypervisor's")
        return

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        total, used = known(gpu.bar1_total_bytes), known(gpu.bar1_used_bytes)
        words = f"{sizes(used)} of {sizes(total)}"
        # An open-ended mapping fills a small window as shipped; only where peers or NICs map does it matter.
        if total and used > 0.8 * total and gpu.vendor == "nvidia":
            yield fails(f"BAR1 is {used / total:.0%} full", subject_of(gpu), evidence=seen("BAR1", words))
        else:
            yield passes(f"BAR1 holds {words}", subject_of(gpu))

    yield from each(gpus(facts), subject_of, judge)


@check("cuda.free-before-start", P1, NONE)
def free(facts: Facts) -> Iterator[Verdict]:
    """With no server running, the GPUs' memory is free.

    Effect: an engine sizes its KV cache by what is free: a leak makes it smaller
    Sure: high
    Fix: end the process that holds it; a context without a process takes a GPU reset
    Undo: nothing to undo
    Wrong when: another program owns the GPU
    Source: NVML API reference, memory info; vLLM documentation
    """
    if known(facts.engine.servers):
        yield not_applicable("a server runs: its memory is its own")
        return

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        used = known(gpu.memory_used_bytes)
        holders = () if is_unknown(gpu.processes) else gpu.processes
        if used > GIB:
            holder = holders[0] if holders else None
            who = f"held by {holder.name or 'process'} {holder.pid}" if holder else "and no process is seen"
            # A desktop's share is what it draws with; the owner of the screen knows of it.
            drawn = bool(holders) and all(one.kind == "graphics" for one in holders)
            yield fails(
                f"{sizes(used)} are in use, {who}",
                subject_of(gpu),
                priority=P2 if drawn else P1,
                evidence=seen("memory used", sizes(used)),
            )
        else:
            yield passes(f"{sizes(used)} in use", subject_of(gpu))

    yield from each(gpus(facts), subject_of, judge)


@check("cuda.mem-imbalance", P1, SERVICE_RESTART)
def imbalance(facts: Facts) -> Iterator[Verdict]:
    """Ranks of one group have the same memory left.

    Effect: the smallest decides the KV cache of all; SGLang refuses a large difference
    Sure: high
    Fix: move the other program, or choose other GPUs
    Undo: nothing to undo
    Wrong when: rank 0 holds a little more as it always does
    Source: SGLang documentation, server arguments
    """

    def judge(server: Server) -> Iterator[Verdict]:
        group = visible(server, gpus(facts))
        if tensor_parallel(server) < 2 or len(group) < 2:
            yield not_applicable("one GPU", name_of(server))
            return
        left = [known(gpu.memory_free_bytes) for gpu in group]
        spread = max(left) - min(left)
        if spread > max(0.05 * known(group[0].memory_total_bytes), 2 * GIB):
            words = f"between {sizes(min(left))} and {sizes(max(left))} are free"
            yield fails(words, name_of(server), evidence=seen("free memory", words))
        else:
            yield passes(f"{sizes(min(left))} free on each", name_of(server))

    yield from each_server(facts, judge)


@check("cuda.host-pin-budget", P1, SERVICE_RESTART)
def pinned(facts: Facts) -> Iterator[Verdict]:
    """Pinned host memory leaves room for everything else.

    Effect: out of memory or remote pages; pinning 700 GB once blocked CUDA and NVML of all neighbours for 12 minutes
    Sure: medium
    Fix: a smaller --cpu-offload-gb, --swap-space or --hicache-size
    Undo: the former size
    Wrong when: memory that is pinned already is not available any more and counts twice here
    Source: TensorRT-LLM issue 17429; vLLM and SGLang engine arguments
    """

    def judge(server: Server) -> Iterator[Verdict]:
        asked = _pin_gib(server)
        if not asked:
            yield passes("nothing is offloaded to the host", name_of(server))
            return
        wanted = int(asked * GIB) * ranks(server)
        available = known(facts.cuda_memory.available_bytes)
        words = f"{sizes(wanted)} pinned, {sizes(available)} available"
        held = bool(server.processes)
        if wanted > 0.7 * (available + (wanted if held else 0)):
            yield fails(words, name_of(server), evidence=seen("command line", words))
        else:
            yield passes(words, name_of(server))

    yield from each_server(facts, judge)


def _pin_gib(server: Server) -> float:
    """GiB of host memory that each rank was told to pin."""
    total = 0.0
    for name in ("cpu-offload-gb", "swap-space", "hicache-size", "kv-offloading-size"):
        text = server.flags.get(name, "")
        if re.fullmatch(r"\d+(\.\d+)?", text):
            total += float(text)
    return total


@check("cuda.uvm-oversubscription", P1, SERVICE_RESTART)
def oversubscribed(facts: Facts) -> Iterator[Verdict]:
    """No server relies on memory that moves between host and GPU by page faults.

    Effect: page faults that thrash; a deadlock with HMM on 595 drivers
    Sure: low
    Fix: a smaller footprint
    Undo: nothing to undo
    Wrong when: memory that is only reserved
    Source: open-gpu-kernel-modules issue 1223
    """

    def judge(server: Server) -> Iterator[Verdict]:
        environ = known(server.environ)
        managed = [
            n
            for n in ("GGML_CUDA_ENABLE_UNIFIED_MEMORY", "VLLM_USE_UVA", "TF_FORCE_UNIFIED_MEMORY")
            if environ.get(n, "0") not in ("", "0")
        ]
        full = [
            gpu
            for gpu in visible(server, gpus(facts))
            if not is_unknown(gpu.memory_free_bytes) and gpu.memory_free_bytes < GIB // 4
        ]
        if managed and full:
            yield fails(
                f"{managed[0]} is set, and a GPU is full",
                name_of(server),
                evidence=seen("environment", managed),
            )
        else:
            yield passes("no managed memory beyond the GPU's own", name_of(server))

    yield from each_server(facts, judge)


@check("cuda.addressing-mode", INFO, NONE)
def addressing(facts: Facts) -> Iterator[Verdict]:
    """How GPU and host share addresses.

    Effect: background for driver.uvm-hmm
    Sure: high
    Fix: none
    Undo: nothing to undo
    Wrong when: never
    Source: NVML API reference, addressing mode
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        yield passes(f"addressing mode {known(gpu.addressing_mode)}", subject_of(gpu))

    yield from each(gpus(facts, "nvidia"), subject_of, judge)


@check("cuda.peer-limit", P1, SERVICE_RESTART)
def peer_limit(facts: Facts) -> Iterator[Verdict]:
    """No process needs more than eight peers over PCIe.

    Effect: cudaDeviceEnablePeerAccess fails for the ninth
    Sure: high
    Fix: groups of eight
    Undo: nothing to undo
    Wrong when: NVSwitch, which has no such limit
    Source: CUDA runtime API, peer device memory access; rtx6kpro measurements
    """
    warnings = () if is_unknown(facts.p2p.log) else facts.p2p.log.warnings
    if full := [text for _, text in warnings if "peer mapping resources exhausted" in text]:
        yield fails("CUDA has no room for another peer", evidence=seen("NCCL log", full[0]))
        return
    cards = gpus(facts)
    if len(cards) <= 9:
        yield not_applicable("nine GPUs at most")
        return

    def judge(server: Server) -> Iterator[Verdict]:
        wide = tensor_parallel(server)
        if wide > 9 and not any(not is_unknown(g.fabric_state) and g.fabric_state == 3 for g in cards):
            yield fails(
                f"{wide} GPUs in one group without NVSwitch",
                name_of(server),
                evidence=seen("command line", wide),
            )
        else:
            yield passes(f"{wide} GPUs in one group", name_of(server))

    yield from each_server(facts, judge)
