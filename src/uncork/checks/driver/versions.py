"""Driver versions and which driver is bound."""

from collections.abc import Iterator

from uncork.checks import (
    NONE,
    P0,
    P1,
    REBOOT,
    RUNTIME,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.gpus import (
    NVIDIA,
    each,
    evidence,
    expected_nvlinks,
    generation,
    gpus,
    is_data_centre,
    known,
    lines,
    named,
    no_nvidia,
    pci_gpus,
    subject_of,
    version,
)
from uncork.model.facts import Facts
from uncork.model.facts.driver import Gpu
from uncork.model.facts.pcie import PciDevice
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown

# Lowest driver branch that knows a generation. Source: NVIDIA data centre driver release notes.
_LOWEST_BRANCH = {"blackwell": 570, "hopper": 520, "ada": 520, "ampere": 450, "turing": 410, "volta": 384}
# The last branch that knows a generation. Source: NVIDIA, supported products of the 470 and 580 branches.
_LAST_BRANCH = {"kepler": 470, "pascal": 580, "volta": 580}
# Before this, 525 drivers lose contact with the GSP under load (Xid 119). Source: release notes of 525.105.17.
_GSP_FIXED = (525, 105, 17)


@check("driver.library-mismatch", P0, SERVICE_RESTART)
def library_mismatch(facts: Facts) -> Iterator[Verdict]:
    """The driver's user-space libraries have the version of the loaded kernel module.

    Effect: NVML and CUDA do not start (NVML error 18)
    Sure: high
    Fix: install the same version of both; on a host unload and load the module or reboot, in a container
        install the host's version without its kernel module
    Undo: install the former package again
    Wrong when: a second version lies unused beside the one in use
    Source: NVML API reference, NVML_ERROR_LIB_RM_VERSION_MISMATCH; open-gpu-kernel-modules, API mismatch message
    """
    if reason := no_nvidia(facts):
        yield not_applicable(reason)
        return
    driver = facts.driver
    if "version mismatch" in driver.nvml_error.lower():
        yield fails(f"NVML refuses: {driver.nvml_error}", evidence=evidence("NVML", driver.nvml_error))
        return
    log = {} if is_unknown(driver.log) else driver.log
    if log.get("api-mismatch"):
        yield fails(
            "the kernel module refused a client of another version",
            evidence=lines("dmesg", log["api-mismatch"]),
        )
        return
    module = known(driver.module_version)
    if not driver.library_versions:
        yield unknown("no version of libcuda or libnvidia-ml was found beside the module's")
        return
    shown = ", ".join(f"{where} {found}" for where, found in driver.library_versions)
    if any(_same(found, module) for _, found in driver.library_versions):
        yield passes(
            f"driver {module} in the kernel and in user space", evidence=evidence("libraries", shown)
        )
    else:
        yield fails(
            f"the kernel runs {module}, user space has {driver.library_versions[0][1]}",
            evidence=(*evidence("/proc/driver/nvidia/version", module), *evidence("libraries", shown)),
        )


def _same(one: str, other: str) -> bool:
    return version(one) == version(other)


@check("driver.version-branch", P1, SERVICE_RESTART)
def version_branch(facts: Facts) -> Iterator[Verdict]:
    """The driver knows this GPU and the engine's CUDA, and is not one with a fault that shows here.

    Effect: a GPU that is not initialised, CUDA that does not start, or a known fault; rarely throughput
    Sure: medium
    Fix: install a supported branch; every GPU client must stop
    Undo: install the former package again
    Wrong when: a vendor has taken the fix into an older branch
    Folklore: partly: that the newest driver is faster is not shown, and branches bring regressions of their own
    Source: NVIDIA data centre driver release notes; release notes of 525.105.17
    """
    if reason := no_nvidia(facts):
        yield not_applicable(reason)
        return
    timeouts = [
        xid
        for xid in (() if is_unknown(facts.driver.xids) else facts.driver.xids)
        if xid.number in (119, 120)
    ]
    if timeouts and is_unknown(facts.driver.module_version):
        yield unknown(
            "the GSP timed out (Xid 119), and no text names the driver's version: 525 drivers before 525.105.17 "
            "do that; attach /proc/driver/nvidia/version",
            evidence=lines("dmesg", (xid.line for xid in timeouts)),
        )
        return
    module = known(facts.driver.module_version)
    branch = version(module)[0]
    if timeouts and (525,) <= version(module) < _GSP_FIXED:
        yield fails(
            f"driver {module} loses contact with the GSP; 525.105.17 mends that",
            evidence=lines("dmesg", (xid.line for xid in timeouts)),
        )
        return
    for name in named(facts):
        kind = generation(name)
        if branch < _LOWEST_BRANCH.get(kind, 0):
            yield fails(
                f"branch {branch} does not know {name}: at least {_LOWEST_BRANCH[kind]}",
                evidence=evidence("driver", module),
            )
            return
        if branch > _LAST_BRANCH.get(kind, 9999):
            yield fails(
                f"branch {branch} has dropped {name}: at most {_LAST_BRANCH[kind]}",
                evidence=evidence("driver", module),
            )
            return
    yield from _cuda_of_servers(facts, module)


def _cuda_of_servers(facts: Facts, module: str) -> Iterator[Verdict]:
    """Whether the driver serves the CUDA that each server's torch was built for."""
    served = facts.driver.cuda_version
    if not is_unknown(served) and not is_unknown(facts.engine.servers):
        for server in facts.engine.servers:
            torch = "" if is_unknown(server.packages) else server.packages.get("torch", "")
            _, plus, built = torch.partition("+cu")
            if plus and built[:-1].isdigit() and int(built[:-1]) > version(served)[0]:
                yield fails(
                    f"{server.kind} brings CUDA {built[:-1]}, driver {module} serves CUDA {served}",
                    evidence=evidence("torch", torch),
                )
                return
    yield passes(f"driver {module}", evidence=evidence("driver", module))


@check("driver.kernel-module-flavour", P1, REBOOT)
def flavour(facts: Facts) -> Iterator[Verdict]:
    """The open kernel module where the GPU needs it, the proprietary one where only that knows the GPU.

    Effect: Blackwell GPUs are not initialised without the open module; DMA-BUF for RDMA needs it too
    Sure: high
    Fix: install the other flavour of the same version and reboot
    Undo: install the former package again
    Wrong when: a vGPU guest driver, which has rules of its own
    Source: NVIDIA open-gpu-kernel-modules README; CUDA GPUDirect RDMA guide
    """
    if reason := no_nvidia(facts):
        yield not_applicable(reason)
        return
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    if log.get("needs-open"):
        yield fails(
            "the driver says that this GPU needs the open kernel module",
            priority=P0,
            evidence=lines("dmesg", log["needs-open"]),
        )
        return
    is_open = facts.driver.module_open
    kinds = {generation(name) for name in named(facts)} - {""}
    flavour = "open" if is_open else "proprietary"
    if not is_open and "blackwell" in kinds:
        yield fails("Blackwell needs the open kernel module", priority=P0)
    elif is_open and kinds & {"volta", "pascal", "kepler"}:
        yield fails("the open kernel module does not know GPUs before Turing", priority=P0)
    else:
        yield passes(f"{flavour} kernel module")


@check("driver.version-uniform", P0, SERVICE_RESTART)
def uniform(facts: Facts) -> Iterator[Verdict]:
    """Module, fabric manager and GSP firmware have one version.

    Effect: CUDA error 802 on NVSwitch hosts whose fabric manager is of another version
    Sure: high
    Fix: install the matching package and start its service again
    Undo: install the former package again
    Wrong when: an installed but unused fabric manager on a host without NVSwitch
    Source: NVIDIA Fabric Manager user guide, version compatibility
    """
    if reason := no_nvidia(facts):
        yield not_applicable(reason)
        return
    driver = facts.driver
    if driver.fabric_manager_mismatch:
        yield fails(
            "the fabric manager refuses this driver's version",
            evidence=evidence("fabric manager", driver.fabric_manager_mismatch),
        )
        return
    module = known(driver.module_version)
    others = {}
    if not is_unknown(driver.fabric_manager_version):
        others["fabric manager"] = driver.fabric_manager_version
    if not is_unknown(driver.gpus):
        others |= {
            f"GSP firmware of {subject_of(gpu)}": gpu.gsp_version
            for gpu in driver.gpus
            if not is_unknown(gpu.gsp_version)
        }
    wrong = {name: found for name, found in others.items() if not _same(found, module)}
    if wrong:
        name, found = next(iter(wrong.items()))
        yield fails(f"module {module}, {name} {found}", evidence=evidence(name, found))
    else:
        yield passes(f"{module} throughout" if others else f"module {module}")


@check("driver.cuda-compat-libs", P0, SERVICE_RESTART)
def compat(facts: Facts) -> Iterator[Verdict]:
    """No forward-compatibility libcuda stands before the driver's own where it may not.

    Effect: cuInit fails with 803 or 804 on cards that have no forward compatibility
    Sure: high
    Fix: take /usr/local/cuda/compat out of LD_LIBRARY_PATH and the ld cache, start the server again
    Undo: put the path back
    Wrong when: a data-centre GPU under an older module, which is what these libraries are for
    Source: NVIDIA CUDA compatibility guide, forward compatibility
    """
    for server in facts.engine.servers:
        mapped = () if is_unknown(server.libraries) else server.libraries
        paths = [path for path in mapped if "/compat" in path and "libcuda.so" in path]
        searched = "" if is_unknown(server.environ) else server.environ.get("LD_LIBRARY_PATH", "")
        subject = f"{server.kind} ({server.pid})"
        cards = named(facts)
        if (paths or "cuda/compat" in searched) and cards and not any(is_data_centre(name) for name in cards):
            yield fails(
                f"forward-compatibility libcuda on {cards[0]}",
                subject,
                evidence=evidence("maps", paths or searched),
            )
        elif is_unknown(server.libraries) and is_unknown(server.environ):
            yield unknown(server.libraries.reason, subject)
        else:
            yield passes("the driver's own libcuda", subject)


@check("driver.gsp-mode", P1, REBOOT)
def gsp(facts: Facts) -> Iterator[Verdict]:
    """The GPU system processor answers.

    Effect: each timeout hangs calls for minutes and ends in a GPU that must be reset
    Sure: medium
    Fix: a newer driver; on Turing and Ampere with the proprietary module NVreg_EnableGpuFirmware=0
    Undo: take the option out
    Wrong when: the timeouts follow another Xid, which then is the cause
    Folklore: partly: switching the GSP off for speed is folklore, and the open module cannot run without it
    Source: NVIDIA Xid errors, 119 and 120; open-gpu-kernel-modules README
    """
    if reason := no_nvidia(facts):
        yield not_applicable(reason)
        return
    timeouts = [xid for xid in facts.driver.xids if xid.number in (119, 120)]
    params = {} if is_unknown(facts.driver.params) else facts.driver.params
    off = params.get("EnableGpuFirmware") == "0"
    if timeouts:
        yield fails(
            f"{len(timeouts)} GSP timeouts (Xid 119/120)",
            evidence=lines("dmesg", (xid.line for xid in timeouts)),
        )
    else:
        yield passes("no GSP timeout" + ("; GSP firmware is switched off" if off else ""))


@check("driver.nouveau-or-vfio", P0, REBOOT)
def bound(facts: Facts) -> Iterator[Verdict]:
    """GPUs are bound to the driver that serves them.

    Effect: a GPU under nouveau runs no CUDA; one under vfio-pci belongs to a virtual machine
    Sure: high
    Fix: blacklist nouveau, rebuild the initramfs, reboot
    Undo: take the blacklist out
    Wrong when: the card is meant for display or for a guest
    Source: Linux Documentation/ABI/testing/sysfs-bus-pci; NVIDIA driver installation guide, nouveau
    """

    def judge(device: PciDevice) -> Iterator[Verdict]:
        driver = device.driver
        if driver in ("nouveau", "nova_core", "nova-core"):
            yield fails(f"bound to {driver}", device.bdf, evidence=evidence("driver", driver))
        elif driver == "vfio-pci":
            yield not_applicable("bound to vfio-pci: it belongs to a virtual machine", device.bdf)
        elif driver:
            yield passes(f"bound to {driver}", device.bdf)

    yield from each(pci_gpus(facts), lambda device: device.bdf, judge)


@check("driver.module-not-loaded", P0, RUNTIME)
def not_loaded(facts: Facts) -> Iterator[Verdict]:
    """Every NVIDIA GPU is bound to its kernel driver.

    Effect: the GPU does not exist for CUDA
    Sure: high
    Fix: modprobe nvidia; where that fails, the kernel log says why (no module for this kernel, Secure Boot)
    Undo: modprobe -r nvidia
    Wrong when: the card is kept for a guest
    Source: NVIDIA driver README, nvidia.ko
    """
    log = {} if is_unknown(facts.driver.log) else facts.driver.log

    def judge(device: PciDevice) -> Iterator[Verdict]:
        if device.driver:
            yield passes(f"bound to {device.driver}", device.bdf)
        elif log.get("probe-failed") or log.get("off-bus") or log.get("needs-open"):
            found = (*log.get("off-bus", ()), *log.get("needs-open", ()), *log.get("probe-failed", ()))
            yield fails(
                "the driver tried this GPU and gave up",
                device.bdf,
                change_class=NONE,
                evidence=lines("dmesg", found),
            )
        else:
            loaded = {} if is_unknown(facts.driver.modules) else facts.driver.modules
            change = None if "nvidia" in loaded else Change("module", "nvidia", "loaded", before="absent")
            yield fails(
                "no driver is bound",
                device.bdf,
                change=change,
                evidence=evidence(f"{device.bdf}/driver", "absent"),
            )

    yield from each(pci_gpus(facts, NVIDIA), lambda device: device.bdf, judge)


@check("driver.fabric-manager-service", P0, SERVICE_RESTART)
def fabric_manager(facts: Facts) -> Iterator[Verdict]:
    """The fabric manager runs on an NVSwitch host, in the driver's version.

    Effect: CUDA error 802, system not yet initialised
    Sure: high
    Fix: install the fabric manager of the driver's version and start nvidia-fabricmanager
    Undo: systemctl stop nvidia-fabricmanager
    Wrong when: bridge and PCIe systems, which have no NVSwitch; GB200 and later are served by NVLSM
    Source: NVIDIA Fabric Manager user guide
    """
    driver = facts.driver
    if driver.fabric_manager_mismatch:
        yield fails(
            "the fabric manager refuses this driver's version",
            evidence=evidence("fabric manager", driver.fabric_manager_mismatch),
        )
        return
    own, module = driver.fabric_manager_version, driver.module_version
    if not is_unknown(own) and not is_unknown(module) and not _same(own, module):
        yield fails(
            f"fabric manager {own}, driver {module}",
            evidence=evidence("versions", f"{own} / {module}"),
        )
        return
    if reason := no_nvidia(facts):
        yield not_applicable(reason)
        return
    cards = named(facts)
    if cards and all(expected_nvlinks(name) is None for name in cards):
        yield not_applicable(f"{cards[0]} is no NVSwitch part")
        return
    if facts.nvlink.switches == 0 and not any(_in_fabric(gpu) for gpu in gpus(facts, "nvidia")):
        yield not_applicable("no NVSwitch")
        return
    running = any(other.kind == "fabric-manager" for other in facts.engine.others)
    states = [gpu.fabric_state for gpu in gpus(facts, "nvidia") if _in_fabric(gpu)]
    if running or (states and all(state == 3 for state in states)):
        yield passes("the fabric manager runs")
    elif facts.container.contained:
        yield unknown("a container does not show the host's fabric manager")
    else:
        yield fails("NVSwitches are here and no fabric manager runs")


def _in_fabric(gpu: Gpu) -> bool:
    return not is_unknown(gpu.fabric_state) and gpu.fabric_state > 0


@check("driver.imex", P1, SERVICE_RESTART)
def imex(facts: Facts) -> Iterator[Verdict]:
    """The IMEX daemon runs where NVLink spans machines.

    Effect: memory cannot be exported to other nodes of an NVL72 rack
    Sure: medium
    Fix: start nvidia-imex with the rack's nodes_config.cfg
    Undo: stop nvidia-imex
    Wrong when: one node of such a rack is used alone
    Source: NVIDIA IMEX guide
    """
    if reason := no_nvidia(facts):
        yield not_applicable(reason)
        return
    if not any(
        name.startswith(("GB200", "GB300")) or " GB200" in name or " GB300" in name for name in named(facts)
    ):
        yield not_applicable("no multi-node NVLink part (GB200, GB300)")
        return
    if any(other.kind == "imex" for other in facts.engine.others):
        yield passes("nvidia-imex runs")
    elif not facts.driver.imex_channels:
        yield fails("no IMEX channel device and no nvidia-imex")
    else:
        yield unknown("channels exist; whether the daemon of the rack answers needs its own tool")
