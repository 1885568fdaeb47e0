"""Targets that are one file, or two that the kernel ties together. Standard library only."""

import errno
import os
import re
from typing import Any

Recipe = dict[str, Any]
READ_LIMIT_BYTES = 1 << 16


def text(path: str) -> str:
    """The start of a file, as text."""
    with open(path, "rb") as file:
        return file.read(READ_LIMIT_BYTES).decode("utf-8", "replace")


def put(path: str, value: str) -> None:
    """One write(2), since the kernel parses what one call brings; never makes the file."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, value.encode() + b"\n")
    finally:
        os.close(handle)


def canonical(value: str) -> str:
    """One line with single spaces (tcp_rmem uses tabs); of a list with a `[chosen]` word only that word."""
    chosen = re.findall(r"\[([^\]\s]+)\]", value)
    return str(chosen[0]) if len(chosen) == 1 else " ".join(value.split())


def _read_file(recipe: Recipe) -> str:
    return canonical(text(recipe["path"]))


def _write_file(recipe: Recipe, value: str) -> None:
    put(recipe["path"], value)


# A pair: writing one file zeroes the other (vm.dirty_bytes, vm.dirty_ratio), and that zero cannot be written
# back. While this one is out of force its value is the partner's, as `PARTNER=VALUE`.
def _read_pair(recipe: Recipe) -> str:
    value = canonical(text(recipe["path"]))
    if value != "0":
        return value
    partner = canonical(text(recipe["partner_path"]))
    return value if partner == "0" else f"{recipe['partner']}={partner}"


def _write_pair(recipe: Recipe, value: str) -> None:
    name, equals, number = value.partition("=")
    if equals and name != recipe["partner"]:
        raise OSError(errno.EINVAL, f"{value}: {name} is not the partner of this key", recipe["path"])
    put(recipe["partner_path"] if equals else recipe["path"], number if equals else value)


# Governor and energy preference: while the governor is `performance` the preference is forced and refuses
# writes (EBUSY in intel_pstate and amd_pstate), so the value carries both where the preference is free.
def _read_governor(recipe: Recipe) -> str:
    governor = canonical(text(recipe["path"]))
    if governor == "performance" or not os.path.exists(recipe["epp_path"]):
        return governor
    return f"{governor} epp={canonical(text(recipe['epp_path']))}"


def _write_governor(recipe: Recipe, value: str) -> None:
    governor, _, preference = value.partition(" epp=")
    put(recipe["path"], governor)
    if preference:
        put(recipe["epp_path"], preference)


READ = {"file": _read_file, "pair": _read_pair, "governor": _read_governor}
WRITE = {"file": _write_file, "pair": _write_pair, "governor": _write_governor}
