"""UCX logs: what it could not do, and the locked-memory limit it names."""

import re

import msgspec

_LEVEL = re.compile(r"\bUCX\s+(ERROR|WARN|FATAL)\s+(.*)$")
_LIMIT = re.compile(r"max locked memory.*?current: (\d{1,12}|unlimited) ?kbytes")
_REGISTER = re.compile(r"(?:reg_mr|umem_reg|memory registration|mem_reg).*(?:failed|Cannot allocate memory)")


class Log(msgspec.Struct, frozen=True):
    """Errors and warnings; `locked_bytes` is the limit UCX says the process has."""

    errors: tuple[str, ...] = ()
    locked_bytes: int | None = None
    registration_failed: str = ""


def parse(text: str) -> Log:
    """Read a log of any length; equal errors are kept once."""
    errors: dict[str, None] = {}
    locked: int | None = None
    failed = ""
    for line in text.split("\n"):
        line = line[:1500].strip()
        if (found := _LEVEL.search(line)) and len(errors) < 1000:
            errors[found[2]] = None
        if (found := _LIMIT.search(line)) and found[1] != "unlimited":
            locked = int(found[1]) * 1024
        if not failed and _REGISTER.search(line):
            failed = line
    return Log(tuple(errors), locked, failed)
