"""Which shells stand around this process: virtual machines and containers.

The initial namespaces have fixed inode numbers (include/linux/proc_ns.h), so a process with those numbers is
not in a container whatever files an image left behind: /.dockerenv alone proves nothing.
"""

import re

from uncork.explorers import reading
from uncork.host import Host
from uncork.model.facts.container import Layer, Machine
from uncork.model.unknown import Unknown

# PROC_*_INIT_INO of the kernel; net and mnt have fixed numbers only on new kernels and are left out.
INITIAL = {
    "user": 4026531837,
    "pid": 4026531836,
    "cgroup": 4026531835,
    "uts": 4026531838,
    "ipc": 4026531839,
    "time": 4026531834,
}
_VENDORS = (
    ("amazon ec2", "amazon"),
    ("google", "google"),
    ("microsoft corporation", "microsoft"),
    ("vmware", "vmware"),
    ("xen", "xen"),
    ("qemu", "qemu"),
    ("openstack", "qemu"),
    ("kvm", "kvm"),
    ("innotek", "virtualbox"),
    ("alibaba cloud", "alibaba"),
    ("tencent cloud", "tencent"),
    ("oraclecloud", "oracle"),
)


def namespaces(host: Host, pid: str = "self") -> dict[str, int] | Unknown:
    """Inode numbers of a process's namespaces by kind."""
    found: dict[str, int] = {}
    reason: Unknown | None = None
    for kind in INITIAL:
        link = host.link(f"/proc/{pid}/ns/{kind}")
        if isinstance(link, Unknown):
            reason = link
        elif match := re.search(r"\[(\d+)\]$", link):
            found[kind] = int(match[1])
    if found or reason is None:
        return found or Unknown(f"/proc/{pid}/ns has no namespaces")
    return reason


def foreign(inodes: dict[str, int]) -> tuple[str, ...]:
    """Namespaces that are not the machine's first ones."""
    return tuple(kind for kind, inode in inodes.items() if inode != INITIAL[kind])


def container_kind(host: Host) -> Layer | None:
    """The container this process says it is in, by what its manager leaves inside."""
    manager = reading.text(host, "/run/host/container-manager")
    if not isinstance(manager, Unknown) and manager:
        return Layer(_kind(manager), "/run/host/container-manager")
    inside = reading.text(host, "/run/systemd/container")
    if not isinstance(inside, Unknown) and inside:
        return Layer(_kind(inside), "/run/systemd/container")
    environment = host.read("/proc/1/environ")
    if not isinstance(environment, Unknown):
        for entry in environment.split("\0"):
            name, _, value = entry.partition("=")
            if name == "container" and value:
                return Layer(_kind(value), "container= of /proc/1/environ")

    group = host.read("/proc/self/cgroup")
    if not isinstance(group, Unknown) and "kubepods" in group:
        return Layer("kubernetes", "kubepods in /proc/self/cgroup")
    for path, kind in (
        ("/run/.containerenv", "podman"),
        ("/dev/lxd", "lxc"),
        ("/dev/incus", "lxc"),
        ("/var/run/secrets/kubernetes.io", "kubernetes"),
        ("/.dockerenv", "docker"),
    ):
        if host.exists(path) is True:
            return Layer(kind, path)
    return None


def _kind(word: str) -> str:
    return "lxc" if word.startswith("lxc") else "docker" if word.startswith("docker") else word.split()[0]


def machine(host: Host) -> Machine | Unknown | None:
    """The virtual machine this is, None on bare metal.

    The processor's hypervisor bit is the proof on x86; DMI names and /sys/hypervisor say which one.
    """
    vendor = reading.text(host, "/sys/class/dmi/id/sys_vendor")
    product = reading.text(host, "/sys/class/dmi/id/product_name")
    if isinstance(vendor, Unknown):
        vendor, product = _from_dmidecode(host)
    words = " ".join(word for word in (vendor, product) if not isinstance(word, Unknown)).lower()
    named = next((name for mark, name in _VENDORS if mark in words), "")
    if "bare metal" in words or ".metal" in words:
        named = ""
    flags = _hypervisor_bit(host)
    model = "" if isinstance(product, Unknown) else product
    if "q35" in model.lower():
        model = "q35"
    elif "i440fx" in model.lower():
        model = "i440fx"
    if flags is True or (named and flags is not False):
        evidence = f"DMI {words!r}" if named else "the processor's hypervisor flag"
        return Machine(named or _hypervisor_name(host), model, evidence)
    said = _said(host)
    if isinstance(said, Machine):
        return said
    if flags is False:
        return None
    if words:
        return None
    if device := _emulated(host):
        return Machine("unnamed hypervisor", "", f"lspci: {device}")
    return Unknown("neither DMI names nor processor flags can be read here; lscpu or dmidecode tells")


def _hypervisor_bit(host: Host) -> bool | Unknown:
    text = host.read("/proc/cpuinfo")
    if isinstance(text, Unknown):
        answer = host.run(("lscpu",))
        if isinstance(answer, Unknown):
            return answer
        text = answer.stdout
        if re.search(r"^Hypervisor vendor:", text, re.M):
            return True
    match = re.search(r"^[Ff]lags\s*:(.*)$", text, re.M)
    if not match:  # arm64 and ppc64 have no such flag
        return Unknown("the processor shows no hypervisor flag on this architecture")
    return "hypervisor" in match[1].split()


def _hypervisor_name(host: Host) -> str:
    kind = reading.text(host, "/sys/hypervisor/type")
    if not isinstance(kind, Unknown) and kind:
        return kind
    command = host.read("/proc/cmdline")
    if not isinstance(command, Unknown) and "firecracker" in command:
        return "firecracker"
    clock = reading.text(host, "/sys/devices/system/clocksource/clocksource0/available_clocksource")
    if not isinstance(clock, Unknown):
        if "kvm-clock" in clock:
            return "kvm"
        if "hyperv" in clock:
            return "microsoft"
    return "unnamed hypervisor"


def _from_dmidecode(host: Host) -> tuple[str | Unknown, str | Unknown]:
    answer = host.run(("dmidecode",))
    text = "" if isinstance(answer, Unknown) else answer.stdout
    part = text.partition("System Information")[2].partition("\nHandle")[0]
    maker = re.search(r"Manufacturer:\s*(.*)", part)
    product = re.search(r"Product Name:\s*(.*)", part)
    missing = Unknown("no DMI names can be read here")
    return maker[1].strip() if maker else missing, product[1].strip() if product else missing


def _emulated(host: Host) -> str:
    """A device of attached `lspci` that only a hypervisor presents; nothing on a live host, which tells directly."""
    answer = Unknown("a live host") if host.live else host.run(("lspci",))
    if isinstance(answer, Unknown):
        return ""
    from uncork.parsers import lspci

    return next((one.name for one in lspci.parse(answer.stdout) if lspci.is_virtual(one)), "")


def _said(host: Host) -> Machine | None:
    """What a reporter says of the machine in words of their own."""
    for kind in ("statements", "unrecognised"):
        for text in reading.attached(host, kind):
            if match := re.search(r"^.*\b(qemu|kvm|vmware|proxmox|hyper-v|xen|esxi)\b.*$", text, re.M | re.I):
                line = match[0]
                if not re.search(r"\b(guest|passthrough|virtuali[sz]ation|\bvm\b|q35|i440fx)", line, re.I):
                    continue
                model = re.search(r"q35|i440fx", line, re.I)
                return Machine(
                    match[1].lower(), model[0].lower() if model else "", f"the report: {line.strip()}"
                )
    return None
