"""Device nodes of GPUs and RDMA adapters."""

from collections.abc import Iterator

from uncork.checks import HOST_ONLY, P0, P1, RUNTIME, Verdict, check, fails, not_applicable, passes, unknown
from uncork.checks.hosts import known, seen, serving
from uncork.model.facts import Facts
from uncork.model.facts.container import Node
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown


def _nodes(facts: Facts, prefix: str) -> tuple[Node, ...]:
    return tuple(node for node in known(facts.container.nodes) if node.path.startswith(prefix))


def _gpu_nodes(facts: Facts) -> tuple[Node, ...]:
    nvidia = tuple(n for n in _nodes(facts, "/dev/nvidia") if n.path.removeprefix("/dev/nvidia").isdecimal())
    return nvidia or _nodes(facts, "/dev/dri/renderD")


@check("container.gpu-device-nodes", P0, HOST_ONLY)
def gpu_nodes(facts: Facts) -> Iterator[Verdict]:
    """The nodes of every GPU are here and may be opened.

    Effect: the engine does not start, or misses GPUs
    Sure: high
    Fix: LXC: lxc.cgroup2.devices.allow for major 195 and the majors of nvidia-uvm and nvidia-caps, and a mount
        entry each; Docker: --gpus or CDI. Majors other than 195 change at every boot: read /proc/devices
    Undo: the former configuration
    Wrong when: fewer GPUs than the host has were passed on purpose
    Source: lxc.container.conf(5); NVIDIA container toolkit
    """
    if not facts.container.contained:
        yield not_applicable("not in a container")
        return
    if not known(facts.container.gpu_functions):
        yield not_applicable("no GPU on this host's bus")
        return
    nodes = _gpu_nodes(facts)
    control = _nodes(facts, "/dev/nvidiactl") or _nodes(facts, "/dev/kfd")
    if not nodes:
        text = f"{facts.container.gpu_functions} GPUs on the bus, no node in /dev"
        yield fails("the GPUs of this host were not passed in", evidence=seen("/dev", text))
        return
    shut = [node for node in (*nodes, *control) if not (node.read and node.write)]
    for node in shut:
        # access(2) asks the mode first: a mode that lets everybody in leaves the device cgroup.
        why = "the device cgroup" if node.mode[-1] in "67" else "its mode or the user map"
        evidence = seen(node.path, f"{node.device} mode {node.mode}: access refused by {why}")
        yield fails(f"{node.path} may not be opened", node.path, evidence=evidence)
    if not control:
        yield fails(
            "the control node (/dev/nvidiactl or /dev/kfd) is missing", evidence=seen("/dev", "absent")
        )
    elif not shut:
        yield passes(
            f"{len(nodes)} GPU nodes may be opened", evidence=seen("/dev", ", ".join(n.path for n in nodes))
        )


@check("container.nvidia-caps-nodes", P1, HOST_ONLY)
def capability_nodes(facts: Facts) -> Iterator[Verdict]:
    """The capability nodes of MIG instances and of the fabric are here.

    Effect: users of MIG or IMEX fail when they initialise
    Sure: high
    Fix: pass /dev/nvidia-caps/nvidia-capN with the minor that the file in /proc names
    Undo: the former configuration
    Source: NVIDIA container toolkit; NVIDIA MIG user guide, device nodes and capabilities
    """
    wanted = [
        (name, minor) for name, minor in known(facts.container.mig_capabilities) if name.startswith("gpu")
    ]
    if not wanted:
        yield not_applicable("no MIG instance exists")
        return
    there = {
        node.path.removeprefix("/dev/nvidia-caps/nvidia-cap") for node in _nodes(facts, "/dev/nvidia-caps/")
    }
    missing = [name for name, minor in wanted if str(minor) not in there]
    if missing:
        says = f"{len(missing)} of {len(wanted)} MIG capability nodes are missing"
        yield fails(says, evidence=seen("/proc/driver/nvidia/capabilities", missing[0]))
    else:
        yield passes(
            "MIG capability nodes are here", evidence=seen("/dev/nvidia-caps", f"{len(there)} nodes")
        )


