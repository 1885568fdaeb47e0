"""Read, compare and write one target from its recipe, with the standard library alone.

This file must stay free of imports from uncork: a copy of it runs beside revert.py with `python3 -I -S`, when
the virtual environment it came from may be gone. Recipes are JSON objects; `kind` names the function below.
Everything that fails raises OSError with the kernel's own errno where there is one.
"""

import errno
import os
import re
from collections.abc import Callable
from typing import Any

Recipe = dict[str, Any]
READ_LIMIT_BYTES = 1 << 16


def read(recipe: Recipe) -> str:
    """The present value in canonical form. Raises OSError."""
    return _READ[recipe["kind"]](recipe)


def write(recipe: Recipe, value: str) -> None:
    """Write the value once. Raises OSError."""
    _WRITE[recipe["kind"]](recipe, value)


def same(recipe: Recipe, want: str, got: str) -> bool:
    """Whether `got` is what `want` asked for, by the recipe's own rule of equality."""
    return COMPARE[recipe.get("compare", "words")](want, got)


def _text(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(READ_LIMIT_BYTES).decode("utf-8", "replace")


def _put(path: str, text: str) -> None:
    # One write(2): the kernel parses what one call brings. No O_CREAT: a vanished target must stay vanished.
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def canonical(text: str) -> str:
    """One line with single spaces (tcp_rmem uses tabs); of a list with a `[chosen]` word only that word."""
    chosen = re.findall(r"\[([^\]\s]+)\]", text)
    return str(chosen[0]) if len(chosen) == 1 else " ".join(text.split())


def _read_file(recipe: Recipe) -> str:
    return canonical(_text(recipe["path"]))


def _write_file(recipe: Recipe, value: str) -> None:
    _put(recipe["path"], value + "\n")


# A pair: writing one file zeroes the other (vm.dirty_bytes, vm.dirty_ratio), and that zero cannot be written
# back. While this one is out of force its value is the partner's, as `PARTNER=VALUE`.
def _read_pair(recipe: Recipe) -> str:
    value = canonical(_text(recipe["path"]))
    if value != "0":
        return value
    partner = canonical(_text(recipe["partner_path"]))
    return value if partner == "0" else f"{recipe['partner']}={partner}"


def _write_pair(recipe: Recipe, value: str) -> None:
    name, equals, number = value.partition("=")
    if equals and name != recipe["partner"]:
        raise OSError(errno.EINVAL, f"{value}: {name} is not the partner of this key", recipe["path"])
    _put(recipe["partner_path"] if equals else recipe["path"], (number if equals else value) + "\n")


def _words(want: str, got: str) -> bool:
    return [_number(word) for word in want.split()] == [_number(word) for word in got.split()]


def _number(word: str) -> int | str:
    try:
        return int(word, 16) if word.lower().startswith("0x") else int(word)
    except ValueError:
        return word


def _pair(want: str, got: str) -> bool:
    # An audit that read only the one file saw 0 where the partner is in force.
    return _words(want, got) or (want == "0" and "=" in got)


COMPARE: dict[str, Callable[[str, str], bool]] = {"words": _words, "pair": _pair}
_READ: dict[str, Callable[[Recipe], str]] = {"file": _read_file, "pair": _read_pair}
_WRITE: dict[str, Callable[[Recipe, str], None]] = {"file": _write_file, "pair": _write_pair}
