"""`ip addr` in its own form and in one line a device as people shorten it."""

import re

import msgspec

_DEVICE = re.compile(r"^(?:\d{1,5}: )?([\w.-]{1,15})(?:@[\w.-]+)?: (?:<([\w,-]*)>|inet6? )(.*)$")
_INET = re.compile(r"\binet6? ([0-9a-fA-F.:]+(?:/\d{1,3})?)")
_MTU = re.compile(r"\b(?i:mtu) (\d{1,6})")


class Interface(msgspec.Struct, frozen=True):
    """A network device; `up` None where the text does not say."""

    name: str
    up: bool | None = None
    mtu: int | None = None
    addresses: tuple[str, ...] = ()


def parse(text: str) -> tuple[Interface, ...]:
    """Every device in order."""
    found: dict[str, Interface] = {}
    name = ""
    for line in text.split("\n"):
        line = line[:1000]
        if match := _DEVICE.match(line):
            name = match[1]
            words = re.split(r"[\s,]+", (match[2] or "") + " " + match[3])
            up = True if "UP" in words else (False if "DOWN" in words or match[2] is not None else None)
            found[name] = Interface(name, up)
        if name and name in found:
            mtu, addresses = _MTU.search(line), _INET.findall(line)
            before = found[name]
            found[name] = msgspec.structs.replace(
                before,
                mtu=int(mtu[1]) if mtu else before.mtu,
                addresses=(*before.addresses, *addresses),
            )
    return tuple(found.values())
