"""Questions about the host at hand that many checks ask before they judge."""

from typing import TypeVar

from uncork.host.redact import cut
from uncork.model.facts import Facts
from uncork.model.facts.container import Confined, Counter
from uncork.model.facts.network import RdmaPort
from uncork.model.findings import Evidence
from uncork.model.unknown import Unknown, UnknownValue, is_unknown

Value = TypeVar("Value")

GIB = 1 << 30
# Flags and variables of engines that move KV caches or collectives between machines.
_SPREAD_FLAGS = (
    "nnodes",
    "node-rank",
    "dist-init-addr",
    "kv-transfer-config",
    "disaggregation-mode",
    "headless",
)
_RDMA_WORDS = ("nixl", "mooncake", "ucx", "deep_ep", "nvshmem", "libfabric")


def known(value: Value | Unknown) -> Value:
    """The value itself; raises UnknownValue where it could not be read."""
    if isinstance(value, Unknown):
        raise UnknownValue(value.reason)
    return value


def whole(value: str | Unknown, where: str) -> int:
    """A whole number of a setting; raises UnknownValue where it is none or could not be read."""
    text = known(value)
    try:
        return int(text)
    except ValueError:
        raise UnknownValue(f"{where} holds no number: {text[:40]!r}") from None


def one_node(facts: Facts) -> str:
    """Why questions of placement do not arise, or an empty text."""
    nodes = [node for node in facts.numa.nodes if is_unknown(node.cpus) or node.cpus]
    return "" if len(nodes) > 1 else "one NUMA node: nothing to balance or to place"


def no_server(facts: Facts) -> str:
    """Why questions about serving processes do not arise, or an empty text; raises where none can be seen."""
    return "" if serving(facts) or facts.engine.servers else "no inference server runs here"


def no_process(facts: Facts) -> str:
    """Why questions about the inside of serving processes do not arise, or an empty text.

    Raises UnknownValue where a server is known by its command line only, as attached texts have it.
    """
    if serving(facts):
        return ""
    if facts.engine.servers:
        raise UnknownValue(
            "the server's files under /proc were not read: only its command line or log is known"
        )
    return "no inference server runs here"


def serving(facts: Facts) -> tuple[Confined, ...]:
    """The serving processes in sight."""
    return tuple(process for process in facts.container.processes if process.pid)


def virtual(facts: Facts) -> bool:
    """Whether this is a virtual machine; raises UnknownValue where that cannot be told."""
    return facts.container.machine is not None and bool(facts.container.machine.hypervisor)


def virtual_reason(facts: Facts) -> str:
    """Why questions about the board do not arise, or an empty text."""
    return "a virtual machine: its firmware and topology are the hypervisor's" if virtual(facts) else ""


def guest_reason(facts: Facts) -> str:
    """As `virtual_reason`, but empty where it cannot be told: for questions that only hardware answers."""
    machine = facts.container.machine
    return "" if is_unknown(machine) or machine is None else virtual_reason(facts)


def no_swap(facts: Facts) -> str:
    """Why questions about swapping do not arise, or an empty text."""
    return "" if facts.kernel.swaps else "no swap: nothing is swapped"


def active_ports(facts: Facts) -> tuple[RdmaPort, ...]:
    """RDMA ports with a link."""
    return tuple(
        port for port in facts.network.ports if not is_unknown(port.state) and port.state == "ACTIVE"
    )


def no_rdma(facts: Facts) -> str:
    """Why questions about RDMA do not arise, or an empty text."""
    return "" if facts.network.ports else "no RDMA device"


def spread(facts: Facts) -> str:
    """What shows that a server spans machines or moves KV caches between them, or an empty text."""
    for server in facts.engine.servers:
        for flag in _SPREAD_FLAGS:
            value = server.flags.get(flag, "")
            if (value and value not in ("1", "0", "null")) or (value == "0" and flag == "node-rank"):
                return f"{server.kind} has --{flag} {cut(value, 60)}"
        words = " ".join((*server.command, *([] if is_unknown(server.environ) else server.environ))).lower()
        for word in _RDMA_WORDS:
            if word in words:
                return f"{server.kind} names {word}"
    return ""


def one_machine(facts: Facts) -> str:
    """Why questions about traffic between machines do not arise, or an empty text."""
    return "" if spread(facts) else "no server here spans machines"


def moved(counter: Counter) -> int:
    """How far a counter went between its two samples; one that was set back did not move."""
    return max(0, counter.after - counter.before)


def subject(process: Confined) -> str:
    """What a verdict calls a serving process; empty for this shell."""
    return f"{process.name} ({process.pid})" if process.pid else ""


def identity(process: Confined) -> str:
    """The address of a process for a change: its number, with when it began where that is known."""
    return str(process.pid) if is_unknown(process.start_ticks) else f"{process.pid}@{process.start_ticks}"


def seen(source: str, text: object) -> tuple[Evidence, ...]:
    """One piece of evidence, cut to a readable length."""
    return (Evidence(source, cut(str(text), 400)),)


def sizes(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit in ("B", "KiB") else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"
