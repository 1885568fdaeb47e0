"""Memory slots: channels, speed, errors, encryption."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from uncork.checks import FIRMWARE, P1, P2, Verdict, check, fails, not_applicable, passes, unknown
from uncork.checks.hosts import guest_reason, known, seen, sizes
from uncork.model.facts import Facts
from uncork.model.facts.firmware import Dimm
from uncork.model.unknown import is_unknown

# Boards name slots in free text: socket and channel as some families of them write it, tried in this order.
_NAMES = (
    re.compile(r"P(?P<socket>\d) CHANNEL (?P<channel>[A-P])$"),  # AMD reference firmware, bank
    re.compile(r"P(?P<socket>\d)_Node\d+_Channel(?P<channel>\d+)_Dimm\d+"),  # Supermicro, bank
    re.compile(r"NODE (?P<socket>\d) CHANNEL (?P<channel>\d+)", re.I),  # Intel reference firmware, bank
    re.compile(r"Controller(?P<socket>\d)-Channel(?P<channel>[A-D])"),  # Intel client boards
    re.compile(r"P(?P<socket>\d)-DIMM(?P<channel>[A-P])\d$"),  # Supermicro
    re.compile(r"CPU(?P<socket>\d)[_ -]?DIMM[_ -]?(?P<channel>[A-P])\d$"),  # ASUS, Tyan
    re.compile(r"DIMM_P(?P<socket>\d)_(?P<channel>[A-P])\d?$"),  # Gigabyte
    re.compile(r"CPU(?P<socket>\d)_(?P<channel>[A-P])\d$"),  # Intel boards
    re.compile(r"(?:DIMM|DDR\d)[_ ]?(?P<channel>[A-P])\d$"),  # one socket
)


def channel_of(dimm: Dimm) -> tuple[str, str] | None:
    """Socket and channel of a slot, None where its name is of no family known here."""
    for text in (dimm.bank, dimm.locator):
        for pattern in _NAMES:
            if match := pattern.search(text.strip()):
                return match.groupdict().get("socket") or "0", match["channel"]
    return None


def _channels(dimms: Iterable[Dimm]) -> dict[tuple[str, str], list[Dimm]] | None:
    channels: dict[tuple[str, str], list[Dimm]] = defaultdict(list)
    for dimm in dimms:
        place = channel_of(dimm)
        if place is None:
            return None
        channels[place].append(dimm)
    return channels


@check("uefi.memory-channels", P1, FIRMWARE, unless=guest_reason)
def memory_channels(facts: Facts) -> Iterator[Verdict]:
    """Every memory channel of every socket is filled, with equal modules.

    Effect: host bandwidth scales with the channels in use: weight loading, KV and CPU offload (arithmetic)
    Sure: high
    Fix: one module a channel (8 on EPYC 7xx3 and Xeon SPR, 12 on EPYC 9xx4/9xx5, 8 or 12 on Xeon 6)
    Undo: nothing to undo
    Wrong when: slot names are free text: an unknown family of names is answered as unknown
    Source: DMTF DSP0134, type 17
    """
    dimms = known(facts.firmware.dimms)
    channels = _channels(dimms)
    if not channels or not any(dimm.size_bytes for dimm in dimms):
        names = ", ".join(sorted({dimm.locator for dimm in dimms})[:4])
        yield unknown(
            f"slot names of this board are not understood: {names}" if names else "no slots are listed"
        )
        return
    empty = sorted(f"{s}/{c}" for (s, c), slots in channels.items() if not any(d.size_bytes for d in slots))
    totals = {sum(dimm.size_bytes for dimm in slots) for slots in channels.values()} - {0}
    filled = len(channels) - len(empty)
    evidence = seen(
        "SMBIOS type 17",
        f"{filled} of {len(channels)} channels filled: {', '.join(map(sizes, sorted(totals)))} each",
    )
    if empty:
        says = f"{len(empty)} of {len(channels)} memory channels are empty ({', '.join(empty[:6])})"
        yield fails(says, evidence=evidence)
    elif len(totals) > 1:
        yield fails("memory channels hold different amounts", evidence=evidence, priority=P2)
    else:
        yield passes(f"all {len(channels)} memory channels filled alike", evidence=evidence)


@check("uefi.memory-speed", P2, FIRMWARE, unless=guest_reason)
def memory_speed(facts: Facts) -> Iterator[Verdict]:
    """Memory runs at its rated speed.

    Effect: in proportion to host bandwidth (arithmetic)
    Sure: high
    Fix: the memory setting of the firmware; equal modules
    Undo: the former setting
    Wrong when: two modules a channel, or the processor, allow no more: that is by design
    Source: DMTF DSP0134, type 17, speed and configured memory speed
    """
    filled = [dimm for dimm in known(facts.firmware.dimms) if dimm.size_bytes]
    pairs = {(d.speed_mts, d.configured_mts) for d in filled if d.speed_mts and d.configured_mts}
    if not pairs:
        yield unknown("the slots name no speeds")
        return
    channels = _channels(filled) or {}
    doubled = any(len(slots) > 1 for slots in channels.values())
    slow = sorted((r, c) for r, c in pairs if r and c and c < r)
    evidence = seen(
        "SMBIOS type 17", ", ".join(f"rated {r}, runs at {c} MT/s" for r, c in sorted(pairs, key=str))
    )
    if slow and not doubled:
        yield fails(f"memory rated {slow[0][0]} runs at {slow[0][1]} MT/s", evidence=evidence)
    elif slow:
        yield passes("memory slowed by two modules a channel, as is usual", evidence=evidence)
    else:
        yield passes("memory at its rated speed", evidence=evidence)


@check("uefi.memory-errors-edac", P1, FIRMWARE, unless=guest_reason)
def memory_errors(facts: Facts) -> Iterator[Verdict]:
    """Memory makes no errors.

    Effect: wrong results, and stalls while machine checks are handled
    Sure: high
    Fix: replace the module that the counter names
    Undo: nothing to undo
    Wrong when: a handful of corrected errors over months
    Source: Linux driver-api/edac.rst; Linux admin-guide/RAS
    """
    events = facts.kernel.events
    lines = () if is_unknown(events) else (*events.memory_errors, *events.machine_checks)
    fatal = [line for line in lines if "Uncorrected" in line or re.search(r"\d+ UE\b|Memory failure", line)]
    controllers = facts.firmware.memory_controllers
    if fatal:
        yield fails("the log shows uncorrected memory errors", evidence=seen("kernel log", fatal[-1]))
        return
    if is_unknown(controllers):
        if lines:
            says = f"{len(lines)} memory or machine-check messages"
            yield fails(says, evidence=seen("kernel log", lines[-1]), priority=P2)
        else:
            yield unknown(controllers.reason)
        return
    lost = sum(known(c.uncorrected) for c in controllers)
    mended = sum(known(c.corrected) for c in controllers)
    evidence = seen("/sys/devices/system/edac/mc", f"{mended} corrected, {lost} uncorrected")
    if lost:
        yield fails(f"{lost} uncorrected memory errors since boot", evidence=evidence)
    elif mended >= 100:
        yield fails(f"{mended} corrected memory errors since boot", evidence=evidence, priority=P2)
    else:
        yield passes("no memory errors", evidence=evidence)


@check("uefi.memory-encryption", P2, FIRMWARE)
def memory_encryption(facts: Facts) -> Iterator[Verdict]:
    """Memory is encrypted only where somebody needs it.

    Effect: a few per cent of memory latency; SME makes devices with narrow addresses bounce
    Sure: medium
    Fix: none planned: the owner of the security policy decides
    Undo: the former setting
    Wrong when: confidential computing or a policy requires it; TSME cannot be seen from the system
    Folklore: partly: no figure for serving is published
    Source: Linux arch/x86/amd-memory-encryption.rst; AMD Instinct MI300X system optimization
    """
    vendor = known(facts.kernel.vendor)
    if vendor != "AuthenticAMD":
        yield not_applicable("not an AMD processor")
        return
    words = known(facts.kernel_version.parameters)
    events = facts.kernel.events
    active = () if is_unknown(events) else events.memory_encryption
    if "mem_encrypt=on" in words or active:
        text = active[-1] if active else "mem_encrypt=on"
        yield fails("memory encryption is active", evidence=seen("kernel log or command line", text))
    elif is_unknown(events):
        yield unknown(events.reason)
    else:
        yield passes(
            "no memory encryption that the system can see", evidence=seen("kernel log", "no such line")
        )
