"""NUMA nodes and placement."""

from uncork.host import Host
from uncork.model.facts.numa import NumaFacts
from uncork.model.unknown import Unknown


def explore(host: Host) -> NumaFacts:
    """Read the node folders of sysfs."""
    nodes = host.glob("/sys/devices/system/node/node[0-9]*")
    if not nodes:
        return NumaFacts(nodes=Unknown("/sys/devices/system/node has no nodes"))
    return NumaFacts(nodes=tuple(sorted(int(path.rpartition("node")[2]) for path in nodes)))
