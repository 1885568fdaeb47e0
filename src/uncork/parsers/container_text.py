"""docker and podman inspect, device cgroup rules, and programs that run out of threads."""

import re

import msgspec

_PIDS = re.compile(r'"PidsLimit":\s*(-?\d{1,12})')
_SHM = re.compile(r'"ShmSize":\s*(\d{1,18})')
_IPC = re.compile(r'"IpcMode":\s*"([\w:-]*)"')
_CPUS = re.compile(r'"NanoCpus":\s*(\d{1,18})')
_DEVICE_RULE = re.compile(r"^\s*([abc]) (\d+|\*):(\d+|\*) ([rwm]+)\s*$")
_DEVICE_EVENT = re.compile(r"^\s*([\w.-]+), (\d), ([abc]) (\d+|\*):(\d+|\*) ([rwm]+), (\S+)")
_NO_THREAD = re.compile(
    r"can't start new thread|pthread_create failed.*?: (.*)$|Resource temporarily unavailable"
)
_FORBIDDEN = re.compile(r"Operation not permitted")  # seccomp, which no limit cures
_NPROC = re.compile(r"RLIMIT_NPROC (-?\d{1,20})")
NVIDIA_MAJOR = "195"  # Linux Documentation/admin-guide/devices.txt


class Rule(msgspec.Struct, frozen=True):
    """A device rule; `by` and `container` are of an event, "" in devices.list."""

    kind: str
    major: str
    minor: str
    access: str
    by: str = ""
    container: str = ""


class Text(msgspec.Struct, frozen=True):
    """What the text says. Sizes in bytes, None where not said; `threads_refused` are EAGAIN lines."""

    pids_limit: int | None = None
    shm_bytes: int | None = None
    ipc: str | None = None
    cpus: float | None = None
    rules: tuple[Rule, ...] = ()
    threads_refused: tuple[str, ...] = ()
    nproc_limit: int | None = None

    @property
    def nvidia_rules(self) -> tuple[Rule, ...]:
        """Rules about the NVIDIA character devices."""
        return tuple(rule for rule in self.rules if rule.major == NVIDIA_MAJOR)


def parse(text: str) -> Text:
    """Read any mix of them."""
    rules, refused = [], []
    for line in text.split("\n"):
        line = line[:2000]
        if found := _DEVICE_RULE.match(line):
            rules.append(Rule(*found.groups()))
        elif found := _DEVICE_EVENT.match(line):
            rules.append(Rule(found[3], found[4], found[5], found[6], found[1], found[7]))
        elif _NO_THREAD.search(line) and not _FORBIDDEN.search(line):
            refused.append(line.strip())

    def number(pattern: re.Pattern[str]) -> int | None:
        found = pattern.search(text)
        return int(found[1]) if found else None

    nano = number(_CPUS)
    ipc = _IPC.search(text)
    return Text(
        number(_PIDS),
        number(_SHM),
        ipc[1] if ipc else None,
        nano / 1e9 if nano else None,
        tuple(rules[:10_000]),
        tuple(refused[:100]),
        number(_NPROC),
    )
