"""What a reporter wrote in own words, beside the tools' output."""

from uncork.explorers import reading
from uncork.host import Host
from uncork.parsers import statements


def words(host: Host) -> str:
    """All such text; empty on a machine."""
    return "\n".join(reading.attached(host, "statements") + reading.attached(host, "unrecognised"))


def stated(said: statements.Statements) -> dict[str, tuple[str, str]]:
    """Field → value as text, and the line that says so."""
    return {name: (str(getattr(said, name)), line) for name, line in said.lines.items()}


def about(host: Host) -> statements.Statements:
    """The parsed statements."""
    return statements.parse(words(host))
