"""Options that are plain text, paths, numbers and switches, without what Typer loads for other types.

Typer converts every value through pydantic, whose import costs more CPU than an audit of this machine (0.15 s).
Where Typer's own converter has another shape, nothing is done and Typer works as ever.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

_PLAIN: dict[Any, Any] = {
    str: str,
    Path: Path,
    bool: bool,
    list[Path]: lambda values: [Path(one) for one in values],
    list[str]: list,
}


class _AsGiven:
    """Stands where Typer keeps the converter of one option."""

    def __init__(self, convert: Any) -> None:
        self._convert = convert

    def coerce(self, value: Any, **_: Any) -> Any:
        return None if value is None else self._convert(value)


def lighten(params: Iterable[Any]) -> None:
    """Give the options of plain types a plain converter; others keep Typer's."""
    for param in params:
        convert = _PLAIN.get(getattr(getattr(param, "type_descriptor", None), "annotation", None))
        if convert and getattr(param, "_runtime_param", False) is None:
            param._runtime_param = _AsGiven(convert)
