"""Container, LXC and virtual machine: what hides or limits the host."""

import re
import time
from collections.abc import Callable

from uncork.explorers import confinement, layers, reading, serving
from uncork.explorers.container_said import said
from uncork.host import Host
from uncork.host.recording import RecordingHost
from uncork.model.facts.container import ContainerFacts, Counter, Layer, Machine, Node
from uncork.model.unknown import Unknown
from uncork.parsers import procfs

WINDOW_S = 0.25
# One setting of each family that a plan may write; opened for writing, never written.
PROBES = (
    "/proc/sys/vm/swappiness",
    "/proc/sys/net/core/somaxconn",
    "/sys/kernel/mm/transparent_hugepage/defrag",
)
_NODES = (
    "/dev/nvidia[0-9]*",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-caps/nvidia-cap[0-9]*",
    "/dev/nvidia-caps-imex-channels/channel[0-9]*",
    "/dev/dri/renderD*",
    "/dev/kfd",
    "/dev/infiniband/*",
)
_GPU_VENDORS = ("0x10de", "0x1002")


def explore(host: Host) -> ContainerFacts:
    """Read namespaces, mounts, control groups, limits and device nodes; counters twice within `WINDOW_S`."""
    # Remembering every answer makes the first sample of a counter stay the first one.
    pids = serving.pids(host)
    guests = _guests(host)
    host = RecordingHost(host)
    confinement.prime(host, pids)
    host.read("/proc/stat")
    machine = layers.machine(host)
    if host.live and (pids or machine is not None):
        time.sleep(WINDOW_S)
    mounts = reading.parsed(host, "/proc/self/mountinfo", procfs.mounts)
    contained = reading.settled_by(_contained(host), "`ls -l /proc/self/ns`")
    ticks, steal = _ticks(host)
    modules = reading.parsed(host, "/proc/modules", _first_words)
    return ContainerFacts(
        layers=_layers(host, machine, contained),
        contained=contained,
        unprivileged=_unprivileged(host),
        machine=machine,
        lxcfs=_points(mounts, lambda mount: mount.type == "fuse.lxcfs"),
        read_only=_points(
            mounts, lambda mount: mount.point in ("/proc/sys", "/sys") and "ro" in mount.options
        ),
        refused=_refused(host),
        majors=reading.parsed(host, "/proc/devices", procfs.character_majors),
        nodes=_nodes(host),
        char_links=_char_links(host),
        gpu_functions=_gpu_functions(host),
        nvidia_module=reading.settled_by(_module(host, modules, "nvidia"), "lsmod"),
        uvm_module=_module(host, modules, "nvidia_uvm"),
        mig_capabilities=_capabilities(host),
        rdma_devices=reading.settled_by(host.list("/sys/class/infiniband"), "ibstat"),
        docker_cgroup_driver=_docker_driver(host),
        mempolicy=_word(host.query("mempolicy:")),
        processes=confinement.confined(host, pids),
        steal=steal,
        ticks=ticks,
        said=said(host),
        guests=guests,
    )


def _first_words(text: str) -> set[str]:
    return {line.split(" ")[0] for line in text.splitlines()}


def _contained(host: Host) -> bool | Unknown:
    inodes = layers.namespaces(host)
    if isinstance(inodes, Unknown):
        return inodes
    return bool({"user", "pid", "cgroup", "ipc"} & set(layers.foreign(inodes)))


def _layers(
    host: Host, machine: Machine | Unknown | None, contained: bool | Unknown
) -> tuple[Layer, ...] | Unknown:
    if isinstance(contained, Unknown):
        return contained
    found = []
    if isinstance(machine, Machine):
        found.append(Layer(f"vm ({machine.hypervisor})", machine.evidence))
    if contained:
        foreign = layers.namespaces(host)
        kinds = () if isinstance(foreign, Unknown) else layers.foreign(foreign)
        own = f"{', '.join(kinds)} namespaces are not the machine's first ones"
        found.append(layers.container_kind(host) or Layer("container", own))
    return tuple(found)


def _unprivileged(host: Host) -> bool | Unknown:
    text = host.read("/proc/self/uid_map")
    if isinstance(text, Unknown):
        return text
    return text.split() != ["0", "0", "4294967295"]


def _points(
    mounts: tuple[procfs.Mount, ...] | Unknown, keep: Callable[[procfs.Mount], bool]
) -> tuple[str, ...] | Unknown:
    if isinstance(mounts, Unknown):
        return mounts
    return tuple(mount.point for mount in mounts if keep(mount))


