"""Which driver is bound, and the services beside it."""

import re
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
from uncork.checks.driver.versions import same_version
from uncork.checks.gpus import NVIDIA, each, expected_nvlinks, gpus, lines, named, no_nvidia, pci_gpus
from uncork.checks.hosts import seen
from uncork.model.facts import Facts
from uncork.model.facts.driver import Gpu
from uncork.model.facts.pcie import PciDevice
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown


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

    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    modules = {} if is_unknown(facts.driver.modules) else facts.driver.modules
    if is_unknown(facts.pcie.devices) and (
        log.get("nouveau") or ("nouveau" in modules and "nvidia" not in modules)
    ):
        shown = lines("dmesg", log["nouveau"]) if log.get("nouveau") else seen("lsmod", "nouveau")
        yield fails("nouveau holds the GPU", evidence=shown)
        return

    def judge(device: PciDevice) -> Iterator[Verdict]:
        driver = device.driver
        if driver in ("nouveau", "nova_core", "nova-core"):
            yield fails(f"bound to {driver}", device.bdf, evidence=seen("driver", driver))
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
    if (
        is_unknown(facts.pcie.devices)
        and "couldn't communicate with the NVIDIA driver" in facts.driver.nvml_error
    ):
        yield fails("nvidia-smi reaches no driver", evidence=seen("nvidia-smi", facts.driver.nvml_error))
        return

    answering = (
        set()
        if is_unknown(facts.driver.gpus)
        else {g.bdf for g in facts.driver.gpus if not is_unknown(g.bdf)}
    )

    def judge(device: PciDevice) -> Iterator[Verdict]:
        if device.driver or device.bdf in answering:
            yield passes(f"bound to {device.driver or 'nvidia'}", device.bdf)
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
                evidence=seen(f"{device.bdf}/driver", "absent"),
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
    broken = tuple(_refused(facts))
    if broken:
        yield from broken
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


def _refused(facts: Facts) -> Iterator[Verdict]:
    """What logs and versions say against it, whatever runs."""
    driver = facts.driver
    own, module = driver.fabric_manager_version, driver.module_version
    ended = () if is_unknown(driver.fabric_manager_errors) else driver.fabric_manager_errors
    ended = tuple(line for line in ended if re.search(r"Active: failed|Failed to start", line))
    if driver.fabric_manager_mismatch:
        line = driver.fabric_manager_mismatch
        yield fails("the fabric manager refuses this driver's version", evidence=seen("fabric manager", line))
    elif driver.fabric_manager_state in ("inactive", "failed", "absent") and may_have_fabric(facts):
        words = f"the fabric manager's unit is {driver.fabric_manager_state}"
        yield fails(words, evidence=seen("systemctl", driver.fabric_manager_state))
    elif any("802" in line or "not yet initialized" in line for line in driver.cuda_errors):
        yield fails(
            "CUDA says that the system is not yet initialized (802)",
            evidence=lines("CUDA", driver.cuda_errors),
        )
    elif is_unknown(own) or is_unknown(module) or same_version(own, module) or not may_have_fabric(facts):
        if ended:
            yield fails("the fabric manager failed", evidence=lines("nvidia-fabricmanager", ended))
    else:
        words = f"fabric manager {own}, driver {module}"
        yield fails(words, evidence=seen("versions", words))


def may_have_fabric(facts: Facts) -> bool:
    """Whether a fabric manager could matter: not where the bus shows no NVSwitch and no GPU is in a fabric."""
    switches = facts.nvlink.switches
    if is_unknown(switches) or switches > 0 or is_unknown(facts.driver.gpus):
        return True
    return any(_in_fabric(gpu) for gpu in facts.driver.gpus)


def _in_fabric(gpu: Gpu) -> bool:
    return not is_unknown(gpu.fabric_state) and gpu.fabric_state > 0


@check("driver.imex", P1, SERVICE_RESTART, unless=no_nvidia)
def imex(facts: Facts) -> Iterator[Verdict]:
    """The IMEX daemon runs where NVLink spans machines.

    Effect: memory cannot be exported to other nodes of an NVL72 rack
    Sure: medium
    Fix: start nvidia-imex with the rack's nodes_config.cfg
    Undo: stop nvidia-imex
    Wrong when: one node of such a rack is used alone
    Source: NVIDIA IMEX guide
    """
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
