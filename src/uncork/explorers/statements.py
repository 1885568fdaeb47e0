"""What a reporter wrote in own words, beside the tools' output."""

from typing import TYPE_CHECKING

from uncork.explorers import reading
from uncork.host import Host

if TYPE_CHECKING:
    from uncork.parsers.statements import Statements


def words(host: Host) -> str:
    """All such text; empty on a machine."""
    return "\n".join(reading.attached(host, "statements") + reading.attached(host, "unrecognised"))


def stated(said: "Statements") -> dict[str, tuple[str, str]]:
    """Field → value as text, and the line that says so."""
    return {name: (str(getattr(said, name)), line) for name, line in said.lines.items()}


def about(host: Host) -> "Statements":
    """The parsed statements."""
    from uncork.parsers import statements

    return statements.parse(words(host))
