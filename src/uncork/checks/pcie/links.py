"""Width, speed and errors of PCIe links."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    INFO,
    NONE,
    P0,
    P1,
    P2,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.gpus import busy, each, evidence, gpus, known, lines, subject_of
from uncork.model.facts import Facts
from uncork.model.facts.driver import Gpu
from uncork.model.facts.pcie import PciDevice
from uncork.model.unknown import is_unknown

_ENDPOINTS = ("gpu", "nic", "nvme")
# GB/s of one lane and direction at each speed, before packet overhead.
LANE_GB_S = {2.5: 0.25, 5.0: 0.5, 8.0: 0.985, 16.0: 1.969, 32.0: 3.938, 64.0: 7.563}


def endpoints(facts: Facts) -> tuple[PciDevice, ...]:
    """GPUs, NICs and NVMe drives that have a PCIe link, and fragments of text about one.

    None where nothing lists the bus but a driver tells of its own GPUs' links; raises UnknownValue without either.
    """
    told = not is_unknown(facts.driver.gpus) and any(not is_unknown(g.link_width) for g in facts.driver.gpus)
    if is_unknown(facts.pcie.devices) and told:
        return ()
    return tuple(d for d in facts.pcie.devices if d.kind in (*_ENDPOINTS, "fragment"))


def subject(device: PciDevice) -> str:
    """The bus address; empty for a fragment of text."""
    return device.bdf


def parent(facts: Facts, device: PciDevice) -> PciDevice | None:
    """The bridge right above, where the tree is known."""
    if is_unknown(device.path) or not device.path:
        return None
    above = device.path[-1]
    return next((d for d in facts.pcie.devices if d.bdf == above), None)


def guest(facts: Facts) -> bool:
    """Whether this is known to be a virtual machine, whose links and bridges are the hypervisor's drawing."""
    if not is_unknown(facts.container) and not is_unknown(facts.container.machine):
        return facts.container.machine is not None
    return not is_unknown(facts.driver.log) and bool(facts.driver.log.get("guest"))


def has_link(device: PciDevice) -> bool:
    """Whether the function stands on a link of its own (a root-integrated or virtual one does not)."""
    return not (is_unknown(device.width) and device.width.absent)


@check("pcie.link-width", P0, FIRMWARE)
def width(facts: Facts) -> Iterator[Verdict]:
    """Every GPU, NIC and NVMe link has all the lanes that both ends have.

    Effect: half the lanes carry half the host and peer bandwidth (arithmetic)
    Sure: high
    Fix: reseat the card or its riser; look at bifurcation in the BIOS
    Undo: nothing to undo
    Wrong when: the slot is wired narrower by design: equal cards then show the same
    Source: PCI Express Base Specification, Link Status and Link Capabilities; DCGM diagnostics
    """

    def judge(device: PciDevice) -> Iterator[Verdict]:
        if not has_link(device) or (device.kind == "fragment" and is_unknown(device.width)):
            return
        now = known(device.width)
        above = parent(facts, device)
        ends = [
            m for m in (device.max_width, above.max_width if above else device.max_width) if not is_unknown(m)
        ]
        if not ends:
            yield unknown("the width of neither end is told", device.bdf)
            return
        most = min(ends)
        if now >= most:
            yield passes(f"x{now}", device.bdf)
        elif guest(facts):
            yield unknown(f"x{now} of x{most} in a guest, where the hypervisor draws the links", device.bdf)
        else:
            shown = f"x{now} of x{most}"
            priority = P0 if device.kind == "gpu" else P1
            yield fails(
                f"{_word(device)} link runs {shown}",
                device.bdf,
                priority=priority,
                evidence=evidence("LnkSta", shown),
            )

    yield from each(endpoints(facts), subject, judge)
    yield from each(_told_by_driver(facts, "width"), subject_of, _width_of)


