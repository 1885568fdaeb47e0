"""Module options for the next load, in a file of our own under modprobe.d. Standard library only."""

import contextlib
import errno
import os
from typing import Any

Recipe = dict[str, Any]
MODE = 0o644


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def _start(recipe: Recipe) -> str:
    return f"options {recipe['module']} {recipe['option']}="


def _read(recipe: Recipe) -> str:
    start = _start(recipe)
    values = [line.removeprefix(start) for line in _lines(recipe["path"]) if line.startswith(start)]
    return values[-1] if values else "absent"


def _write(recipe: Recipe, value: str) -> None:
    if "\n" in value or not value:
        raise OSError(errno.EINVAL, "not a module option", recipe["path"])
    path, start = recipe["path"], _start(recipe)
    lines = [line for line in _lines(path) if not line.startswith(start)]
    lines += [] if value == "absent" else [start + value]
    if lines:
        _replace(path, "\n".join(lines) + "\n")
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _replace(path: str, content: str) -> None:
    new = f"{path}.new"  # modprobe reads *.conf only
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
    try:
        os.write(handle, content.encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(new, path)


READ = {"modprobe-option": _read}
WRITE = {"modprobe-option": _write}
