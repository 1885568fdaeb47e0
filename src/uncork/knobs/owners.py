"""Who else holds a knob on this machine: daemons that run, and files that are applied at boot. Reads only."""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The kernel cuts a process name to 15 characters.
DAEMONS = {
    "tuned": "tuned",
    "power-profiles-": "power-profiles-daemon",
    "irqbalance": "irqbalance",
    "ksmtuned": "ksmtuned",
    "nvidia-persiste": "nvidia-persistenced",
    "thermald": "thermald",
    "cpupower": "cpupower",
    "auto-cpufreq": "auto-cpufreq",
    "bpftune": "bpftune",
}
# In the order systemd-sysctl reads them (sysctl.d(5)).
SYSCTL_FILES = (
    "/usr/lib/sysctl.d/*.conf",
    "/run/sysctl.d/*.conf",
    "/etc/sysctl.d/*.conf",
    "/etc/sysctl.conf",
)


_remembered: dict[str, set[str]] | None = None


@contextmanager
def remembered() -> Iterator[None]:
    """Look through the processes once for all the targets of a group: a big host has thousands of both."""
    global _remembered
    was, _remembered = _remembered, {}
    try:
        yield
    finally:
        _remembered = was


def running(root: str, *names: str) -> tuple[str, ...]:
    """Those of the named daemons that run now."""
    seen = _daemons(root)
    return tuple(_with_profile(root, name) for name in names if name in seen)


def _daemons(root: str) -> set[str]:
    if _remembered is not None and root in _remembered:
        return _remembered[root]
    seen = set()
    for path in glob.glob(root + "/proc/[0-9]*/comm"):
        try:
            seen.add(DAEMONS.get(Path(path).read_text(encoding="utf-8", errors="replace").strip(), ""))
        except OSError:
            continue  # the process ended while we looked
    if _remembered is not None:
        _remembered[root] = seen
    return seen


def _with_profile(root: str, name: str) -> str:
    if name != "tuned":
        return name
    try:
        profile = Path(root + "/etc/tuned/active_profile").read_text(encoding="utf-8").strip()
    except OSError:
        profile = ""
    return f"tuned (profile {profile})" if profile else name


def sysctl_files(root: str, key: str) -> tuple[str, ...]:
    """`sysctl.d:PATH` for each file that sets the key; it is applied at boot and by `sysctl --system`."""
    found = []
    for pattern in SYSCTL_FILES:
        for path in sorted(glob.glob(root + pattern)):
            try:
                lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                continue
            if any(_key(line) == key for line in lines) and not os.path.islink(path):
                found.append("sysctl.d:" + path[len(root) :])
    return tuple(found)


def _key(line: str) -> str:
    name, equals, _ = line.partition("=")
    if not equals or line.lstrip().startswith(("#", ";")):
        return ""
    return name.strip().lstrip("-").replace("/", ".")  # an interface with a dot in its name is not matched
