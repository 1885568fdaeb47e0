"""P2P answers that vLLM and sglang keep on disk for ever, keyed by the list of devices only.

A stale "true" lets a server hang on a host that broke since; a stale "false" keeps its custom all-reduce off on
one that was repaired. They are reported, never deleted.
"""

import datetime
import os
from pathlib import Path

import msgspec

PATTERN = "gpu_p2p_access_cache_for_*.json"


class P2pCache(msgspec.Struct, frozen=True):
    """One cache file: where, whose, when it was written, and the pairs that it calls inaccessible."""

    path: str
    server: str
    written_s: float
    denied: tuple[str, ...]


def folders(environ: dict[str, str] | None = None, home: Path | None = None) -> dict[str, Path]:
    """Where each server keeps its cache (vLLM's VLLM_CACHE_ROOT, else ~/.cache)."""
    env = os.environ if environ is None else environ
    cache = Path(env.get("XDG_CACHE_HOME") or (home or Path.home()) / ".cache")
    return {
        "vLLM": Path(env.get("VLLM_CACHE_ROOT") or cache / "vllm"),
        "sglang": Path(env.get("SGLANG_CACHE_ROOT") or cache / "sglang"),
        "Aphrodite": cache / "aphrodite",
    }


def find(environ: dict[str, str] | None = None, home: Path | None = None) -> tuple[P2pCache, ...]:
    """Every cache file that this user's servers left."""
    found = []
    for server, folder in folders(environ, home).items():
        for path in sorted(folder.glob(PATTERN)):
            try:
                pairs = msgspec.json.decode(path.read_bytes(), type=dict[str, bool])
                written_s = path.stat().st_mtime
            except (OSError, msgspec.MsgspecError):
                continue
            denied = tuple(pair for pair, granted in pairs.items() if not granted)
            found.append(P2pCache(str(path), server, written_s, denied))
    return tuple(found)


def warnings(caches: tuple[P2pCache, ...], changed_s: float | None) -> tuple[str, ...]:
    """A line for each cache that is older than the last change of this host (the boot, where none is known)."""
    lines = []
    for cache in caches:
        if changed_s is not None and cache.written_s < changed_s:
            written = datetime.datetime.fromtimestamp(cache.written_s).strftime("%Y-%m-%d %H:%M")
            denied = f"{len(cache.denied)} pairs denied" if cache.denied else "all pairs granted"
            lines.append(
                f"{cache.server} keeps a P2P answer from {written} ({denied}), older than the last change of this "
                f"host: {cache.path}. Delete it before the server starts."
            )
    return tuple(lines)


def boot_s() -> float | None:
    """When this machine booted, seconds since the epoch."""
    try:
        text = Path("/proc/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    return next((float(line.split()[1]) for line in text.splitlines() if line.startswith("btime ")), None)
