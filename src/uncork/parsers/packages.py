"""dpkg -l, rpm -qa, pip list, pip freeze, conda and apt lines → name and version."""

import re

_DPKG = re.compile(r"^\s*[a-zA-Z]{2,3}\s+([a-z0-9][\w.+-]*)(?::\w+)?\s+(\S+)")
_FREEZE = re.compile(r"^\s*(?:\[(?:pip3?|conda)\]\s+)?([A-Za-z][\w.-]*)(?:==|=)([\w.+!-]+)")
_LIST = re.compile(r"^\s*(?:\[(?:pip3?|conda)\]\s+)?([A-Za-z][\w.-]*)\s+(v?\d[\w.+!-]*)(?:\s.*)?$")
_RPM = re.compile(r"^\s*([A-Za-z][\w.+-]*?)-(\d[\w.~+^]*-[\w.~+]+)\.(?:x86_64|aarch64|noarch)\s*$")
_INLINE = re.compile(r"\b(lib[\w-]+)=(\d[\w.+~-]*)")


def parse(text: str) -> dict[str, str]:
    """Package → version; names of Python packages in lower case with dashes. The first of a name counts."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        line = line[:400]
        for pattern in (_DPKG, _RPM, _FREEZE, _LIST):
            if match := pattern.match(line):
                found.setdefault(match[1].lower().replace("_", "-"), match[2])
                break
        for name, version in _INLINE.findall(line):
            found.setdefault(name.lower(), version)
    return found
