"""Limits, CPUs and files of a running process. Standard library only."""

import errno
import importlib
import os
import resource
from typing import Any

Recipe = dict[str, Any]
UNLIMITED = resource.RLIM_INFINITY

# By the package's own name, which is `recipes` in the copy beside revert.py.
_compare = importlib.import_module(f"{__package__}.compare")
_files = importlib.import_module(f"{__package__}.files")


def start_ticks(pid: int) -> int:
    """When the process began, in clock ticks since boot: with its number, its identity. Raises OSError."""
    try:
        return int(_files.text(f"/proc/{pid}/stat").rpartition(")")[2].split()[19])
    except FileNotFoundError:
        raise ProcessLookupError(errno.ESRCH, "no such process", str(pid)) from None


def _check(recipe: Recipe) -> None:
    # A number is reused; another process must not get what was meant for the one that ended.
    if start_ticks(recipe["pid"]) != recipe["start_ticks"]:
        raise ProcessLookupError(
            errno.ESRCH, "the process ended and its number was reused", str(recipe["pid"])
        )


def _read_file(recipe: Recipe) -> str:
    _check(recipe)
    return str(_files.canonical(_files.text(recipe["path"])))


def _write_file(recipe: Recipe, value: str) -> None:
    _check(recipe)
    _files.put(recipe["path"], value)


def _read_limit(recipe: Recipe) -> str:
    _check(recipe)
    return ":".join(map(_limit_text, resource.prlimit(recipe["pid"], recipe["number"])))


def _write_limit(recipe: Recipe, value: str) -> None:
    """`SOFT:HARD`, or one number for the soft limit, which lifts the hard one only where it must."""
    _check(recipe)
    soft_text, colon, hard_text = value.partition(":")
    soft, hard = _limit(soft_text), resource.prlimit(recipe["pid"], recipe["number"])[1]
    if colon:
        hard = _limit(hard_text)
    elif soft == UNLIMITED or hard != UNLIMITED:
        hard = UNLIMITED if soft == UNLIMITED else max(soft, hard)
    try:
        resource.prlimit(recipe["pid"], recipe["number"], (soft, hard))
    except ValueError as error:  # Python's word for EINVAL, and for EPERM when a hard limit would rise
        code = errno.EPERM if "maximum" in str(error) else errno.EINVAL
        raise OSError(code, str(error), value) from error


def _limit(text: str) -> int:
    if text == "unlimited":
        return UNLIMITED
    if not text.isdigit():
        raise OSError(errno.EINVAL, f"{text}: not a limit")
    return int(text)


def _limit_text(limit: int) -> str:
    return "unlimited" if limit == UNLIMITED else str(limit)


def _read_affinity(recipe: Recipe) -> str:
    _check(recipe)
    return str(_compare.cpu_list(os.sched_getaffinity(recipe["tid"])))


def _write_affinity(recipe: Recipe, value: str) -> None:
    _check(recipe)
    try:
        os.sched_setaffinity(recipe["tid"], _compare.cpu_set(value))
    except ValueError as error:
        raise OSError(errno.EINVAL, f"{value}: not a CPU list") from error


READ = {"process-file": _read_file, "limit": _read_limit, "affinity": _read_affinity}
WRITE = {"process-file": _write_file, "limit": _write_limit, "affinity": _write_affinity}
