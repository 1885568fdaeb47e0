"""Where a server answers: its sockets, its network namespace, its flags."""

import re
from collections.abc import Mapping

from uncork.explorers import engine_argv
from uncork.host import Host
from uncork.model.unknown import Unknown


def _listening(host: Host, pid: int) -> list[int]:
    """TCP ports on which the process listens."""
    names = host.list(f"/proc/{pid}/fd")
    if isinstance(names, Unknown):
        return []
    inodes = set()
    for name in names:
        where = host.link(f"/proc/{pid}/fd/{name}")
        if not isinstance(where, Unknown) and (match := re.search(r"socket:\[(\d+)\]", where)):
            inodes.add(match[1])
    ports = set()
    for table in ("tcp", "tcp6"):
        text = host.read(f"/proc/{pid}/net/{table}")
        for line in [] if isinstance(text, Unknown) else text.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)


def _own_address(host: Host, pid: int) -> str | Unknown | None:
    """The address of the process's own network namespace; None where it shares ours."""
    theirs, ours = host.link(f"/proc/{pid}/ns/net"), host.link("/proc/self/ns/net")
    if isinstance(theirs, Unknown) or isinstance(ours, Unknown):
        return None
    if theirs.rpartition("/")[2] == ours.rpartition("/")[2]:
        return None
    text = host.read(f"/proc/{pid}/net/fib_trie")
    if isinstance(text, Unknown):
        return text
    for match in re.finditer(r"\|-- ([\d.]+)\n\s+/32 host LOCAL", text):
        if not match[1].startswith("127."):
            return match[1]
    return Unknown("its network namespace has no address of its own")


def endpoint(
    host: Host, pid: int, kind: str, flags: Mapping[str, str], environ: Mapping[str, str]
) -> str | Unknown:
    """Where the server answers: the socket it listens on, else what its flags say."""
    asked_host, asked = engine_argv.address_of(kind, flags, environ)
    ports = _listening(host, pid)
    port = asked if asked in ports or not ports else ports[0]
    if port == 0:
        return Unknown("it was told to take any port, and its sockets cannot be read")
    address = _own_address(host, pid)
    if isinstance(address, Unknown):
        return address
    scheme = "https" if flags.get("ssl-certfile") or flags.get("ssl-cert-file") else "http"
    return f"{scheme}://{address or asked_host}:{port}"
