"""NCCL_DEBUG output of every version: versions, transports, interfaces, warnings."""

import re

import msgspec

_VERSION = re.compile(r"NCCL version (\d+\.\d+(?:\.\d+)?)(?:\+cuda(\d+\.\d+))?")
_LINE = re.compile(r"\bNCCL (INFO|WARN|ERROR|TRACE)\s+(.*)")
_WHERE = re.compile(r"(\S+?):\d+:\d+ \[(\d+)\] (?:(\S+:\d+) )?NCCL")
_VIA = re.compile(
    r"Channel (\d+)(?:/\d+)? ?:? +(\d+)\[\w+\] -> (\d+)\[\w+\](?: \[(send|receive)\])? via (\S+)"
)
_INTERFACE = re.compile(
    r"(?:Using interface |\[\d+\]|NET/Socket : Using \[\d+\])([\w.@-]+):([0-9A-Fa-f.:]+(?:%\w+)?)<\d+>"
)
_ENV = re.compile(r"(NCCL_[A-Z0-9_]+) set (?:by environment )?to ([^\s;]+)")
_RANKS = re.compile(r"nranks (\d{1,6})|nRanks (\d{1,6})")
_NO_SOCKET = re.compile(r"no socket interface found", re.IGNORECASE)
_RING = re.compile(
    r"(\d{1,3}) coll channels?, (?:\d+ collnet channels, )?(\d{1,3}) nvls channels?, (\d{1,3}) p2p channels?"
)


class Warning_(msgspec.Struct, frozen=True):
    """A WARN line: source position (`transport/nvls.cc:244`) and text."""

    where: str
    text: str


class Log(msgspec.Struct, frozen=True):
    """What NCCL said. `transports` counts channels by transport (P2P, SHM, NET/IB, NET/Socket, …)."""

    version: str | None = None
    cuda: str | None = None
    warnings: tuple[Warning_, ...] = ()
    transports: dict[str, int] = {}
    pairs: dict[tuple[int, int], str] = {}
    interfaces: tuple[tuple[str, str], ...] = ()  # name, address
    network: str | None = None  # IB, Socket, a plugin's name
    environment: dict[str, str] = {}
    ranks: int | None = None
    no_socket: bool = False
    gdr: bool | None = None  # None: no line about it, nor a network channel
    nvls_channels: int | None = None
    p2p_channels: int | None = None


def parse(text: str) -> Log:
    """Read a log of any length; equal warnings are kept once."""
    said: dict[str, object] = {}
    warnings: dict[Warning_, None] = {}
    transports: dict[str, int] = {}
    pairs: dict[tuple[int, int], str] = {}
    interfaces: dict[tuple[str, str], None] = {}
    environment: dict[str, str] = {}
    for line in text.split("\n"):
        line = line[:2000]
        if _NO_SOCKET.search(line):
            said["no_socket"] = True
        if "NCCL" not in line:
            continue
        if found := _VERSION.search(line):
            said.setdefault("version", found[1])
            if found[2]:
                said.setdefault("cuda", found[2])
        if (found := _LINE.search(line)) and found[1] in ("WARN", "ERROR") and len(warnings) < 1000:
            where = _WHERE.search(line)
            place = where[3] if where and where[3] else _place(line)
            warnings[Warning_(place or "", found[2].strip())] = None
        if found := _VIA.search(line):
            kind = _transport(found[5])
            transports[kind] = transports.get(kind, 0) + 1
            pairs[int(found[2][:6]), int(found[3][:6])] = kind
            if kind.startswith("NET"):
                said["gdr"] = bool(said.get("gdr")) or "GDRDMA" in found[5]
        for name, address in _INTERFACE.findall(line):
            interfaces[name, address] = None
        for name, value in _ENV.findall(line):
            environment[name] = value
        _rest(line, said)
    return Log(
        **said,  # type: ignore[arg-type]
        warnings=tuple(warnings),
        transports=transports,
        pairs=pairs,
        interfaces=tuple(interfaces),
        environment=environment,
    )


def _rest(line: str, said: dict[str, object]) -> None:
    if found := _RANKS.search(line):
        said.setdefault("ranks", int(found[1] or found[2]))
    if found := re.search(r"Using network (\S+)", line):
        said["network"] = found[1]
    elif "NET/IB : Using" in line:
        said.setdefault("network", "IB")
    elif "NET/Socket : Using" in line:
        said.setdefault("network", "Socket")
    if found := _RING.search(line):
        said.update(nvls_channels=int(found[2]), p2p_channels=int(found[3]))
    if found := re.search(r"GPU Direct RDMA (Enabled|Disabled)", line):
        said["gdr"] = bool(said.get("gdr")) or found[1] == "Enabled"


def _place(line: str) -> str | None:
    found = re.search(r"(\S+\.\w{1,3}:\d+) NCCL (?:WARN|ERROR)", line)
    return found[1] if found else None


def _transport(via: str) -> str:
    """`P2P/CUMEM/read` → P2P, `NET/IB/0/GDRDMA` → NET/IB, `SHM/direct/direct` → SHM."""
    parts = via.split("/")
    return "/".join(parts[:2]) if parts[0] == "NET" and len(parts) > 1 else parts[0]
