"""CUDA's and PyTorch's variables in a server's environment."""

import re
from collections.abc import Iterator

from uncork.checks import (
    INFO,
    P0,
    P1,
    P2,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
)
from uncork.checks.engine.environment import environ
from uncork.checks.engine.servers import each_server, flag, name_of
from uncork.checks.gpus import gpus, lines, tensor_parallel, visible
from uncork.checks.hosts import known, seen
from uncork.model.facts import Facts
from uncork.model.facts.engine import Server
from uncork.model.unknown import is_unknown

_SLOW = (
    "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "HIP_LAUNCH_BLOCKING",
    "AMD_SERIALIZE_KERNEL",
)
_DEBUG = (
    "CUDA_DEVICE_WAITS_ON_EXCEPTION",
    "TORCH_USE_CUDA_DSA",
    "TORCH_SHOW_CPP_STACKTRACES",
    "NVTE_DEBUG",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
)
_NETWORK_FILE_SYSTEMS = (
    "nfs",
    "nfs4",
    "cifs",
    "fuse.juicefs",
    "lustre",
    "ceph",
    "fuse.s3fs",
    "fuse.gcsfuse",
    "9p",
    "beegfs",
    "gpfs",
)
# How far apart two GPUs are, from best to worst.
_DISTANCE = {"NV": 0, "PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}


@check("cuda.launch-blocking", P0, SERVICE_RESTART)
def launch_blocking(facts: Facts) -> Iterator[Verdict]:
    """Kernels are not launched one after the other for debugging.

    Effect: every launch waits for the one before: several times slower; without the caching allocator worse
    Sure: high
    Fix: unset the variable
    Undo: set it again
    Wrong when: somebody is looking for a fault right now
    Source: PyTorch documentation, CUDA environment variables; vLLM documentation, troubleshooting
    """

    def judge(server: Server) -> Iterator[Verdict]:
        variables = environ(server)
        slow = [n for n in _SLOW if variables.get(n, "0") not in ("", "0")]
        debug = [n for n in _DEBUG if variables.get(n, "0") not in ("", "0")]
        if slow:
            yield fails(f"{', '.join(slow)} is set", name_of(server), evidence=seen("environment", slow))
        elif debug:
            yield fails(
                f"{', '.join(debug)} is set",
                name_of(server),
                priority=P2,
                evidence=seen("environment", debug),
            )
        else:
            yield passes("kernels are launched freely", name_of(server))

    yield from each_server(facts, judge)


@check("cuda.alloc-conf", P2, SERVICE_RESTART)
def alloc_conf(facts: Facts) -> Iterator[Verdict]:
    """PyTorch's allocator is set as the engine can bear.

    Effect: fragmentation that ends in out of memory, or a feature that refuses to start
    Sure: medium
    Fix: unset it, or expandable_segments:True
    Undo: the former value
    Wrong when: the owner measured it
    Folklore: partly
    Source: PyTorch documentation, CUDA semantics, memory management; vLLM documentation, sleep mode
    """

    def judge(server: Server) -> Iterator[Verdict]:
        variables = environ(server)
        text = variables.get("PYTORCH_ALLOC_CONF") or variables.get("PYTORCH_CUDA_ALLOC_CONF", "")
        expandable = re.search(r"expandable_segments:\s*true", text, re.IGNORECASE)
        if expandable and flag(server, "enable-sleep-mode"):
            yield fails(
                "expandable segments do not go with sleep mode",
                name_of(server),
                priority=P1,
                evidence=seen("environment", text),
            )
        elif "max_split_size_mb" in text:
            yield fails(
                "max_split_size_mb was left behind", name_of(server), evidence=seen("environment", text)
            )
        else:
            yield passes(text or "as PyTorch ships it", name_of(server))

    yield from each_server(facts, judge)


@check("cuda.injection-tools", P1, SERVICE_RESTART)
def injected(facts: Facts) -> Iterator[Verdict]:
    """No profiler or shim sits between a server and CUDA.

    Effect: from little to many times slower, by the tool; vGPU shims made NCCL hang
    Sure: high
    Fix: take the variable out
    Undo: set it again
    Wrong when: somebody is profiling right now
    Source: CUPTI and NVTX injection documentation; HAMi reports
    """

    def judge(server: Server) -> Iterator[Verdict]:
        variables = {} if is_unknown(server.environ) else server.environ
        mapped = () if is_unknown(server.libraries) else server.libraries
        found = [n for n in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH") if variables.get(n)]
        found += [
            path
            for path in mapped
            if re.search(r"libToolsInjection|compute-sanitizer|libsanitizer-collection|libnvperf_host", path)
        ]
        preload = variables.get("LD_PRELOAD", "")
        shim = [
            path
            for path in (preload, *mapped)
            if re.search(r"libvgpu|hami|libcuda-control|vcuda", path, re.IGNORECASE)
        ]
        if not variables and not mapped:
            known(server.environ)
        if found:
            yield fails("a profiler is loaded", name_of(server), evidence=lines("maps", found))
        elif shim:
            yield fails("a vGPU shim is loaded", name_of(server), evidence=lines("maps", shim))
        else:
            yield passes("nothing sits between", name_of(server))

    yield from each_server(facts, judge)


@check("cuda.module-loading", P2, SERVICE_RESTART)
def module_loading(facts: Facts) -> Iterator[Verdict]:
    """CUDA loads kernels when they are first used.

    Effect: time to start, and memory of kernels nobody uses
    Sure: medium
    Fix: unset CUDA_MODULE_LOADING
    Undo: set it again
    Wrong when: it was chosen to keep a first use from meeting NCCL
    Source: CUDA programming guide, lazy loading
    """

    def judge(server: Server) -> Iterator[Verdict]:
        text = environ(server).get("CUDA_MODULE_LOADING", "")
        if text.upper() == "EAGER":
            yield fails("CUDA_MODULE_LOADING=EAGER", name_of(server), evidence=seen("environment", text))
        else:
            yield passes("kernels are loaded when used", name_of(server))

    yield from each_server(facts, judge)


@check("cuda.device-order", P1, SERVICE_RESTART)
def device_order(facts: Facts) -> Iterator[Verdict]:
    """With different GPUs, CUDA counts them as everything else does.

    Effect: the wrong GPU is pinned, measured or reset
    Sure: high
    Fix: CUDA_DEVICE_ORDER=PCI_BUS_ID
    Undo: unset it
    Wrong when: all GPUs are of one model
    Source: CUDA programming guide, environment variables
    """
    names = {gpu.name for gpu in gpus(facts, "nvidia") if not is_unknown(gpu.name)}
    if len(names) < 2:
        yield not_applicable("all GPUs are of one model" if names else "no NVIDIA GPU")
        return

    def judge(server: Server) -> Iterator[Verdict]:
        variables = environ(server)
        chosen = variables.get("CUDA_VISIBLE_DEVICES", "")
        if variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or chosen.startswith("GPU-"):
            yield passes("GPUs are named by bus or UUID", name_of(server))
        else:
            priority = P1 if chosen else P2
            yield fails(
                "different GPUs, and CUDA_DEVICE_ORDER is not set",
                name_of(server),
                priority=priority,
                evidence=seen("models", sorted(names)),
            )

    yield from each_server(facts, judge)


@check("cuda.visible-devices-topology", P1, SERVICE_RESTART)
def closest(facts: Facts) -> Iterator[Verdict]:
    """A group is made of the GPUs that stand closest.

    Effect: every all-reduce goes the longer way
    Sure: high
    Fix: choose and order CUDA_VISIBLE_DEVICES by nvidia-smi topo -m
    Undo: the former choice
    Wrong when: the closer GPUs are taken
    Source: NCCL user guide, troubleshooting; NVML API reference, topology
    """

    def judge(server: Server) -> Iterator[Verdict]:
        wide, cards = tensor_parallel(server), gpus(facts)
        if wide < 2 or wide >= len(cards):
            yield not_applicable("one GPU, or all of them", name_of(server))
            return
        known(facts.p2p.levels)
        group = [gpu.index for gpu in visible(server, cards)][:wide]
        mine = _worst(facts, group)
        best = min(_worst(facts, list(range(at, at + wide))) for at in range(len(cards) - wide + 1))
        if mine > best:
            words = f"GPUs {group} are further apart than others of this host"
            yield fails(words, name_of(server), evidence=seen("topo -m", words))
        else:
            yield passes(f"GPUs {group} stand closest", name_of(server))

    yield from each_server(facts, judge)


def _worst(facts: Facts, group: list[int]) -> int:
    """The largest distance inside a group of neighbours."""
    levels = known(facts.p2p.levels)
    cells = [levels[a][b] for a in group for b in group if a != b and a < len(levels) and b < len(levels[a])]
    words = [cell for cell in cells if cell is not None and not is_unknown(cell)]
    return max((_DISTANCE.get("NV" if word.startswith("NV") else word, 5) for word in words), default=0)


@check("cuda.device-max-connections", INFO, SERVICE_RESTART)
def max_connections(facts: Facts) -> Iterator[Verdict]:
    """CUDA_DEVICE_MAX_CONNECTIONS is the engine's own choice.

    Effect: 1 puts all streams in one queue, and nothing overlaps
    Sure: medium
    Fix: unset it
    Undo: set it again
    Wrong when: training with Megatron
    Folklore: partly: copied from training recipes
    Source: SGLang sources, which set 8; CUDA programming guide, environment variables
    """

    def judge(server: Server) -> Iterator[Verdict]:
        text = environ(server).get("CUDA_DEVICE_MAX_CONNECTIONS", "")
        if text == "1":
            yield fails(
                "CUDA_DEVICE_MAX_CONNECTIONS=1",
                name_of(server),
                priority=P2,
                evidence=seen("environment", text),
            )
        else:
            yield passes(text or "not set", name_of(server))

    yield from each_server(facts, judge)


@check("cuda.jit-cache", P2, SERVICE_RESTART)
def jit_cache(facts: Facts) -> Iterator[Verdict]:
    """Compiled kernels are kept, on a local disk.

    Effect: minutes at start, first requests that wait; a shared folder mixes versions
    Sure: medium
    Fix: a local volume for the cache
    Undo: the former path
    Wrong when: starts do not matter
    Source: vLLM documentation, caches; CUDA programming guide, CUDA_CACHE_*
    """

    def judge(server: Server) -> Iterator[Verdict]:
        variables = environ(server)
        if variables.get("CUDA_CACHE_DISABLE", "0") not in ("", "0"):
            yield fails(
                "CUDA_CACHE_DISABLE is set",
                name_of(server),
                evidence=seen("environment", "CUDA_CACHE_DISABLE"),
            )
            return
        far = [
            f"{where} ({kind})"
            for where, kind in facts.cuda_memory.cache_mounts.items()
            if kind in _NETWORK_FILE_SYSTEMS and not where.startswith("HF_HOME")
        ]
        if far:
            yield fails(
                f"kernels are kept on a network file system: {far[0]}",
                name_of(server),
                evidence=lines("mounts", far),
            )
        else:
            yield passes("caches are as shipped or local", name_of(server))

    yield from each_server(facts, judge)


@check("cuda.mps", P1, SERVICE_RESTART)
def mps(facts: Facts) -> Iterator[Verdict]:
    """No share of MPS limits a server.

    Effect: a thread percentage halves throughput without a word
    Sure: high
    Fix: unset CUDA_MPS_*; stop MPS where one engine owns the GPU
    Undo: set it again
    Wrong when: several engines share a GPU on purpose
    Folklore: partly: MPS makes one engine no faster
    Source: NVIDIA MPS documentation
    """

    def judge(server: Server) -> Iterator[Verdict]:
        variables = environ(server)
        share = variables.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")
        running = any(other.kind == "mps" for other in known(facts.engine.others))
        if share and share.split(".")[0] != "100":
            yield fails(
                f"MPS gives it {share} % of the threads",
                name_of(server),
                evidence=seen("environment", share),
            )
        elif running:
            yield fails(
                "MPS runs beside it",
                name_of(server),
                priority=P2,
                evidence=seen("processes", "nvidia-cuda-mps-control"),
            )
        else:
            yield passes("no MPS", name_of(server))

    yield from each_server(facts, judge)
