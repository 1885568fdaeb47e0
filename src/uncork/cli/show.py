"""How verbs print: JSON for programs, width and colour that respect NO_COLOR, pipes and TERM=dumb."""

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from uncork.host.printable import printable
from uncork.model.unknown import Unknown

if TYPE_CHECKING:
    from rich.console import Console


def _encode(value: object) -> object:
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    raise TypeError(f"cannot be written as JSON: {type(value).__name__}")


def print_json(value: Any) -> None:
    """Write one JSON document to stdout, two-space indented; an Unknown becomes {"unknown": reason}."""
    # Keys of a dict may be numbers, which the encoder orders only once they are text.
    plain = msgspec.to_builtins(value, enc_hook=_encode, str_keys=True, order="deterministic")
    text = msgspec.json.format(msgspec.json.encode(plain), indent=2)
    sys.stdout.write(text.decode() + "\n")


def console(*, stderr: bool = False) -> "Console":
    """A Rich console: 80 columns when nobody looks, no markup taken from data, no colour into a pipe."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else 80, markup=False, highlight=False)


def clean(text: str) -> str:
    """Text from a host, made safe for a terminal: control characters and direction marks become escapes."""
    return printable(text)
