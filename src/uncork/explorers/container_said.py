"""What attached texts say of limits and devices; empty on a machine."""

import re

from uncork.explorers import reading
from uncork.host import Host
from uncork.host.redact import cut
from uncork.model.facts.container import Said
from uncork.model.unknown import Unknown
from uncork.parsers import container_text, limits, nccl_log, statements, ucx

# Where people leave error lines, in the order of trust.
_LOGS = ("nccl-log", "engine-log", "container", "application-log", "statements", "unrecognised")
_COMMANDS = ("engine-command", "container", "history", "unrecognised")
_SHARED_MEMORY = re.compile(
    r"posix_fallocate failed|[Ee]rror while creating shared memory segment|/dev/shm/nccl\S* .*(No space|failed)"
    r"|insufficient shared memory \(shm\)|[Bb]us error.*shared memory|No space left on device.*/dev/shm/"
)
_REGISTER = re.compile(r"ibv_(?:reg_\w*mr|create_[cq]\w)\w* failed|reg_mr.*Cannot allocate memory", re.I)
_FILES = re.compile(r"Too many open files|\[Errno 24\]|EMFILE")
_POLICY = re.compile(
    r"(set_mempolicy|mbind|get_mempolicy|move_pages|numa_\w+).*Operation not permitted", re.I
)
_LAYER = re.compile(r"\[HAMI-core|lib(?:vgpu|cuda-control|gemhook|nvshare)\.so")
_UNKNOWN_ERROR = re.compile(r"NVML: Unknown Error|NVML_ERROR_UNKNOWN")
_SHM_FLAG = re.compile(r"shm[-_]size[=: ]+[\"']?(\d{1,12})([kKmMgG]?)[bB]?\b")
_POD_CPU = re.compile(
    r"limits:\s*\n(?:\s+[\w./-]+: .*\n){0,4}?\s+cpu: [\"']?(\d{1,5}(?:\.\d+)?)(m?)[\"']?\s*$", re.M
)
_POD_GPU = re.compile(r"(?:nvidia|amd)\.com/gpu: [\"']?(\d{1,2})")
_NODE = re.compile(r"^c[rwx-]{9}\S* .*?(?:/dev/)?(nvidia[\w-]*)\s*$", re.M)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def said(host: Host) -> Said:
    """Every kind of text that speaks of a container's limits."""
    words = [statements.parse(text) for text in reading.attached(host, "statements")]
    texts = [container_text.parse(text) for kind in _LOGS[1:] for text in reading.attached(host, kind)]
    shared = _line(host, _SHARED_MEMORY, _LOGS)
    shm = [*_flags(host), *_tables(host)]
    shm += [(w.shm_bytes, w.lines.get("shm_bytes", "")) for w in words if w.shm_bytes is not None]
    shm += [(t.shm_bytes, f"ShmSize {t.shm_bytes}") for t in texts if t.shm_bytes is not None]
    pod = [text for kind in _COMMANDS for text in reading.attached(host, kind)]
    cpus = [w.cpu_limit for w in words] + [t.cpus for t in texts] + [_pod_cpus(text) for text in pod]
    return Said(
        shm_bytes=shm[0][0] if shm else None,
        shm_line=shared or (shm[0][1] if shm else ""),
        shm_failed=bool(shared),
        cpu_limit=next((limit for limit in cpus if limit is not None), None),
        cpus_seen=next((w.cpus_seen for w in words if w.cpus_seen is not None), None),
        throttled_ratio=next((w.throttled_ratio for w in words if w.throttled_ratio is not None), None),
        pids_limit=next((t.pids_limit for t in texts if t.pids_limit is not None), None),
        threads_refused=tuple(line for t in texts for line in t.threads_refused),
        process_limit=next((t.nproc_limit for t in texts if t.nproc_limit is not None), None),
        device_rules=tuple(f"{r.kind} {r.major}:{r.minor} {r.access}" for t in texts for r in t.nvidia_rules),
        locked=_locked(host),
        registration_failed=_registration(host),
        nvml_unknown_error=_line(host, _UNKNOWN_ERROR, ("nvidia-smi", *_LOGS)),
        files_exhausted=_line(host, _FILES, _LOGS),
        policy_refused=_line(host, _POLICY, _LOGS),
        intercepted=_line(host, _LAYER, (*_LOGS, "environment", "engine-command")),
        gpu_limit=next((int(match[1]) for text in pod if (match := _POD_GPU.search(text))), None),
        nvidia_nodes=_nodes(host),
    )


def _line(host: Host, pattern: re.Pattern[str], kinds: tuple[str, ...]) -> str:
    """The first line that matches, in the order of `kinds`."""
    for kind in kinds:
        for text in reading.attached(host, kind):
            if match := pattern.search(text):
                begin, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
                return cut(text[begin : end if end >= 0 else len(text)].strip(), 300)
    return ""


def _pod_cpus(text: str) -> float | None:
    match = _POD_CPU.search(text)
    return float(match[1]) / (1000 if match[2] else 1) if match else None


def _flags(host: Host) -> list[tuple[int, str]]:
    found = []
    for kind in _COMMANDS:
        for text in reading.attached(host, kind):
            if match := _SHM_FLAG.search(text):
                found.append((int(match[1]) * _UNITS[match[2].lower()], match[0]))
    return found


def _tables(host: Host) -> list[tuple[int, str]]:
    """The line of /dev/shm in attached `df` output."""
    answer = Unknown("a machine is asked itself") if host.live else host.run(("df",))
    found = []
    for line in () if isinstance(answer, Unknown) else answer.stdout.splitlines():
        words = line.split()
        if len(words) >= 6 and words[5] == "/dev/shm":
            size = re.fullmatch(r"(\d{1,15}(?:\.\d)?)([KMGT]?)", words[1])
            if size:
                scale = 1024 ** (" KMGT".index(size[2]) if size[2] else 1)
                found.append((int(float(size[1]) * scale), line.strip()))
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


def _registration(host: Host) -> str:
    for text in reading.attached(host, "nccl-log"):
        for warning in nccl_log.parse(text).warnings:
            if _REGISTER.search(warning.text):
                return warning.text
    for text in reading.attached(host, "ucx"):
        if failed := ucx.parse(text).registration_failed:
            return failed
    return _line(host, _REGISTER, ("engine-log", "application-log", "unrecognised"))


def _nodes(host: Host) -> tuple[str, ...]:
    """NVIDIA's device nodes in a long listing of /dev."""
    names = [
        name
        for kind in ("container", "statements", "history", "unrecognised")
        for text in reading.attached(host, kind)
        for name in _NODE.findall(text)
    ]
    return tuple(dict.fromkeys(names))
