"""What attached texts say of limits and devices; empty on a machine."""

import re

from uncork.explorers import reading
from uncork.host import Host
from uncork.model.facts.container import Said
from uncork.parsers import container_text, limits, nccl_log, statements, ucx

_SHARED_MEMORY = re.compile(r"posix_fallocate failed|shared memory segment|/dev/shm/nccl")
_REGISTER = re.compile(r"ibv_reg_\w*mr\w* failed|reg_mr.*Cannot allocate memory", re.I)
_SHM_FLAG = re.compile(r"shm[-_]size[=: ]+[\"']?(\d{1,12})([kKmMgG]?)[bB]?\b")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def said(host: Host) -> Said:
    """Every kind of text that speaks of a container's limits."""
    words = [statements.parse(text) for text in reading.attached(host, "statements")]
    texts = [container_text.parse(text) for text in reading.attached(host, "container")]
    logs = [nccl_log.parse(text) for text in reading.attached(host, "nccl-log")]
    engine = [container_text.parse(text) for text in reading.attached(host, "engine-log")]
    unclaimed = [container_text.parse(text) for text in reading.attached(host, "unrecognised")]
    failures = [w.text for log in logs for w in log.warnings if _SHARED_MEMORY.search(w.text)]
    shm: list[tuple[int | None, str]] = [
        (w.shm_bytes, w.lines.get("shm_bytes", "")) for w in words if w.shm_bytes is not None
    ]
    shm += [(t.shm_bytes, f"ShmSize {t.shm_bytes}") for t in texts if t.shm_bytes is not None]
    return Said(
        shm_bytes=shm[0][0] if shm else None,
        shm_line=failures[0] if failures else shm[0][1] if shm else "",
        shm_failed=bool(failures),
        cpu_limit=next((w.cpu_limit for w in words if w.cpu_limit is not None), _first_cpus(texts)),
        cpus_seen=next((w.cpus_seen for w in words if w.cpus_seen is not None), None),
        throttled_ratio=next((w.throttled_ratio for w in words if w.throttled_ratio is not None), None),
        pids_limit=next((t.pids_limit for t in texts if t.pids_limit is not None), None),
        threads_refused=tuple(line for t in (*texts, *engine, *unclaimed) for line in t.threads_refused),
        process_limit=next((t.nproc_limit for t in (*texts, *engine) if t.nproc_limit is not None), None),
        device_rules=tuple(f"{r.kind} {r.major}:{r.minor} {r.access}" for t in texts for r in t.nvidia_rules),
        locked=_locked(host),
        registration_failed=_registration(host, logs),
        nvml_unknown_error=_nvml(host),
    )


def _first_cpus(texts: list[container_text.Text]) -> float | None:
    return next((text.cpus for text in texts if text.cpus is not None), None)


def _flags(host: Host) -> list[tuple[int | None, str]]:
    found: list[tuple[int | None, str]] = []
    for text in reading.attached(host, "engine-command"):
        if match := _SHM_FLAG.search(text):
            found.append((int(match[1]) * _UNITS[match[2].lower()], match[0]))
    return found


def _locked(host: Host) -> tuple[tuple[str, int | None], ...]:
    found = []
    for name, hint, text in reading.attached_pieces(host, "limits"):
        for limit in limits.parse(text, hint):
            if limit.name == "locked memory":
                found.append((name, None if limit.soft == limits.UNLIMITED else limit.soft))
    for name, _, text in reading.attached_pieces(host, "ucx"):
        if (size := ucx.parse(text).locked_bytes) is not None:
            found.append((name, size))
    return tuple(found)


def _registration(host: Host, logs: list[nccl_log.Log]) -> str:
    for log in logs:
        for warning in log.warnings:
            if _REGISTER.search(warning.text):
                return warning.text
    for text in reading.attached(host, "ucx"):
        if failed := ucx.parse(text).registration_failed:
            return failed
    return ""


def _nvml(host: Host) -> str:
    for kind in ("nvidia-smi", "container", "statements", "unrecognised", "engine-log"):
        for text in reading.attached(host, kind):
            if match := re.search(r"^.*NVML: Unknown Error.*$", text, re.M):
                return match[0].strip()
    return ""
