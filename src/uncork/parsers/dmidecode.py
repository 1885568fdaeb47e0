"""dmidecode: structures by type, with their fields."""

import re

import msgspec

_HANDLE = re.compile(r"^Handle (0x[0-9A-Fa-f]+), DMI type (\d{1,3})")
_FIELD = re.compile(r"^\s+([^:\t]+):\s*(.*)$")


class Structure(msgspec.Struct, frozen=True):
    """One structure: its title (`Memory Device`), DMI type and fields; list lines are joined by "; "."""

    type: int
    title: str
    fields: dict[str, str]


def parse(text: str) -> tuple[Structure, ...]:
    """Every structure in order; a cut last one gives what it holds."""
    found: list[Structure] = []
    fields: dict[str, str] = {}
    last = ""
    number: int | None = None
    for line in text.split("\n"):
        line = line[:500].rstrip()
        if match := _HANDLE.match(line):
            number, last = int(match[2]), ""
        elif number is not None and line and not line[0].isspace():
            fields = {}
            found.append(Structure(number, line, fields))
            number = None
        elif found and number is None and (match := _FIELD.match(line)):
            last = match[1].strip()
            fields.setdefault(last, match[2].strip())
        elif found and last and line.strip():
            fields[last] = "; ".join(filter(None, (fields[last], line.strip())))
    return tuple(found)