@check("container.uvm-node-missing", P0, RUNTIME)
def uvm_node(facts: Facts) -> Iterator[Verdict]:
    """The nvidia-uvm module and its node are there.

    Effect: cuInit fails although nvidia-smi works
    Sure: high
    Fix: modprobe nvidia-uvm and nvidia-modprobe -u -c 0 on the host; an LXC guest must start after the node exists
    Undo: rmmod nvidia-uvm when nothing uses it
    Source: lxc.container.conf(5); nvidia-modprobe(1)
    """
    listed = facts.container.said.nvidia_nodes
    if "nvidiactl" in listed:
        if "nvidia-uvm" in listed:
            yield passes("nvidia-uvm is there", evidence=seen("attached listing", ", ".join(listed)))
        else:
            yield fails("the listing has no nvidia-uvm", evidence=seen("attached listing", ", ".join(listed)))
        return
    nvidia = facts.container.nvidia_module
    if not known(nvidia):
        yield not_applicable("the NVIDIA module is not loaded")
        return
    majors = known(facts.container.majors)
    loaded = facts.container.uvm_module is True or "nvidia-uvm" in majors
    if not loaded:
        change = Change("module", "nvidia_uvm", "loaded", before="absent")
        yield fails(
            "nvidia-uvm is not loaded", evidence=seen("/proc/devices", "no line nvidia-uvm"), change=change
        )
    elif not _nodes(facts, "/dev/nvidia-uvm"):
        says = "/dev/nvidia-uvm is missing although the module is loaded"
        yield fails(says, evidence=seen("/proc/devices", f"{majors.get('nvidia-uvm', '?')} nvidia-uvm"))
    else:
        yield passes(
            "nvidia-uvm is ready",
            evidence=seen("/dev/nvidia-uvm", _nodes(facts, "/dev/nvidia-uvm")[0].device),
        )


@check("container.infiniband-nodes", P1, HOST_ONLY)
def infiniband_nodes(facts: Facts) -> Iterator[Verdict]:
    """RDMA device nodes were passed in.

    Effect: NCCL falls back to sockets without an error
    Sure: high
    Fix: --device=/dev/infiniband, or lxc.cgroup2.devices.allow for major 231 with its mounts
    Undo: the former configuration
    Wrong when: the adapters are not meant for this container: what sysfs shows is not a permission
    Source: lxc.container.conf(5); NCCL environment variables
    """
    devices = facts.container.rdma_devices
    if (is_unknown(devices) and devices.absent) or not known(devices):
        yield not_applicable("no RDMA device")
        return
    if not facts.container.contained:
        yield not_applicable("not in a container")
        return
    verbs = _nodes(facts, "/dev/infiniband/uverbs")
    shut = [node.path for node in verbs if not (node.read and node.write)]
    evidence = seen(
        "/sys/class/infiniband, /dev/infiniband", f"{len(devices)} devices, {len(verbs)} uverbs nodes"
    )
    if not verbs:
        yield fails("RDMA devices are visible, but none was passed in", evidence=evidence)
    elif shut:
        yield fails(f"{shut[0]} may not be opened", evidence=evidence)
    else:
        yield passes("RDMA nodes may be opened", evidence=evidence)


@check("container.systemd-daemon-reload-gpu-loss", P1, HOST_ONLY)
def daemon_reload(facts: Facts) -> Iterator[Verdict]:
    """Containers keep their GPUs when systemd reloads.

    Effect: running servers lose all GPUs at the next `systemctl daemon-reload` (an unattended upgrade runs one)
    Sure: high
    Fix: nvidia-ctk system create-dev-char-symlinks --create-all on the host (adds links only), then CDI
    Undo: remove the links
    Wrong when: CDI or explicit --device is used
    Source: NVIDIA/nvidia-container-toolkit issues 48 and 251
    """
    said = facts.container.said
    error = said.nvml_unknown_error or facts.driver.nvml_error
    if "Unknown Error" in error and not _refuses_all(facts):
        evidence = seen("NVML", error) + (
            seen("device cgroup", "; ".join(said.device_rules)) if said.device_rules else ()
        )
        yield fails("NVML lost the GPUs inside a container", evidence=evidence)
        return
    count = facts.container.gpu_functions
    if not is_unknown(count) and not count:
        yield not_applicable("no GPU on this host's bus")
        return
    if facts.container.contained:
        yield unknown("whether /dev/char has links to the GPUs is visible on the host only")
        return
    driver = facts.container.docker_cgroup_driver
    grouped = [p for p in serving(facts) if not is_unknown(p.cgroup_path) and _by_systemd(p.cgroup_path)]
    if is_unknown(driver) and driver.absent and not grouped:
        yield not_applicable("no container runtime with the systemd cgroup driver is seen")
        return
    if not known(facts.container.nvidia_module) or not (grouped or known(driver) == "systemd"):
        yield not_applicable("no NVIDIA container under systemd")
        return
    links = known(facts.container.char_links)
    evidence = seen("/dev/char", f"{len(links)} links of major 195")
    if links:
        yield passes("/dev/char has links to the GPUs", evidence=evidence)
    else:
        yield fails("a systemd reload will take the GPUs from containers", evidence=evidence)


def _by_systemd(path: str) -> bool:
    return path.endswith(".scope") and any(
        mark in path for mark in ("docker", "cri-containerd", "crio", "libpod")
    )


def _refuses_all(facts: Facts) -> bool:
    """Whether the GPU nodes are not there at all, which is another fault."""
    nodes = facts.container.nodes
    return not is_unknown(nodes) and facts.container.contained is True and not _gpu_nodes(facts)