def _told_by_driver(facts: Facts, what: str) -> list[Gpu]:
    """GPUs whose link only their driver tells: where no lspci or sysfs was given."""
    if is_unknown(facts.driver.gpus):
        return []
    seen = set()
    if not is_unknown(facts.pcie.devices):
        seen = {
            d.bdf for d in facts.pcie.devices if not is_unknown(d.width if what == "width" else d.speed_gt_s)
        }
    readings = {"width": lambda gpu: gpu.link_width, "speed": lambda gpu: gpu.link_gen}
    return [
        g
        for g in gpus(facts)
        if not is_unknown(readings[what](g)) and (is_unknown(g.bdf) or g.bdf not in seen)
    ]


def _width_of(gpu: Gpu) -> Iterator[Verdict]:
    now, most = known(gpu.link_width), known(gpu.link_width_max)
    shown = f"x{now} of x{most}"
    if now < most and not is_unknown(gpu.virtualization) and gpu.virtualization in (1, 2):
        yield unknown(f"{shown} in a guest, where the hypervisor draws the links", subject_of(gpu))
    elif now < most:
        # The driver knows the card's width, not the slot's: half of it may be how the slot is wired.
        priority = P1 if now < most // 2 else P2
        words = f"GPU link runs {shown}"
        yield fails(words, subject_of(gpu), priority=priority, evidence=evidence("nvidia-smi -q", shown))
    else:
        yield passes(f"x{now}", subject_of(gpu))


def _speed_of(gpu: Gpu) -> Iterator[Verdict]:
    now, most = known(gpu.link_gen), known(gpu.link_gen_max)
    shown = f"Gen{now} of Gen{most}"
    if now >= most:
        yield passes(f"Gen{now}", subject_of(gpu))
    elif busy(gpu):
        yield fails(
            f"{shown} while the GPU works", subject_of(gpu), evidence=evidence("nvidia-smi -q", shown)
        )
    else:
        yield unknown(f"Gen{now} of an idle GPU says nothing: read it while a copy runs", subject_of(gpu))


def _word(device: PciDevice) -> str:
    return {"gpu": "GPU", "nic": "NIC", "nvme": "NVMe"}.get(device.kind, "a")


@check("pcie.link-speed", P0, FIRMWARE)
def speed(facts: Facts) -> Iterator[Verdict]:
    """Under load every GPU link runs at the speed that both ends have.

    Effect: each generation lost halves the bandwidth (arithmetic)
    Sure: high
    Fix: set the slot's speed to Auto in the BIOS; a link that falls back by itself has a bad riser or retimer
    Undo: nothing to undo
    Wrong when: the GPU idles: it lowers the speed to save power, and the reading then says nothing
    Source: PCI Express Base Specification, Link Status; DCGM diagnostics
    """
    by_bdf = {} if is_unknown(facts.driver.gpus) else {g.bdf: g for g in gpus(facts) if not is_unknown(g.bdf)}

    def judge(device: PciDevice) -> Iterator[Verdict]:
        if not has_link(device) or (device.kind == "fragment" and is_unknown(device.speed_gt_s)):
            return
        now = known(device.speed_gt_s)
        above = parent(facts, device)
        ends = [
            m
            for m in (device.max_speed_gt_s, above.max_speed_gt_s if above else device.max_speed_gt_s)
            if not is_unknown(m)
        ]
        target = None if is_unknown(device.config) else device.config.target_speed_gt_s
        if not ends:
            yield unknown("the speed of neither end is told", device.bdf)
        elif now >= min(ends):
            yield passes(f"{now:g} GT/s", device.bdf)
        elif device.kind == "gpu" and device.bdf in by_bdf and busy(by_bdf[device.bdf]):
            shown = f"{now:g} of {min(ends):g} GT/s while the GPU works"
            yield fails(shown, device.bdf, evidence=evidence("LnkSta", shown))
        elif device.kind in ("gpu", "fragment"):
            yield unknown(f"{now:g} GT/s of an idle GPU says nothing: read it while a copy runs", device.bdf)
        elif target is not None and not is_unknown(target) and target < min(ends):
            yield fails(
                f"held at {target:g} GT/s by the BIOS",
                device.bdf,
                priority=P2,
                evidence=evidence("LnkCtl2", target),
            )
        else:
            shown = f"{now:g} of {min(ends):g} GT/s"
            yield fails(shown, device.bdf, priority=P2, evidence=evidence("LnkSta", shown))

    yield from each(endpoints(facts), subject, judge)
    yield from each(_told_by_driver(facts, "speed"), subject_of, _speed_of)


