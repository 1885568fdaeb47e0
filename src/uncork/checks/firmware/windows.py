"""Address windows of GPUs: Above 4G decoding and resizable BARs."""

from collections.abc import Iterator

from uncork.checks import FIRMWARE, P0, P1, P2, Verdict, check, fails, not_applicable, passes, unknown
from uncork.checks.gpus import is_geforce, named
from uncork.checks.hosts import known, seen, sizes
from uncork.checks.nvlink.links import links_up
from uncork.model.facts import Facts
from uncork.model.facts.firmware import Bar, GpuWindows
from uncork.model.unknown import is_unknown

LARGE = 256 << 20


def _frame_buffer(gpu: GpuWindows) -> Bar | None:
    """The prefetchable window that maps video memory: the largest one."""
    windows = [bar for bar in known(gpu.bars) if bar.prefetchable]
    return max(windows, key=lambda bar: bar.size_bytes, default=None)


@check("uefi.above-4g-decoding", P0, FIRMWARE)
def above_4g(facts: Facts) -> Iterator[Verdict]:
    """All memory windows of every GPU have an address, and large ones lie above 4 GiB.

    Effect: the GPU does not initialise, or falls back to a 256 MiB window and loses peer access
    Sure: high
    Fix: Above 4G Decoding on and a large MMIO range in the firmware; pci=realloc helps some boards and hurts
        others (AMD's MI300X guide wants it off)
    Undo: the former settings
    Source: Linux ABI, sysfs-bus-pci (resource); AMD Instinct MI300X system optimization
    """
    failures = facts.firmware.bar_failures
    gpus = facts.firmware.gpu_windows
    lines = () if is_unknown(failures) else failures
    if is_unknown(gpus) and lines:
        yield fails("a GPU's memory window found no address", evidence=seen("kernel log", lines[-1]))
        return
    if not gpus:
        yield not_applicable("no GPU on the bus")
        return
    for gpu in known(gpus):
        bars = known(gpu.bars)
        lost = [bar for bar in bars if not bar.assigned]
        low = [
            bar
            for bar in bars
            if bar.assigned and bar.prefetchable and bar.size_bytes > LARGE and bar.start < 1 << 32
        ]
        said = [line for line in lines if gpu.bdf and gpu.bdf in line]
        text = ", ".join(f"{sizes(bar.size_bytes)} at {bar.start:#x}" for bar in bars)
        evidence = seen(f"{gpu.bdf} resource", text) + (seen("kernel log", said[-1]) if said else ())
        if lost:
            yield fails(
                f"window {lost[0].index} of {sizes(lost[0].size_bytes)} has no address",
                gpu.bdf,
                evidence=evidence,
            )
        elif low:
            yield fails(
                f"a window of {sizes(low[0].size_bytes)} lies below 4 GiB",
                gpu.bdf,
                evidence=evidence,
                priority=P1,
            )
        else:
            yield passes("all GPU memory windows have an address", gpu.bdf, evidence=evidence)


@check("uefi.resizable-bar", P1, FIRMWARE)
def resizable_bar(facts: Facts) -> Iterator[Verdict]:
    """The window into a GPU's memory covers all of it, where the card offers that.

    Effect: peer access between PCIe cards without a mailbox needs it; no gain for plain inference
    Sure: high
    Fix: Resizable BAR on in the firmware; without it: unbind the driver, write the size to resource1_resize,
        bind again, if the bridge window has room
    Undo: the former size while unbound, or a reboot
    Wrong when: one GPU only, or a data-centre card, which maps everything anyway; in a guest the figure is the
        hypervisor's
    Folklore: partly: widely sold as a general speed-up
    Source: open-gpu-kernel-modules 595; PCI Express Base Specification, Resizable BAR; Linux ABI, resourceN_resize
    """
    readings = list(_windows(facts)) or list(_driver_says(facts))
    machine = facts.container.machine
    guest = not is_unknown(machine) and machine is not None
    if not readings and guest and is_unknown(facts.firmware.gpu_windows):
        yield unknown(
            "a guest shows the hypervisor's windows: `lspci -vvv` of the host tells what the cards offer"
        )
        return
    if not readings:
        if is_unknown(facts.firmware.gpu_windows) and is_unknown(facts.driver.gpus):
            yield unknown(facts.firmware.gpu_windows.reason)
        else:
            yield not_applicable("no GPU with a memory window is seen")
        return
    for subject, size, offered in readings:
        evidence = seen("GPU memory window", f"{sizes(size)} of {sizes(offered)}")
        if size >= offered:
            yield passes("the whole GPU memory is mapped", subject, evidence=evidence)
        elif guest:
            yield unknown(
                f"a window of {sizes(size)} in a guest is the hypervisor's: look on the host", subject
            )
        else:
            says = f"a window of {sizes(size)} where {sizes(offered)} are offered"
            priority = P1 if len(readings) > 1 and _peers_use_it(facts) else P2
            yield fails(says, subject, evidence=evidence, priority=priority)


def _peers_use_it(facts: Facts) -> bool:
    """Whether GPUs of this host could reach each other through the window: not past an NVLink bridge, and not
    where the stock driver gives a GeForce no peer access at all."""
    if not is_unknown(facts.nvlink.gpus) and any(links_up(one) for one in facts.nvlink.gpus):
        return False
    names = named(facts)
    return bool(facts.driver.patched) or not names or not all(is_geforce(name) for name in names)


def _windows(facts: Facts) -> Iterator[tuple[str, int, int]]:
    """GPU, size of its window, size that its resizable BAR offers."""
    gpus = facts.firmware.gpu_windows
    for gpu in () if is_unknown(gpus) else gpus:
        offered = gpu.largest_offered_bytes
        window = None if is_unknown(gpu.bars) else _frame_buffer(gpu)
        if window is not None and not is_unknown(offered) and offered:
            yield gpu.bdf, window.size_bytes, offered


def _driver_says(facts: Facts) -> Iterator[tuple[str, int, int]]:
    """GPU, BAR1, video memory, as the driver reports them; BAR1 may be a little smaller than the memory."""
    gpus = facts.driver.gpus
    for gpu in () if is_unknown(gpus) else gpus:
        bar, memory = gpu.bar1_total_bytes, gpu.memory_total_bytes
        if not is_unknown(bar) and not is_unknown(memory) and bar and memory:
            name = gpu.bdf if not is_unknown(gpu.bdf) else f"GPU {gpu.index}"
            yield name, bar, bar if bar >= 0.9 * memory else memory
