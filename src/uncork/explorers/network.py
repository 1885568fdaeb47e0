"""Network and RDMA: interfaces, ports, their errors, and what limits connections."""

import re
import time

from uncork.explorers import reading
from uncork.explorers.kernel import sysctl
from uncork.host import Host
from uncork.host.recording import RecordingHost
from uncork.model.facts.container import Counter
from uncork.model.facts.network import Interface, NetworkFacts, RdmaPort
from uncork.model.unknown import Unknown
from uncork.parsers import ibstat, ip_addr

WINDOW_S = 0.25
SYSCTLS = (
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.somaxconn",
    "net.core.busy_read",
    "net.core.busy_poll",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_tw_reuse",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
)
# Counters that stand still on a sound link (kernel ABI: sysfs-class-infiniband).
_ERRORS = (
    *(
        "counters/symbol_error",
        "counters/link_downed",
        "counters/port_rcv_errors",
        "counters/link_error_recovery",
    ),
    *("counters/local_link_integrity_errors", "hw_counters/out_of_sequence", "hw_counters/packet_seq_err"),
    *("hw_counters/roce_adp_retrans", "hw_counters/local_ack_timeout_err"),
)


def explore(host: Host) -> NetworkFacts:
    """Read /proc/net and the network, InfiniBand and PCI classes of sysfs; error counters twice."""
    host = RecordingHost(host)
    started_s = time.monotonic()
    host.read("/proc/net/netstat")
    devices = host.list("/sys/class/infiniband")
    pairs = _port_folders(host, devices)
    for _, _, folder in pairs:
        for name in _ERRORS:
            host.read(f"{folder}/{name}")
    interfaces = _interfaces(host)
    if host.live and pairs:
        time.sleep(max(0.0, WINDOW_S - (time.monotonic() - started_s)))
    ports = _ports(host, devices, pairs)
    return NetworkFacts(
        sysctls={key: sysctl(host, key) for key in SYSCTLS},
        interfaces=interfaces,
        ports=ports,
        sockets=reading.parsed(host, "/proc/net/sockstat", _sockets),
        listen=_listen(host),
        clock_synchronised=_clock(host),
        gpu_neighbours={} if isinstance(ports, Unknown) else {p.bdf: _neighbours(host, p.bdf) for p in ports},
    )


def _interfaces(host: Host) -> tuple[Interface, ...] | Unknown:
    names = host.list("/sys/class/net")
    if isinstance(names, Unknown):
        return _printed_interfaces(host) or names
    found = []
    for name in names:
        folder = f"/sys/class/net/{name}"
        device = host.link(f"{folder}/device")
        if isinstance(device, Unknown):
            continue
        masks = [reading.text(host, path) for path in host.glob(f"{folder}/queues/rx-*/rps_cpus")]
        found.append(
            Interface(
                name,
                device.rpartition("/")[2],
                reading.text(host, f"{folder}/operstate"),
                reading.integer(host, f"{folder}/mtu"),
                reading.integer(host, f"{folder}/speed"),
                reading.integer(host, f"{folder}/device/numa_node"),
                tuple(mask for mask in masks if not isinstance(mask, Unknown)),
            )
        )
    return tuple(found)


def _port_folders(host: Host, devices: tuple[str, ...] | Unknown) -> list[tuple[str, int, str]]:
    found = []
    for device in () if isinstance(devices, Unknown) else devices:
        numbers = host.list(f"/sys/class/infiniband/{device}/ports")
        for number in () if isinstance(numbers, Unknown) else numbers:
            if number.isdecimal():
                found.append((device, int(number), f"/sys/class/infiniband/{device}/ports/{number}"))
    return found


def _ports(
    host: Host, devices: tuple[str, ...] | Unknown, pairs: list[tuple[str, int, str]]
) -> tuple[RdmaPort, ...] | Unknown:
    if isinstance(devices, Unknown):
        if not devices.absent:
            return _printed_ports(host) or reading.settled_by(devices, "ibstat")
        # No class folder: the RDMA core is not loaded. On attached files it only means that nobody attached it.
        return () if not isinstance(host.list("/sys/class/net"), Unknown) else devices
    return tuple(_port(host, *pair) for pair in pairs)


def _port(host: Host, device: str, number: int, folder: str) -> RdmaPort:
    root = f"/sys/class/infiniband/{device}"
    link = host.link(f"{root}/device")
    rate = reading.text(host, f"{folder}/rate")
    match = None if isinstance(rate, Unknown) else re.match(r"([\d.]+) Gb/sec", rate)
    netdevs = host.list(f"{root}/device/net")
    types = [reading.text(host, path) for path in host.glob(f"{folder}/gid_attrs/types/*")]
    return RdmaPort(
        device=device,
        port=number,
        bdf="" if isinstance(link, Unknown) else link.rpartition("/")[2],
        numa_node=reading.integer(host, f"{root}/device/numa_node"),
        interface=netdevs[0] if not isinstance(netdevs, Unknown) and netdevs else "",
        state=_after_colon(reading.text(host, f"{folder}/state")),
        physical=_after_colon(reading.text(host, f"{folder}/phys_state")),
        rate_gbps=rate
        if isinstance(rate, Unknown)
        else float(match[1])
        if match
        else Unknown(f"rate: {rate!r}"),
        rate_text=rate,
        layer=reading.text(host, f"{folder}/link_layer"),
        errors=_errors(host, folder),
        gid_types=tuple(sorted({kind for kind in types if not isinstance(kind, Unknown)})),
        vendor=reading.text(host, f"{root}/device/vendor"),
        relaxed_ordering=_relaxed(host, f"{root}/device/config"),
    )


