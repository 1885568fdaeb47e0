"""The NCCL library that a running server has loaded: the very one whose latency and transports matter."""

import re

from uncork.host import Host
from uncork.host.live import LiveHost
from uncork.model.unknown import Unknown, is_unknown

_NCCL = re.compile(r"\s(/\S*libnccl\.so[.\d]*)$", re.M)


def of_servers(host: Host | None = None) -> str | Unknown:
    """The path of libnccl in the mappings of the processes that we may read; Unknown (absent) where none has it."""
    live = host or LiveHost()
    for maps in live.glob("/proc/[0-9]*/maps"):
        text = live.read(maps)
        if not is_unknown(text) and (found := _NCCL.search(text)):
            return found.group(1)
    return Unknown("no running process has NCCL loaded; name the server's library with --nccl", absent=True)
