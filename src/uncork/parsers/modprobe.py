"""modprobe.d lines."""

import re

_OPTIONS = re.compile(r"^\s*options\s+([\w-]+)\s+(.*)$")
_OPTION = re.compile(r'(\w+)=("[^"]*"|\S+)')


def parse(text: str) -> dict[str, dict[str, str]]:
    """Module → option → value; later lines of one module add to earlier ones, as modprobe does."""
    options: dict[str, dict[str, str]] = {}
    for line in text.split("\n"):
        if found := _OPTIONS.match(line.partition("#")[0][:4000]):
            mine = options.setdefault(found[1].replace("-", "_"), {})
            mine.update((name, value.strip('"')) for name, value in _OPTION.findall(found[2]))
    return options
