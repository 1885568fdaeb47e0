"""ulimit (all or one) and /proc/PID/limits."""

import re

import msgspec

UNLIMITED = -1
_TABLE = re.compile(r"^Max ([a-z ]+?)\s+(unlimited|\d{1,20})\s+(unlimited|\d{1,20})(?:\s+(\w+))?\s*$")
_ULIMIT = re.compile(r"^(?:-\w: )?([a-z -]+?)\s+\(([^)]*)\)\s+(unlimited|\d{1,20})\s*$")
_UNITS = {"kbytes": 1024, "blocks": 512, "512 bytes": 512, "bytes": 1, "microseconds": 1}
# `ulimit -l` prints a bare number; units from bash(1).
_LETTERS = {
    "l": ("locked memory", 1024),
    "n": ("open files", 1),
    "u": ("processes", 1),
    "s": ("stack size", 1024),
}
_NAMES = {
    "max locked memory": "locked memory",
    "max user processes": "processes",
    "max memory size": "resident set",
}


class Limit(msgspec.Struct, frozen=True):
    """A soft and hard limit in bytes or counts; UNLIMITED is -1."""

    name: str  # in the words of /proc/PID/limits without "Max": locked memory, open files, processes
    soft: int
    hard: int


def parse(text: str, hint: str = "") -> tuple[Limit, ...]:
    """The limits in `text`; `hint` is the command above it, which names a bare number (`ulimit -l`)."""
    found = []
    for line in text.split("\n"):
        line = line.strip()[:200]
        if row := _TABLE.match(line):
            found.append(Limit(row[1], _number(row[2], 1), _number(row[3], 1)))
        elif row := _ULIMIT.match(line):
            unit = next((size for name, size in _UNITS.items() if row[2].startswith(name)), 1)
            value = _number(row[3], unit)
            found.append(Limit(_NAMES.get(row[1], row[1]), value, value))
        elif (letter := re.search(r"\bulimit\s+-[HS]?([lnus])\b", hint)) and re.fullmatch(
            r"unlimited|\d{1,20}", line
        ):
            name, unit = _LETTERS[letter[1]]
            found.append(Limit(name, _number(line, unit), _number(line, unit)))
    return tuple(found)


def _number(text: str, unit: int) -> int:
    return UNLIMITED if text == "unlimited" else int(text) * unit
