"""What a reporter wrote in own words, beside the tools' output."""

import re

from uncork.explorers import reading
from uncork.host import Host

_KEY_VALUE = re.compile(r"^\s*#?\s*([A-Za-z/][\w ./()#-]{1,60}?)\s*[:=]\s+(.+?)\s*$")


def words(host: Host) -> str:
    """All such text; empty on a machine."""
    return "\n".join(reading.attached(host, "statements") + reading.attached(host, "unrecognised"))


def facts(text: str) -> dict[str, str]:
    """`key: value` lines, keys in lower case; the first of each key."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if len(line) < 2000 and (match := _KEY_VALUE.match(line)):
            found.setdefault(match[1].strip().lower(), match[2])
    return found
