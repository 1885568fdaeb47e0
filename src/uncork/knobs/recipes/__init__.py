"""Read, compare and write one target from its recipe, with the standard library alone.

A copy of this folder runs beside revert.py under `python3 -I -S`, when the virtual environment it came from
may be gone: put the folder that holds the copy on `sys.path` and `import recipes`. So nothing here imports from
uncork by name. A recipe is a JSON object: `kind` chooses the file below, `compare` the rule of equality. What
fails raises OSError, with the kernel's own errno where there is one.
"""

import importlib
from typing import Any

Recipe = dict[str, Any]

_FILES = {
    "file": "files",
    "pair": "files",
    "governor": "files",
    "pci-word": "pci",
    "process-file": "process",
    "limit": "process",
    "affinity": "process",
    "module": "system",
    "latency-request": "system",
    "tmpfs-size": "system",
    "modprobe-option": "options",
    "nvml": "nvml",
}


def read(recipe: Recipe) -> str:
    """The present value in canonical form. Raises OSError."""
    return str(_file(recipe["kind"]).READ[recipe["kind"]](recipe))


def write(recipe: Recipe, value: str) -> None:
    """Write the value once. Raises OSError."""
    _file(recipe["kind"]).WRITE[recipe["kind"]](recipe, value)


def same(recipe: Recipe, want: str, got: str) -> bool:
    """Whether `got` is what `want` asked for, by the recipe's own rule of equality."""
    return bool(
        importlib.import_module(f"{__name__}.compare").RULES[recipe.get("compare", "words")](want, got)
    )


def _file(kind: str) -> Any:
    return importlib.import_module(f"{__name__}.{_FILES[kind]}")