@check("pcie.slot-limit", INFO, NONE)
def slot(facts: Facts) -> Iterator[Verdict]:
    """The slot can do what the GPU can.

    Effect: explains a bandwidth; software cannot change it
    Sure: high
    Fix: move the card
    Undo: nothing to undo
    Wrong when: the board has no better slot
    Source: Linux Documentation/ABI/testing/sysfs-bus-pci, max_link_speed
    """

    def judge(device: PciDevice) -> Iterator[Verdict]:
        above = parent(facts, device)
        if above is None:
            yield unknown("which port is above is not told", device.bdf)
            return
        own = (known(device.max_speed_gt_s), known(device.max_width))
        port = (known(above.max_speed_gt_s), known(above.max_width))
        if port[0] < own[0] or port[1] < own[1]:
            words = f"the port is {port[0]:g} GT/s x{port[1]}, the GPU {own[0]:g} GT/s x{own[1]}"
            yield fails(words, device.bdf, evidence=evidence(above.bdf, words))
        else:
            yield passes(f"slot of {port[0]:g} GT/s x{port[1]}", device.bdf)

    yield from each((d for d in facts.pcie.devices if d.kind == "gpu"), subject, judge)


@check("pcie.aer-fatal", P0, FIRMWARE)
def aer_fatal(facts: Facts) -> Iterator[Verdict]:
    """No uncorrectable PCIe error.

    Effect: a fault of the link or the device: transactions were lost
    Sure: high
    Fix: reseat, change riser or slot; unsupported requests and ACS violations name a configuration instead
    Undo: nothing to undo
    Wrong when: the counters are older than the repair
    Source: PCI Express Base Specification, Advanced Error Reporting; Linux Documentation/PCI/pcieaer-howto.rst
    """
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    if log.get("aer-uncorrected"):
        yield fails("uncorrectable errors in the kernel log", evidence=lines("dmesg", log["aer-uncorrected"]))
    refused = next((line for line in log.get("osc", ()) if "AER" in line and "not support" in line), "")

    def judge(device: PciDevice) -> Iterator[Verdict]:
        if is_unknown(device.aer_fatal):
            if refused:
                yield unknown(
                    "the firmware keeps AER to itself, so an empty log proves nothing",
                    device.bdf,
                    evidence=evidence("dmesg", refused),
                )
            elif device.aer_fatal.absent and not has_link(device):
                return
            else:
                yield unknown(device.aer_fatal.reason, device.bdf)
            return
        nonfatal = 0 if is_unknown(device.aer_nonfatal) else device.aer_nonfatal
        if device.aer_fatal or nonfatal:
            words = f"{device.aer_fatal} fatal, {nonfatal} non-fatal errors since boot"
            yield fails(words, device.bdf, evidence=evidence("aer_dev_fatal", words))
        else:
            yield passes("no uncorrectable error", device.bdf)

    yield from each((d for d in endpoints(facts) if d.kind != "fragment"), subject, judge)


@check("pcie.aer-correctable", P1, FIRMWARE)
def aer_correctable(facts: Facts) -> Iterator[Verdict]:
    """Links do not correct errors all the time.

    Effect: replays cost bandwidth, and come before a link that drops (riser, retimer, cable, slot)
    Sure: high
    Fix: reseat, change the riser; a lower generation in the BIOS as a stop-gap; never mask the errors
    Undo: nothing to undo
    Wrong when: a handful came at boot
    Source: PCI Express Base Specification, Advanced Error Reporting; DCGM diagnostics
    """
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    found = log.get("aer-corrected", ())
    if len(found) >= 10:
        yield fails("the kernel log is full of corrected errors", evidence=lines("dmesg", found))

    def judge(device: PciDevice) -> Iterator[Verdict]:
        if is_unknown(device.aer_correctable) and not has_link(device):
            return
        count = known(device.aer_correctable)
        # A hundred since boot is far from the one a minute that shows as lost bandwidth, and far from a few at boot.
        if count >= 100:
            yield fails(
                f"{count} corrected errors since boot",
                device.bdf,
                evidence=evidence("aer_dev_correctable", count),
            )
        else:
            yield passes(f"{count} corrected errors since boot", device.bdf)

    yield from each((d for d in endpoints(facts) if d.kind != "fragment"), subject, judge)


