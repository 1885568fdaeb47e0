"""`ibstat` and `ibv_devinfo`: RDMA ports."""

import re

import msgspec

_FIELD = re.compile(r"^\s+([A-Za-z _]+?):\s*(.*?)\s*$")
_PORT = re.compile(r"^\s+(?:Port (\d{1,3}):|port:\s+(\d{1,3}))\s*$")
_GID = re.compile(r"^\s+GID\[\s*\d{1,3}\]:.*,\s*((?:IB/)?RoCE v\d)\s*$")
_DEVICE = re.compile(r"^(?:CA '([\w-]{1,40})'|hca_id:\s*([\w-]{1,40}))\s*$")


class Port(msgspec.Struct, frozen=True):
    """A port; state in upper case as sysfs writes it, rate in Gb/s, None where the text does not say."""

    device: str
    number: int
    state: str | None = None  # ACTIVE, DOWN, INIT
    physical: str | None = None  # LinkUp, Polling, Disabled
    rate_gbps: float | None = None
    layer: str | None = None  # InfiniBand, Ethernet
    gid_types: tuple[str, ...] = ()  # RoCE v1, RoCE v2, as `ibv_devinfo -v` names them


def parse(text: str) -> tuple[Port, ...]:
    """Every port in order; both tools in one text are two sets of ports."""
    found: list[Port] = []
    device = ""
    for line in text.split("\n"):
        line = line[:300]
        if match := _DEVICE.match(line):
            device = match[1] or match[2]
        elif device and (match := _PORT.match(line)):
            found.append(Port(device, int(match[1] or match[2])))
        elif found and found[-1].device == device and (match := _GID.match(line)):
            kinds = tuple(sorted({*found[-1].gid_types, match[1]}))
            found[-1] = msgspec.structs.replace(found[-1], gid_types=kinds)
        elif found and found[-1].device == device and (match := _FIELD.match(line)):
            found[-1] = _with(found[-1], match[1].strip().lower(), match[2])
    return tuple(found)


def _with(port: Port, name: str, value: str) -> Port:
    if name == "state":
        word = value.removeprefix("PORT_").split(" ")[0].upper()
        return msgspec.structs.replace(port, state="INIT" if word == "INITIALIZING" else word)
    if name in ("physical state", "phys_state"):
        return msgspec.structs.replace(port, physical=value.replace("_", "").split(" ")[0])
    if name == "rate" and (rate := re.match(r"\d{1,5}(?:\.\d)?", value)):
        return msgspec.structs.replace(port, rate_gbps=float(rate[0]))
    if name in ("link layer", "link_layer"):
        return msgspec.structs.replace(port, layer=value)
    return port
