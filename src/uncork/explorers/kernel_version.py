"""The kernel that runs, and the one that the next boot would bring."""

import gzip
import re
import zlib

from uncork.explorers import reading
from uncork.host import Host
from uncork.model.facts.kernel_version import InstalledKernel, KernelVersionFacts
from uncork.model.unknown import Unknown
from uncork.parsers import procfs

CONFIG = (
    *("PCI_P2PDMA", "DMABUF_MOVE_NOTIFY", "HSA_AMD_P2P", "DEVICE_PRIVATE", "ZONE_DEVICE"),
    *("KASAN", "PROVE_LOCKING", "DEBUG_PAGEALLOC_ENABLE_DEFAULT", "KCSAN", "SLUB_DEBUG_ON", "DEBUG_KMEMLEAK"),
    *("INIT_ON_ALLOC_DEFAULT_ON", "PREEMPT_RT", "MEMORY_HOTPLUG"),
)
# Where distributions and DKMS put the module of a GPU, below /lib/modules/RELEASE.
_MODULES = (
    ("nvidia", "updates/dkms/nvidia.ko*"),
    ("nvidia", "updates/nvidia.ko*"),
    ("nvidia", "extra/nvidia*.ko*"),
    ("nvidia", "extra/*/nvidia.ko*"),
    ("nvidia", "extra/drivers/video/nvidia/nvidia.ko*"),
    ("nvidia", "weak-updates/nvidia*/nvidia.ko*"),
    ("nvidia", "kernel/drivers/video/nvidia.ko*"),
    ("nvidia", "kernel/nvidia-*/nvidia.ko*"),
    ("nvidia", "misc/nvidia.ko*"),
    ("nvidia", "extramodules/nvidia*.ko*"),
    ("amdgpu", "updates/dkms/amdgpu.ko*"),
    ("amdgpu", "kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko*"),
    ("amdgpu", "extra/amdgpu.ko*"),
)


def explore(host: Host) -> KernelVersionFacts:
    """Read release, parameters, configuration, taint, and what /lib/modules holds for the next boot."""
    release = _release(host)
    return KernelVersionFacts(
        release=release,
        version=_version(host),
        os_release=reading.parsed(host, "/etc/os-release", _assignments),
        parameters=_parameters(host),
        installed=_installed(host),
        gpu_driver=_gpu_driver(host),
        reboot_required=_packages(host),
        reboot_flag=host.exists("/run/reboot-required"),
        livepatches=host.list("/sys/kernel/livepatch"),
        config=_config(host, release),
        preempt=_preempt(host),
        tainted=_tainted(host),
        page_bytes=_page_bytes(host),
    )


def _assignments(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip().strip('"') for name, equals, value in pairs if equals}


def _banner(host: Host) -> str | Unknown:
    """`Linux version …` of /proc/version, of uname -a or of the first line of the log."""
    text = reading.text(host, "/proc/version")
    if not isinstance(text, Unknown):
        return text
    answer = host.run(("uname", "-a"))
    if not isinstance(answer, Unknown) and (
        match := re.search(r"^Linux \S+ (\S+) (#.*)$", answer.stdout, re.M)
    ):
        return f"Linux version {match[1]} {match[2]}"
    log = reading.kernel_log(host)
    if not isinstance(log, Unknown) and (match := re.search(r"Linux version \S+.*", log)):
        return match[0]
    return text


def _told(host: Host, path: str, mark: str, what: str) -> str | Unknown:
    """A file of /proc/sys/kernel, else what the banner has behind `mark`."""
    found = reading.text(host, path)
    if not isinstance(found, Unknown):
        return found
    banner = _banner(host)
    if isinstance(banner, Unknown):
        return banner
    match = re.search(mark, banner)
    return match[1] if match else Unknown(f"no kernel {what} in what was read")


def _release(host: Host) -> str | Unknown:
    return _told(host, "/proc/sys/kernel/osrelease", r"Linux version (\S+)", "release")


def _version(host: Host) -> str | Unknown:
    return _told(host, "/proc/sys/kernel/version", r"(#\d.*)", "build")


def _parameters(host: Host) -> tuple[str, ...] | Unknown:
    text = host.read("/proc/cmdline")
    if isinstance(text, Unknown):
        log = reading.kernel_log(host)
        match = None if isinstance(log, Unknown) else re.search(r"Command line: (.*)", log)
        if not match:
            return text
        text = match[1]
    return procfs.command_line(text)


# The letter of each bit in `Tainted: P           OE`; G stands where bit 0 is clear (kernel/panic.c).
_LETTERS = "PFSRMBUDAWCIOELKXTN"


