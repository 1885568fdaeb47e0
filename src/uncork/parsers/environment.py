"""NAME=value lines, as `env`, a shell script, a compose file or a report prints them."""

import re

_LINE = re.compile(r"^\s*(?:export |declare -x |- |-e )?\"?(?P<name>[A-Z][A-Z0-9_]{1,80})=(?P<value>.*)$")
_YAML = re.compile(r"^\s*-?\s*name:\s*\"?([A-Z][A-Z0-9_]{1,80})\"?\s*$")
_YAML_VALUE = re.compile(r"^\s*value:\s*\"?(.*?)\"?\s*$")


def parse(text: str) -> dict[str, str]:
    """Name → value; quotes and a trailing `# comment` removed, the last of a name counts (as a shell would)."""
    found: dict[str, str] = {}
    named = ""
    for line in text.split("\n"):
        line = line[:8000]
        if match := _LINE.match(line):
            found[match["name"]] = _value(match["value"])
        elif yaml := _YAML.match(line):
            named = yaml[1]
        elif named and (value := _YAML_VALUE.match(line)):
            found[named] = value[1]
            named = ""
    return found


def _value(text: str) -> str:
    text = re.split(r"\s#", text, maxsplit=1)[0].strip()
    # A person's note behind a switch: "NCCL_P2P_DISABLE=1 only: NCCL completes, …"
    if note := re.match(r"^(\S{1,40})\s+(?:only|->|→|\()", text):
        text = note[1]
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    return text.rstrip('",')
