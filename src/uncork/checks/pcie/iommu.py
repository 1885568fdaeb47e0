"""The IOMMU between GPUs."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    P0,
    P2,
    REBOOT,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.driver.options import peers_matter
from uncork.checks.gpus import each, iommu_translates, lines, pci_gpus, whole_log, wrong_data
from uncork.checks.hosts import known, seen
from uncork.checks.pcie.links import guest
from uncork.explorers.gpu_log import addresses
from uncork.model.facts import Facts
from uncork.model.facts.pcie import PciDevice
from uncork.model.findings import Priority
from uncork.model.unknown import UnknownValue, is_unknown


@check("pcie.iommu-domain", P0, REBOOT)
def iommu(facts: Facts) -> Iterator[Verdict]:
    """DMA of GPUs is not translated.

    Effect: peer writes that are dropped or hang; CUDA supports bare-metal peer access only without translation
    Sure: high
    Fix: iommu=pt on the kernel command line and a reboot; off only where pt does not help
    Undo: the former command line
    Wrong when: Grace and other ATS systems, which want translation; a guest; one GPU alone
    Source: NVIDIA CUDA GPUDirect RDMA guide; NCCL user guide; PyTorch issue 84803
    """
    if guest(facts):
        yield not_applicable("a virtual machine: its IOMMU says nothing about the host's")
        return
    machine = facts.pcie.machine
    if not is_unknown(machine) and machine == "aarch64":
        yield not_applicable("Grace and other Arm hosts translate on purpose")
        return
    words = _words(facts)
    if words & {"iommu=pt", "iommu.passthrough=1", "iommu=off", "amd_iommu=off", "intel_iommu=off"}:
        yield passes(" ".join(sorted(words)), evidence=seen("/proc/cmdline", " ".join(sorted(words))))
        return
    faults, ours = _faults(facts)
    if ours:
        yield fails("an IOMMU translates, and refuses DMA of GPUs", evidence=lines("dmesg", faults))
        return
    if not is_unknown(facts.pcie.devices) and facts.pcie.source == "sysfs":
        yield from _by_groups(facts)
        return
    yield from _from_words(facts)


def _words(facts: Facts) -> set[str]:
    """Words of the command line about the IOMMU."""
    cmdline = "" if is_unknown(facts.pcie.cmdline) else facts.pcie.cmdline
    return {word for word in cmdline.split() if "iommu" in word}


def _faults(facts: Facts) -> tuple[tuple[str, ...], list[str]]:
    """Lines in which the IOMMU refuses DMA, and the GPUs among the devices they name (all, where none is known)."""
    faults = () if is_unknown(facts.driver.log) else facts.driver.log.get("iommu-fault", ())
    cards = set() if is_unknown(facts.pcie.devices) else {d.bdf for d in pci_gpus(facts)}
    if not is_unknown(facts.driver.gpus):
        cards |= {gpu.bdf for gpu in facts.driver.gpus if not is_unknown(gpu.bdf)}
    named = {bdf for line in faults for bdf in addresses(line)}
    ours = {bdf for line in faults if "nvidia " in line or "amdgpu " in line for bdf in addresses(line)}
    return faults, sorted(ours | (named & cards if cards else named))


def _by_groups(facts: Facts) -> Iterator[Verdict]:
    cards = pci_gpus(facts)
    if len(cards) < 2:
        yield not_applicable("fewer than two GPUs")
        return

    def judge(device: PciDevice) -> Iterator[Verdict]:
        kind = known(device.iommu_type)
        if kind.startswith("DMA"):
            shown = seen("iommu_group/type", kind)
            yield fails(f"DMA is translated ({kind})", device.bdf, priority=_weight(facts), evidence=shown)
        else:
            yield passes("no translation" if kind else "no IOMMU", device.bdf)

    yield from each(cards, lambda device: device.bdf, judge)


def _weight(facts: Facts) -> Priority:
    """P2 where fewer than two of the GPUs have peer access anyway, so that translation breaks nothing."""
    return P0 if peers_matter(facts) else P2


def _from_words(facts: Facts) -> Iterator[Verdict]:
    """Where no sysfs is: the boot log, what /sys/class/iommu lists, and what a reporter says."""
    wrong = wrong_data(facts)
    if not is_unknown(facts.pcie.iommu_default) and facts.pcie.iommu_default == "translated":
        yield fails(
            "the kernel translates DMA by default",
            priority=_weight(facts),
            evidence=seen("dmesg", "Default domain type: Translated"),
        )
        return
    if not is_unknown(facts.pcie.iommu_default):
        words = "the kernel passes DMA through" if facts.pcie.iommu_default == "identity" else "no IOMMU"
        yield passes(words, evidence=seen("dmesg", f"default domain: {facts.pcie.iommu_default}"))
        return
    asked = [
        word
        for word in _words(facts)
        if word in ("intel_iommu=on", "amd_iommu=on", "iommu=on", "iommu=force")
    ]
    if asked:
        words = f"{asked[0]} without iommu=pt: the kernel translates DMA"
        yield fails(words, priority=_weight(facts), evidence=seen("/proc/cmdline", " ".join(asked)))
        return
    listed = facts.pcie.iommus
    if not is_unknown(listed) and listed:
        yield fails(
            "IOMMUs are active and the command line does not ask for passthrough",
            evidence=seen("/sys/class/iommu", ", ".join(listed)),
        )
        return
    yield from _from_statements(facts, wrong)


def _from_statements(facts: Facts, wrong: tuple[str, ...]) -> Iterator[Verdict]:
    """What a reporter says in own words, and what goes wrong."""
    value, line = facts.driver.stated.get("iommu", ("", ""))
    nothing, bare = facts.driver.stated.get("iommu_parameter", ("", ""))
    if value in ("translated", "enabled"):
        yield fails(
            "the report says that the IOMMU is on and not in passthrough",
            evidence=seen("as reported", line),
        )
    elif value in ("off", "passthrough"):
        yield passes(f"the report says: {value}", evidence=seen("as reported", line))
    elif nothing and (wrong or facts.p2p.hung):
        yield fails(
            "peer data goes wrong without passthrough on the command line",
            evidence=(*seen("as reported", bare), *lines("copy test", wrong)),
        )
    elif wrong or facts.p2p.hung:
        yield unknown(
            "peer traffic goes wrong, and no text tells the IOMMU's mode: attach /proc/cmdline and dmesg",
            evidence=lines("as reported", (*wrong, *facts.p2p.hung)),
        )
    else:
        raise UnknownValue("the IOMMU's mode is not told: attach /proc/cmdline and dmesg")


@check("pcie.iommu-faults", P0, REBOOT)
def iommu_faults(facts: Facts) -> Iterator[Verdict]:
    """The IOMMU refused no DMA of a GPU.

    Effect: peer writes are dropped: wrong data or a hang
    Sure: high
    Fix: as pcie.iommu-domain
    Undo: nothing to undo
    Wrong when: the device named is no GPU and no NIC of theirs
    Source: Linux amd_iommu and dmar messages; NCCL user guide; PyTorch issue 84803
    """
    known(facts.driver.log)
    faults, ours = _faults(facts)
    if ours:
        yield fails(f"refused DMA of {', '.join(ours[:8])}", evidence=lines("dmesg", faults))
    elif faults:
        yield fails("the IOMMU refused DMA of other devices", priority=P2, evidence=lines("dmesg", faults))
    else:
        whole_log(facts)
        yield passes("the IOMMU refused nothing")


@check("pcie.ats", P2, FIRMWARE)
def ats(facts: Facts) -> Iterator[Verdict]:
    """Address translation services are as this kind of host wants them.

    Effect: under ACS with translation they let peers talk directly; on bare metal they only add lookups
    Sure: medium
    Fix: the NIC vendor's tool (ATS_ENABLED)
    Undo: the tool again
    Wrong when: the opposite kind of host: guests want it on
    Source: AMD ROCm cluster networking guide; NVIDIA CUDA GPUDirect RDMA guide
    """

    def judge(device: PciDevice) -> Iterator[Verdict]:
        on = known(device.config).ats
        if on is None:
            return
        if known(on) and not iommu_translates(facts):
            yield fails(
                "ATS is on without translation",
                device.bdf,
                priority=P2,
                evidence=seen("ATSCtl", "Enable+"),
            )
        else:
            yield passes("ATS is " + ("on" if on else "off"), device.bdf)

    yield from each((d for d in facts.pcie.devices if d.kind == "nic"), lambda device: device.bdf, judge)