def _printed_ports(host: Host) -> tuple[RdmaPort, ...]:
    """Ports of attached ibstat or ibv_devinfo output; counters are not in it."""
    missing = Unknown("not in the attached output")
    for tool in ("ibstat", "ibv_devinfo"):
        answer = host.run((tool,))
        ports = () if isinstance(answer, Unknown) else ibstat.parse(answer.stdout)
        if ports:
            return tuple(
                RdmaPort(
                    device=port.device,
                    port=port.number,
                    bdf="",
                    numa_node=missing,
                    interface="",
                    state=port.state or missing,
                    physical=port.physical or missing,
                    rate_gbps=missing if port.rate_gbps is None else port.rate_gbps,
                    rate_text=missing if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/s",
                    layer=port.layer or missing,
                    errors={},
                    gid_types=port.gid_types or missing,
                    vendor=missing,
                    relaxed_ordering=missing,
                )
                for port in ports
            )
    return ()


def _printed_interfaces(host: Host) -> tuple[Interface, ...]:
    """Interfaces of attached `ip addr` output, without loopback and what containers make."""
    answer = host.run(("ip", "addr"))
    missing = Unknown("not in the attached output")
    return tuple(
        Interface(
            one.name,
            "",
            missing if one.up is None else "up" if one.up else "down",
            missing if one.mtu is None else one.mtu,
            missing,
            missing,
            (),
        )
        for one in (() if isinstance(answer, Unknown) else ip_addr.parse(answer.stdout))
        if not re.match(r"lo$|docker|veth|br-|cni|cali|flannel|virbr|tun|tap|podman", one.name)
    )


def _after_colon(found: str | Unknown) -> str | Unknown:
    """`4: ACTIVE` → ACTIVE."""
    return found if isinstance(found, Unknown) else found.rpartition(":")[2].strip()


def _errors(host: Host, folder: str) -> dict[str, Counter]:
    found: dict[str, Counter] = {}
    for name in _ERRORS:
        first = reading.integer(host, f"{folder}/{name}")
        second = reading.number(_stripped(host.read(f"{folder}/{name}", sample=2)), name)
        if isinstance(first, int):
            found[name.rpartition("/")[2]] = Counter(first, second if isinstance(second, int) else first)
    return found


def _stripped(found: str | Unknown) -> str | Unknown:
    return found if isinstance(found, Unknown) else found.strip()


def _relaxed(host: Host, path: str) -> bool | Unknown:
    """Relaxed ordering of the PCI Express capability: Device Control, bit 4."""
    data = host.read_bytes(path)
    if isinstance(data, Unknown):
        return data
    if len(data) < 256:
        return Unknown(f"{path}: only {len(data)} bytes can be read; root sees more")
    at, steps = data[0x34] & 0xFC, 0
    while 0x40 <= at < 246 and steps < 48:
        if data[at] == 0x10:
            return bool(int.from_bytes(data[at + 8 : at + 10], "little") & 0x10)
        at, steps = data[at + 1] & 0xFC, steps + 1
    return Unknown(f"{path}: no PCI Express capability")


def _sockets(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        pairs = zip(words[::2], words[1::2], strict=False)
        found |= {f"{name} {key}": int(value) for key, value in pairs if value.isdecimal()}
    return found


def _listen(host: Host) -> dict[str, Counter] | Unknown:
    tables = []
    for sample in (1, 2):
        text = host.read("/proc/net/netstat", sample=sample)
        if isinstance(text, Unknown):
            return text
        rows = [line.split() for line in text.splitlines() if line.startswith("TcpExt:")]
        if len(rows) < 2:
            return Unknown("/proc/net/netstat has no TcpExt rows")
        tables.append({k: int(v) for k, v in zip(rows[0][1:], rows[1][1:], strict=False) if v.isdecimal()})
    return {
        name: Counter(tables[0][name], tables[1].get(name, tables[0][name]))
        for name in ("ListenOverflows", "ListenDrops")
        if name in tables[0]
    }


def _clock(host: Host) -> bool | Unknown:
    found = host.query("clock:")
    if isinstance(found, Unknown):
        return found
    return bool(found["synchronised"]) if isinstance(found, dict) else Unknown("clock: no answer")


def _neighbours(host: Host, bdf: str) -> tuple[str, ...]:
    """GPUs that share a switch or a root port with an RDMA function, by their sysfs paths."""
    own = host.link(f"/sys/bus/pci/devices/{bdf}")
    names = host.list("/sys/bus/pci/devices")
    if isinstance(own, Unknown) or isinstance(names, Unknown):
        return ()
    above = own.split("/")
    # /sys/devices/pci0000:40/<root port>/…: two functions are near where they share the root port.
    port = above[4] if len(above) > 5 else ""
    found = []
    for name in names if port else ():
        kind = reading.text(host, f"/sys/bus/pci/devices/{name}/class")
        if not isinstance(kind, Unknown) and kind.startswith(("0x0302", "0x0300", "0x1200")):
            link = host.link(f"/sys/bus/pci/devices/{name}")
            if not isinstance(link, Unknown) and port in link.split("/"):
                found.append(name)
    return tuple(found)
