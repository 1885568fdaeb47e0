"""Container, LXC and virtual machine: what hides or limits the host."""

import msgspec

from uncork.model.unknown import Unknown


class Layer(msgspec.Struct, frozen=True):
    """One shell around this process: a virtual machine or a container, and how it was told."""

    kind: str  # vm, docker, podman, kubernetes, lxc, systemd-nspawn, wsl, container
    evidence: str


class Machine(msgspec.Struct, frozen=True):
    """The virtual machine this is."""

    hypervisor: str  # qemu, kvm, firecracker, amazon, google, microsoft, vmware, xen, …
    model: str  # q35, i440fx, or the DMI product name; "" where the hypervisor shows none
    evidence: str


class Node(msgspec.Struct, frozen=True):
    """A device node: `device` is major:minor, `read` and `write` what access(2) lets through."""

    path: str
    device: str
    mode: str
    read: bool
    write: bool


class Counter(msgspec.Struct, frozen=True):
    """A counter read twice: at first, and after a short window."""

    before: int
    after: int


class Cgroup(msgspec.Struct, frozen=True):
    """The limits of one control group. `None` is no limit; `Unknown` (absent) has no such controller."""

    path: str
    unified: bool  # version 2
    cpu_quota: float | Unknown | None  # CPUs
    cpu_weight: int | Unknown
    periods: Counter | Unknown
    throttled: Counter | Unknown
    cpu_pressure: float | Unknown  # some avg10, per cent
    memory_max_bytes: int | Unknown | None
    memory_high_bytes: int | Unknown | None
    memory_bytes: int | Unknown
    memory_file_bytes: int | Unknown  # inactive page cache: given back without writing
    memory_events: dict[str, int] | Unknown
    pids_max: int | Unknown | None
    pids: int | Unknown
    io_max: str | Unknown  # the lines of io.max
    cpuset: tuple[int, ...] | Unknown
    memset: tuple[int, ...] | Unknown


class Confined(msgspec.Struct, frozen=True):
    """What one process may use: a serving process, or this one (`pid` 0) where none serves."""

    pid: int
    start_ticks: int | Unknown  # with the pid: names the process even after the pid is reused
    name: str | Unknown
    capabilities: int | Unknown  # CapEff
    seccomp: int | Unknown  # 0 off, 1 strict, 2 filter
    limits: dict[str, tuple[int | None, int | None]] | Unknown  # name → soft, hard; None is unlimited
    open_files: int | Unknown
    cpus_allowed: tuple[int, ...] | Unknown
    memory_nodes_allowed: tuple[int, ...] | Unknown
    swap_bytes: int | Unknown
    map_count: int | Unknown
    wait_ns: Counter | Unknown  # runnable and waiting (schedstat)
    run_ns: Counter | Unknown
    cgroups: tuple[Cgroup, ...] | Unknown  # its own first, then the ones above
    cgroup_path: str | Unknown
    shm_size_bytes: int | Unknown
    shm_free_bytes: int | Unknown
    containerised: bool | Unknown  # other namespaces than this machine's first process


class Said(msgspec.Struct, frozen=True):
    """What attached texts say of limits: inspect output, logs, a reporter's words. None is not said."""

    shm_bytes: int | None = None
    shm_line: str = ""  # the words, or NCCL failing to get shared memory
    shm_failed: bool = False
    cpu_limit: float | None = None
    cpus_seen: int | None = None
    throttled_ratio: float | None = None
    pids_limit: int | None = None
    threads_refused: tuple[str, ...] = ()  # EAGAIN
    process_limit: int | None = None
    device_rules: tuple[str, ...] = ()  # of the device cgroup, about NVIDIA's major
    locked: tuple[tuple[str, int | None], ...] = ()  # where, soft limit in bytes (None: unlimited)
    registration_failed: str = ""  # a log line: memory could not be registered with an adapter
    nvml_unknown_error: str = ""
    files_exhausted: str = ""  # EMFILE
    policy_refused: str = ""  # set_mempolicy, mbind: EPERM
    intercepted: str = ""  # a GPU-sharing layer names itself
    gpu_limit: int | None = None  # GPUs of a pod
    nvidia_nodes: tuple[str, ...] = ()  # names in an attached listing of /dev


class ContainerFacts(msgspec.Struct, frozen=True):
    """Container, LXC and virtual machine: what hides or limits the host."""

    layers: tuple[Layer, ...] | Unknown  # outermost first
    contained: bool | Unknown  # this process lives in a container
    unprivileged: bool | Unknown  # its root is nobody special on the host
    machine: Machine | Unknown | None  # None: bare metal
    lxcfs: tuple[str, ...] | Unknown  # paths that lxcfs answers
    read_only: tuple[str, ...] | Unknown  # of /proc/sys and /sys
    refused: dict[str, str] | Unknown  # setting that cannot be opened for writing → why
    majors: dict[str, int] | Unknown  # character device drivers of the kernel
    nodes: tuple[Node, ...] | Unknown  # GPU and RDMA device nodes
    char_links: tuple[str, ...] | Unknown  # names in /dev/char of NVIDIA's majors
    gpu_functions: int | Unknown  # display functions of GPU vendors on the PCI bus
    nvidia_module: bool | Unknown
    uvm_module: bool | Unknown
    mig_capabilities: tuple[tuple[str, int], ...] | Unknown  # /proc capability → minor it needs
    rdma_devices: tuple[str, ...] | Unknown
    docker_cgroup_driver: str | Unknown
    mempolicy: str | Unknown  # "allowed", or why set_mempolicy is refused
    processes: tuple[Confined, ...] | Unknown
    steal: Counter | Unknown  # USER_HZ ticks
    ticks: Counter | Unknown
    said: Said
    guests: tuple[str, ...] | Unknown  # virtual machines this host runs
