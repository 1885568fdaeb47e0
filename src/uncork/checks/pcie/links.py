"""Width and speed of PCIe links."""

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
    passes,
    unknown,
)
from uncork.checks.gpus import busy, each, gpus, pci_gpus, subject_of
from uncork.checks.hosts import known, seen
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
                evidence=seen("LnkSta", shown),
            )

    yield from each(endpoints(facts), subject, judge)
    yield from each(_told_by_driver(facts, "width"), subject_of, _width_of)


def _told_by_driver(facts: Facts, what: str) -> list[Gpu]:
    """GPUs whose link only their driver tells: where no lspci or sysfs was given."""
    if is_unknown(facts.driver.gpus):
        return []
    told = set()
    if not is_unknown(facts.pcie.devices):
        told = {
            d.bdf for d in facts.pcie.devices if not is_unknown(d.width if what == "width" else d.speed_gt_s)
        }
    readings = {"width": lambda gpu: gpu.link_width, "speed": lambda gpu: gpu.link_gen}
    return [
        g
        for g in gpus(facts)
        if not is_unknown(readings[what](g)) and (is_unknown(g.bdf) or g.bdf not in told)
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
        yield fails(words, subject_of(gpu), priority=priority, evidence=seen("nvidia-smi -q", shown))
    else:
        yield passes(f"x{now}", subject_of(gpu))


def _speed_of(gpu: Gpu) -> Iterator[Verdict]:
    now, most = known(gpu.link_gen), known(gpu.link_gen_max)
    shown = f"Gen{now} of Gen{most}"
    if now >= most:
        yield passes(f"Gen{now}", subject_of(gpu))
    elif busy(gpu):
        yield fails(f"{shown} while the GPU works", subject_of(gpu), evidence=seen("nvidia-smi -q", shown))
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
            yield fails(shown, device.bdf, evidence=seen("LnkSta", shown))
        elif device.kind in ("gpu", "fragment"):
            yield unknown(f"{now:g} GT/s of an idle GPU says nothing: read it while a copy runs", device.bdf)
        elif target is not None and not is_unknown(target) and target < min(ends):
            yield fails(
                f"held at {target:g} GT/s by the BIOS",
                device.bdf,
                priority=P2,
                evidence=seen("LnkCtl2", target),
            )
        else:
            shown = f"{now:g} of {min(ends):g} GT/s"
            yield fails(shown, device.bdf, priority=P2, evidence=seen("LnkSta", shown))

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
            yield fails(words, device.bdf, evidence=seen(above.bdf, words))
        else:
            yield passes(f"slot of {port[0]:g} GT/s x{port[1]}", device.bdf)

    yield from each(pci_gpus(facts), subject, judge)