def _refused(host: Host) -> dict[str, str] | Unknown:
    found: dict[str, str] = {}
    for path in PROBES:
        why = host.query(f"writable:{path}")
        if isinstance(why, Unknown):
            if not why.absent:
                return why
        elif why:
            found[path] = str(why)
    return found


def _nodes(host: Host) -> tuple[Node, ...] | Unknown:
    listed = host.list("/dev")
    if isinstance(listed, Unknown):
        return listed
    found = []
    for pattern in _NODES:
        for path in host.glob(pattern):
            answer = host.query(f"access:{path}")
            if isinstance(answer, dict):
                device = str(answer.get("device", ""))
                found.append(
                    Node(path, device, str(answer["mode"]), bool(answer["read"]), bool(answer["write"]))
                )
    return tuple(found)


def _char_links(host: Host) -> tuple[str, ...] | Unknown:
    names = host.list("/dev/char")
    return names if isinstance(names, Unknown) else tuple(name for name in names if name.startswith("195:"))


def _gpu_functions(host: Host) -> int | Unknown:
    names = host.list("/sys/bus/pci/devices")
    if isinstance(names, Unknown):
        return names
    count = 0
    for name in names:
        kind = reading.text(host, f"/sys/bus/pci/devices/{name}/class")
        if not isinstance(kind, Unknown) and (kind.startswith(("0x03", "0x1200"))):
            vendor = reading.text(host, f"/sys/bus/pci/devices/{name}/vendor")
            count += not isinstance(vendor, Unknown) and vendor in _GPU_VENDORS
    return count


def _module(host: Host, modules: set[str] | Unknown, name: str) -> bool | Unknown:
    if host.exists(f"/sys/module/{name}") is True:
        return True
    if isinstance(modules, Unknown):
        # A kernel without loadable modules has the folder but not the list.
        return False if modules.absent and host.exists("/sys/module") is True else modules
    return name in modules


def _capabilities(host: Host) -> tuple[tuple[str, int], ...] | Unknown:
    """MIG and fabric capabilities that the driver offers, with the minor of the node each needs."""
    root = "/proc/driver/nvidia/capabilities"
    there = host.exists(root)
    if isinstance(there, Unknown):
        return there
    if not there:
        return ()
    found = []
    for path in (
        *host.glob(f"{root}/mig/*"),
        *host.glob(f"{root}/gpu*/mig/gi*/access"),
        *host.glob(f"{root}/gpu*/mig/gi*/ci*/access"),
        *host.glob(f"{root}/fabric-*"),
    ):
        text = host.read(path)
        if not isinstance(text, Unknown) and (match := re.search(r"DeviceFileMinor:\s*(\d+)", text)):
            found.append((path.removeprefix(root + "/"), int(match[1])))
    return tuple(found)


def _docker_driver(host: Host) -> str | Unknown:
    """The cgroup driver that /etc/docker/daemon.json chooses; systemd where it is silent on a v2 host."""
    text = host.read("/etc/docker/daemon.json")
    if isinstance(text, Unknown):
        return text
    match = re.search(r"native\.cgroupdriver=(\w+)", text)
    if match:
        return match[1]
    # Docker's default since 20.10 on cgroup v2 (dockerd reference, "native.cgroupdriver").
    return "systemd" if host.exists("/sys/fs/cgroup/cgroup.controllers") is True else "cgroupfs"


def _word(found: object | Unknown) -> str | Unknown:
    return found if isinstance(found, Unknown) else str(found)


def _ticks(host: Host) -> tuple[Counter | Unknown, Counter | Unknown]:
    """All CPU ticks and the stolen ones (proc(5): the eighth field) in both samples."""
    pairs = []
    for sample in (1, 2):
        text = host.read("/proc/stat", sample=sample)
        if isinstance(text, Unknown):
            return text, text
        fields = re.findall(r"\d+", text.partition("\n")[0])
        if len(fields) < 8:
            return (missing := Unknown("/proc/stat has no steal field", absent=True)), missing
        # guest and guest_nice (fields 9, 10) are counted in user and nice already
        pairs.append((sum(map(int, fields[:8])), int(fields[7])))
    (all_before, steal_before), (all_after, steal_after) = pairs
    return Counter(all_before, all_after), Counter(steal_before, steal_after)


def _guests(host: Host) -> tuple[str, ...] | Unknown:
    """Virtual machines that this machine runs."""
    every = serving.commands(host)
    if isinstance(every, Unknown):
        return every
    return tuple(
        f"{argv[0].rpartition('/')[2]} (pid {pid})"
        for pid, argv in every.items()
        if re.match(
            r"(qemu-system|qemu-kvm|kvm$|cloud-hypervisor|firecracker$|crosvm)", argv[0].rpartition("/")[2]
        )
    )
