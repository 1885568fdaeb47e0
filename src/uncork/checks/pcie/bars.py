"""Memory windows of GPUs."""

import re
from collections.abc import Iterator

from uncork.checks import FIRMWARE, P0, P1, P2, Verdict, check, fails, not_applicable, passes, unknown
from uncork.checks.driver.options import registry
from uncork.checks.gpus import (
    gpus,
    is_data_centre,
    is_geforce,
    lines,
    named,
    pci_gpus,
    subject_of,
    wrong_data,
)
from uncork.checks.hosts import known, seen, sizes
from uncork.checks.nvlink.links import links_up
from uncork.checks.pcie.links import guest
from uncork.explorers.gpu_log import addresses
from uncork.model.facts import Facts
from uncork.model.facts.pcie import PciDevice
from uncork.model.findings import Priority
from uncork.model.unknown import UnknownValue, is_unknown

GIB = 1 << 30


@check("pcie.bar-unassigned", P0, FIRMWARE)
def unassigned(facts: Facts) -> Iterator[Verdict]:
    """Every memory window of a GPU has its place.

    Effect: the GPU, or its window for peers, cannot be used
    Sure: high
    Fix: Above 4G Decoding and a larger MMIO window in the BIOS; pci=realloc on the command line
    Undo: the former setting
    Wrong when: the window belongs to a function nobody uses
    Source: Linux drivers/pci/setup-res.c messages; aikitoria open-gpu-kernel-modules thread 9
    """
    found = _failed(facts)
    if found:
        yield fails("a memory window found no place", evidence=lines("dmesg", found))
        return
    if is_unknown(facts.pcie.devices):
        if other := known(facts.driver.log).get("bar", ()):
            yield unknown(
                "a window found no place, and no text tells whether it is a GPU's: attach lspci -vvv",
                evidence=lines("dmesg", other),
            )
        else:
            yield passes("the kernel log names no window without a place")
        return
    for device in pci_gpus(facts):
        if is_unknown(device.bars):
            yield unknown(device.bars.reason, device.bdf)
            continue
        loose = [bar.number for bar in device.bars if not bar.assigned]
        if loose:
            yield fails(
                f"window {loose[0]} has no place", device.bdf, evidence=seen("resource", f"BAR {loose}")
            )
        else:
            yield passes("all windows have their place", device.bdf)


# Where no device list was given: the driver's own lines, and windows of 256 MiB and more, which only memory of
# a GPU (or an accelerator) asks for.
_OF_GPU = re.compile(
    r"\b(?:nvidia|amdgpu|xe|i915)\b|NVRM|size 0x[1-9a-f][0-9a-f]{7,} 64bit pref", re.IGNORECASE
)


def _failed(facts: Facts) -> list[str]:
    """Lines of the kernel log that end with a GPU's window unplaced."""
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    cards = set() if is_unknown(facts.pcie.devices) else {d.bdf for d in pci_gpus(facts)}
    placed = set()
    if not is_unknown(facts.pcie.devices):
        placed = {
            d.bdf for d in pci_gpus(facts) if not is_unknown(d.bars) and all(b.assigned for b in d.bars)
        }
    found = []
    for line in log.get("bar", ()):
        where = set(addresses(line))
        ours = bool(where & cards) if cards else bool(_OF_GPU.search(line))
        # The kernel tries again with smaller windows; what sysfs shows afterwards is what counts.
        if ours and not where & placed:
            found.append(line)
    return found


