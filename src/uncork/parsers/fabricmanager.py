"""The fabric manager's log, its journal, and what systemctl says about it."""

import re

import msgspec

_LEVEL = re.compile(
    r"^\s*\[[^\]]*\d{4} [\d:]+\] \[(INFO|NOTICE|WARNING|ERROR|CRITICAL|FATAL|DEBUG)\s*\]\s*(.*)$"
)
_MISMATCH = re.compile(
    r"driver interface version (\d+\.\d+(?:\.\d+)?) don'?t(?: match with driver version (\d+\.\d+(?:\.\d+)?))?"
)
_VERSION = re.compile(r"[Ff]abric [Mm]anager version(?: is)?:? *(\d+\.\d+(?:\.\d+)?)")
_SWITCH_ERROR = re.compile(r"detected NVSwitch (non-fatal|fatal) error (\d{1,6})")
_FAILED = re.compile(r"Failed to start|Main process exited, code=exited|Failed with result|Active: failed")
_ACTIVE = re.compile(r"Active: (\w+)(?: \((\w+)\))?")
_ABSENT = re.compile(r"Unit nvidia-fabricmanager\S* could not be found|Loaded: not-found")


class Log(msgspec.Struct, frozen=True):
    """What it said. `active` is systemctl's word; versions are those of a mismatch line."""

    lines: int = 0
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    interface_version: str | None = None
    driver_version: str | None = None
    mismatch: str = ""
    version: str | None = None
    switch_errors: tuple[tuple[str, int], ...] = ()
    active: str | None = None
    installed: bool | None = None
    failed: str = ""


def parse(text: str) -> Log:
    """Read a log, a journal, or `systemctl status nvidia-fabricmanager`; a line cut in half still counts."""
    errors, warnings, switch = [], [], []
    said: dict[str, object] = {}
    for line in text.split("\n"):
        line = line[:1500]
        if (found := _LEVEL.match(line)) and found[1] in ("ERROR", "CRITICAL", "FATAL"):
            errors.append(found[2].strip())
        elif found and found[1] == "WARNING":
            warnings.append(found[2].strip())
        if found := _SWITCH_ERROR.search(line):
            switch.append((found[1], int(found[2])))
        if found := _MISMATCH.search(line):
            said.update(interface_version=found[1], driver_version=found[2], mismatch=line.strip())
        if found := _VERSION.search(line):
            said["version"] = found[1]
        if found := _ACTIVE.search(line):
            said["active"] = found[1]
        if _ABSENT.search(line):
            said["installed"] = False
        if _FAILED.search(line):
            said.setdefault("failed", line.strip())
    return Log(text.count("\n"), tuple(errors), tuple(warnings), switch_errors=tuple(switch), **said)  # type: ignore[arg-type]
