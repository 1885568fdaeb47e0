"""CUDA memory."""

import re

from uncork.explorers import engine_process, reading, serving
from uncork.host import Host
from uncork.model.facts.cuda_memory import CudaMemoryFacts
from uncork.model.unknown import Unknown

CACHE_NAMES = (
    "CUDA_CACHE_PATH",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "VLLM_CACHE_ROOT",
    "SGLANG_CACHE_DIR",
    "HF_HOME",
)


def explore(host: Host) -> CudaMemoryFacts:
    """Read free memory and where kernel caches lie."""
    return CudaMemoryFacts(
        available_bytes=_available(host),
        node_free_bytes=_node_free(host),
        cache_mounts=_cache_mounts(host),
        kernel_release=reading.text(host, "/proc/sys/kernel/osrelease"),
    )


def _available(host: Host) -> int | Unknown:
    text = host.read("/proc/meminfo")
    if isinstance(text, Unknown):
        return text
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else Unknown("/proc/meminfo has no MemAvailable")


def _node_free(host: Host) -> dict[int, int] | Unknown:
    found = {}
    for path in host.glob("/sys/devices/system/node/node[0-9]*/meminfo"):
        text = host.read(path)
        if not isinstance(text, Unknown) and (match := re.search(r"Node (\d+) MemFree:\s+(\d+) kB", text)):
            found[int(match[1])] = int(match[2]) * 1024
    return found or Unknown("no node tells its free memory")


def _cache_mounts(host: Host) -> dict[str, str]:
    found: dict[str, str] = {}
    for pid in serving.pids(host)[:1]:
        environ = engine_process.environ(host, pid)
        mounts = host.read(f"/proc/{pid}/mounts")
        if isinstance(environ, Unknown) or isinstance(mounts, Unknown):
            continue
        points = [line.split()[1:3] for line in mounts.splitlines() if line.count(" ") > 2]
        for name in CACHE_NAMES:
            if folder := environ.get(name):
                above = [
                    (len(at), kind) for at, kind in points if (folder + "/").startswith(at.rstrip("/") + "/")
                ]
                found[f"{name}={folder}"] = max(above)[1] if above else "unknown"
    return found