@check("pcie.bar1-too-small", P0, FIRMWARE)
def bar1(facts: Facts) -> Iterator[Verdict]:
    """BAR1 maps all of a GPU's memory, alike on equal cards.

    Effect: no peer access over PCIe on GeForce and workstation cards; a patched driver delivers wrong data
    Sure: high
    Fix: Resizable BAR and Above 4G Decoding in the BIOS, or a VBIOS that has them
    Undo: the former setting
    Wrong when: a guest, where the hypervisor decides; data-centre cards map everything as shipped
    Source: open-gpu-kernel-modules threads 510, 13, 19 and 25; NVIDIA Resizable BAR
    """
    if guest(facts):
        yield not_applicable("a virtual machine: the window is the hypervisor's")
        return
    wanted = bool(facts.driver.patched) or bool(re.search("ForceP2P|StaticBar1", registry(facts)[0]))
    windows = _windows(facts)
    failed = [line for line in _failed(facts) if re.search(r"BAR 1\b", line)]
    if failed:
        yield fails("BAR1 found no place", evidence=lines("dmesg", failed))
        return
    if not windows:
        yield from _stated(facts, wanted)
        return
    if len(windows) < 2 and not wanted:
        yield not_applicable("one GPU: no peer needs the window")
        return
    biggest: dict[str, int] = {}
    for _, model, size, _ in windows:
        biggest[model] = max(size, biggest.get(model, 0))
    for subject, model, size, memory in windows:
        if size < biggest[model]:
            shown = f"{sizes(size)}, another of the same model has {sizes(biggest[model])}"
            yield fails(f"BAR1 is {shown}", subject, evidence=seen("BAR1", shown))
        elif (memory and size < 0.95 * memory) or size <= GIB // 4:
            priority = P0 if wanted or not model else _weight(facts, model)
            whole = f" of {sizes(memory)}" if memory else ""
            yield fails(
                f"BAR1 maps {sizes(size)}{whole}",
                subject,
                priority=priority,
                evidence=seen("BAR1", sizes(size)),
            )
        elif memory or size >= 8 * GIB:
            yield passes(f"BAR1 maps {sizes(size)}", subject)
        else:
            yield unknown(f"BAR1 is {sizes(size)}; the GPU's memory is not told", subject)


def _weight(facts: Facts, model: str) -> Priority:
    """How much a small window matters for a product with its stock driver.

    GeForce has no peer access over PCIe at all, data-centre cards map what they need, a bridge carries peers past
    PCIe; a workstation card reaches its peers through small windows, slower.
    """
    bridged = not is_unknown(facts.nvlink.gpus) and any(links_up(one) for one in facts.nvlink.gpus)
    return P2 if bridged or is_geforce(model) or is_data_centre(model) else P1


def _windows(facts: Facts) -> list[tuple[str, str, int, int]]:
    """Subject, model, BAR1 and memory (0: not told) of each GPU."""
    found = []
    for gpu in () if is_unknown(facts.driver.gpus) else gpus(facts):
        if not is_unknown(gpu.bar1_total_bytes):
            memory = 0 if is_unknown(gpu.memory_total_bytes) else gpu.memory_total_bytes
            found.append(
                (subject_of(gpu), "" if is_unknown(gpu.name) else gpu.name, gpu.bar1_total_bytes, memory)
            )
    if found or is_unknown(facts.pcie.devices):
        return found
    names = named(facts)
    for device in pci_gpus(facts):
        size = _window(device)
        # One model on the host: every card of that device id is it.
        if size:
            found.append((device.bdf, names[0] if len(names) == 1 else "", size, 0))
    return found


def _window(device: PciDevice) -> int:
    """The size of the window to GPU memory: BAR1 of NVIDIA, BAR0 of AMD; 0 where it is not told."""
    if is_unknown(device.bars) or is_unknown(device.vendor):
        return 0
    number = 0 if device.vendor == 0x1002 else 1
    return next((bar.size_bytes for bar in device.bars if bar.number == number), 0)


def _stated(facts: Facts, wanted: bool) -> Iterator[Verdict]:
    small = [line for _, size, line in facts.driver.bar1_stated if size <= 512 << 20]
    if small:
        yield fails("BAR1 is smaller than any GPU's memory", evidence=lines("as reported", small))
    elif wrong_data(facts) and wanted:
        yield unknown(
            "peer data is wrong with a driver that needs all memory in BAR1: attach `nvidia-smi -q` or lspci -vvv",
            evidence=lines("copy test", wrong_data(facts)),
        )
    elif not is_unknown(facts.driver.gpus) and not facts.driver.gpus:
        yield not_applicable("no GPU")
    else:
        raise UnknownValue("no text tells the size of BAR1: attach `nvidia-smi -q` or `sudo lspci -vvv`")