def _tainted(host: Host) -> int | Unknown:
    """The taint mask, or the bits of the last `Tainted:` line of the log."""
    found = reading.integer(host, "/proc/sys/kernel/tainted")
    if not isinstance(found, Unknown) or host.live:
        return found
    log = reading.kernel_log(host)
    said = [] if isinstance(log, Unknown) else re.findall(r"Tainted: ([A-Z ]{1,40}?) {1,}(?:\d|$)", log, re.M)
    if not said:
        return found
    return sum(1 << _LETTERS.index(letter) for letter in set(said[-1]) if letter in _LETTERS)


def _installed(host: Host) -> tuple[InstalledKernel, ...] | Unknown:
    names = host.list("/lib/modules")
    if isinstance(names, Unknown):
        return names
    # Headers alone leave a folder with a `build` link in it: nothing that boots.
    releases = [
        name
        for name in names
        if re.match(r"\d+\.\d+", name)
        and not isinstance(inside := host.list(f"/lib/modules/{name}"), Unknown)
        and (not inside or {"kernel", "modules.dep"} & set(inside))
    ]
    return tuple(InstalledKernel(name, _modules_of(host, name)) for name in sorted(releases, key=order))


def order(release: str) -> tuple[tuple[int, int | str], ...]:
    """Sorts kernel releases as people do: 6.8.0-51 before 6.8.0-101, a release candidate before the release."""
    parts = re.findall(r"\d+|[a-z]+", release.lower())
    ranked = [(1, int(part)) if part.isdecimal() else (-1 if part == "rc" else 0, part) for part in parts]
    return (*ranked, (0, ""))


def _modules_of(host: Host, release: str) -> tuple[str, ...] | Unknown:
    listed = host.list(f"/lib/modules/{release}")
    if isinstance(listed, Unknown):
        return listed
    if not listed:
        return Unknown(f"/lib/modules/{release} is empty: a container sees the name only")
    found = {name for name, pattern in _MODULES if host.glob(f"/lib/modules/{release}/{pattern}")}
    return tuple(sorted(found))


def _gpu_driver(host: Host) -> str | Unknown:
    modules = host.read("/proc/modules")
    if isinstance(modules, Unknown):
        answer = host.run(("lsmod",))
        if isinstance(answer, Unknown):
            none = modules.absent and host.exists("/sys/module") is True
            return "" if none else reading.settled_by(modules, "lsmod")
        modules = answer.stdout
    loaded = {line.split(" ")[0] for line in modules.splitlines()}
    return next((name for name in ("nvidia", "amdgpu") if name in loaded), "")


def _packages(host: Host) -> tuple[str, ...] | Unknown:
    text = host.read("/run/reboot-required.pkgs")
    if isinstance(text, Unknown):
        return () if text.absent else text
    return tuple(dict.fromkeys(text.split()))


def _config(host: Host, release: str | Unknown) -> dict[str, str] | Unknown:
    """The options that checks ask for; one that is not set is left out."""
    text: str | Unknown
    packed = host.read_bytes("/proc/config.gz")
    if not isinstance(packed, Unknown):
        try:
            text = gzip.decompress(packed).decode("utf-8", "replace")
        except (OSError, EOFError, zlib.error) as error:
            return Unknown(f"/proc/config.gz: {error}")
    elif isinstance(release, Unknown):
        return packed
    else:
        text = host.read(f"/boot/config-{release}")
        if isinstance(text, Unknown):
            text = host.read(f"/lib/modules/{release}/config")
        if isinstance(text, Unknown):
            return Unknown("neither /proc/config.gz nor the configuration in /boot can be read")
    wanted = re.compile(rf"^CONFIG_({'|'.join(CONFIG)})=(.*)$", re.M)
    return {match[1]: match[2].strip('"') for match in wanted.finditer(text)}


def _preempt(host: Host) -> str | Unknown:
    text = host.read("/sys/kernel/debug/sched/preempt")
    if isinstance(text, Unknown):
        return text
    match = re.search(r"\((\w+)\)", text)
    return match[1] if match else Unknown("sched/preempt names no model")


def _page_bytes(host: Host) -> int | Unknown:
    """The base page size: AT_PAGESZ (6) of the auxiliary vector, pairs of 64-bit words."""
    vector = host.read_bytes("/proc/self/auxv")
    if isinstance(vector, Unknown):
        return vector
    words = [int.from_bytes(vector[at : at + 8], "little") for at in range(0, len(vector) - 15, 8)]
    pairs = dict(zip(words[::2], words[1::2], strict=False))
    return pairs.get(6, Unknown("/proc/self/auxv names no page size"))
