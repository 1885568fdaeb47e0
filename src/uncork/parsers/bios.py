"""BIOS set-up keys as people list them: `AMD CBS->NBIO Common option ->IOMMU=Disable`."""

import re

_ARROW = re.compile(r"\s*(?:->|→|»| > )\s*")
_SETTING = re.compile(r"^(.*?)\s*(?:=|:| - )\s*\[?([\w .%+-]+?)\]?\s*$")
_WORDS = re.compile(r"^(.*?)\s+(enabled?|disabled?|on|off|auto)$", re.IGNORECASE)
_ON = frozenset(("enable", "enabled", "on"))
_OFF = frozenset(("disable", "disabled", "off"))


def parse(text: str) -> dict[str, str]:
    """Name of the setting (last part of its path) → value as written; lines without a path are left out."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        parts = _ARROW.split(line.strip()[:300])
        if len(parts) < 2:
            continue
        last = parts[-1]
        if match := _SETTING.match(last) or _WORDS.match(last):
            found[match[1].strip()] = match[2].strip()
        elif len(parts) > 2:
            found[parts[-2].strip()] = last.strip()
    return found


def switched(value: str) -> bool | None:
    """Whether a value says on or off; None for anything else (Auto, NPS4, a number)."""
    word = value.strip().lower()
    if word in _ON:
        return True
    return False if word in _OFF else None
