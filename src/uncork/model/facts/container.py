"""Container, LXC and virtual machine: what hides or limits the host."""

import msgspec


class ContainerFacts(msgspec.Struct, frozen=True):
    """Container, LXC and virtual machine: what hides or limits the host."""