@check("pcie.replay-counter", P1, NONE)
def replays(facts: Facts) -> Iterator[Verdict]:
    """The GPU's own count of replayed packets is low.

    Effect: as corrected errors
    Sure: high
    Fix: reseat, change the riser
    Undo: nothing to undo
    Wrong when: the driver has been loaded for months
    Source: DCGM diagnostics (more than 80 fails); NVML API reference, PCIe replay counter
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        count = known(gpu.replays)
        if count > 80:
            yield fails(
                f"{count} replays since the driver was loaded",
                subject_of(gpu),
                evidence=evidence("replay counter", count),
            )
        else:
            yield passes(f"{count} replays", subject_of(gpu))

    yield from each(gpus(facts), subject_of, judge)


@check("pcie.completion-timeout", P2, NONE)
def completion_timeout(facts: Facts) -> Iterator[Verdict]:
    """No completion timed out.

    Effect: stability
    Sure: low
    Fix: none: find why the completer did not answer
    Undo: nothing to undo
    Wrong when: the device was reset meanwhile
    Source: PCI Express Base Specification, uncorrectable error status bit 14
    """

    def judge(device: PciDevice) -> Iterator[Verdict]:
        status = known(device.config).aer_uncorrectable
        if status is None:
            return
        if known(status) & 1 << 14:
            yield fails("a completion timed out", device.bdf, evidence=evidence("UESta", "CmpltTO+"))
        else:
            yield passes("no completion timed out", device.bdf)

    yield from each((d for d in facts.pcie.devices if d.kind == "gpu"), subject, judge)


@check("pcie.dpc-hotplug", P0, FIRMWARE)
def dpc(facts: Facts) -> Iterator[Verdict]:
    """No port contained an error or lost its link.

    Effect: the device disappears
    Sure: high
    Fix: reseat, change riser, cable or slot
    Undo: nothing to undo
    Wrong when: somebody pulled the card
    Source: PCI Express Base Specification, Downstream Port Containment; Linux pciehp messages
    """
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    found = [line for line in log.get("dpc", ()) if "containment event" in line] + list(
        log.get("link-down", ())
    )
    found = [line for line in found if "pcie" in line.lower()]
    above = set()
    if not is_unknown(facts.pcie.devices):
        for device in facts.pcie.devices:
            if device.kind == "gpu" and not is_unknown(device.path):
                above |= set(device.path)
        for device in facts.pcie.devices:
            config = device.config
            if device.bdf in above and not is_unknown(config) and config.dpc_triggered is True:
                found.append(f"{device.bdf}: DPC status says triggered")
    if found:
        yield fails("a port dropped its link", evidence=lines("dmesg", found))
    elif is_unknown(facts.driver.log):
        yield unknown(facts.driver.log.reason)
    elif above:
        yield passes("no port dropped its link")


@check("pcie.slot-power", P0, FIRMWARE)
def slot_power(facts: Facts) -> Iterator[Verdict]:
    """No warning about power of a slot or its cables.

    Effect: throttling or a card that disappears
    Sure: medium
    Fix: connect the power cables; another supply
    Undo: nothing to undo
    Wrong when: the line is older than the repair
    Source: PCI Express Base Specification, Slot Status power fault; NVRM messages
    """
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    if log.get("power-cable"):
        yield fails("the driver misses power", evidence=lines("dmesg", log["power-cable"]))
        return
    faulty = []
    if not is_unknown(facts.pcie.devices):
        faulty = [
            d.bdf
            for d in facts.pcie.devices
            if not is_unknown(d.config) and d.config.slot_power_fault is True
        ]
    if faulty:
        yield fails(f"power fault at {', '.join(faulty)}", evidence=evidence("SltSta", "PwrFlt+"))
    elif is_unknown(facts.driver.log):
        yield unknown(facts.driver.log.reason)
    elif not is_unknown(facts.driver.gpus) and not facts.driver.gpus:
        yield not_applicable("no GPU")
    else:
        yield passes("no power warning")
