"""GPUs that are broken, missing or unlike each other: tuning one is pointless before it is repaired."""

from collections.abc import Callable, Iterator

from uncork.checks import (
    INFO,
    NONE,
    P0,
    P1,
    P2,
    REBOOT,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.gpus import (
    each,
    family,
    gpus,
    is_geforce,
    lines,
    no_nvidia,
    pci_gpus,
    subject_of,
    visible,
    whole_log,
    widest,
)
from uncork.checks.hosts import known, seen
from uncork.model.facts import Facts
from uncork.model.facts.driver import Gpu
from uncork.model.unknown import is_unknown

# Xids of hardware, links and firmware; the others come from applications. Source: NVIDIA, Xid errors.
HARDWARE_XIDS = frozenset((48, 62, 63, 64, 74, 79, 92, 94, 95, 109, 119, 120, 140, 143, 145, 149, 154))
_XID_WORDS = {
    31: "memory page fault of an application",
    13: "exception in an application's kernel",
    43: "a context was stopped",
    45: "contexts were ended after an earlier fault",
    48: "double-bit ECC error",
    63: "row remapping recorded",
    64: "row remapping failed",
    74: "NVLink error",
    79: "fell off the bus",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GSP timed out",
    120: "GSP error",
    140: "unrecovered ECC error",
    149: "NVLink error",
    154: "recovery action changed",
}
# NVML_GPU_RECOVERY_ACTION_… of nvml.h.
_ACTIONS = (
    "none",
    "reset the GPU",
    "reboot the node",
    "drain peer-to-peer work",
    "drain and reset",
    "recover the IMEX domain",
    "reset the bus",
    "reboot the system",
)


@check("driver.xid-recent", P0, NONE, unless=no_nvidia)
def xids(facts: Facts) -> Iterator[Verdict]:
    """The kernel log has no Xid or SXid of hardware, links or firmware.

    Effect: the GPU cannot be relied on: repair comes before tuning
    Sure: high
    Fix: what the Xid's entry in NVIDIA's list says: reset, reboot, reseat or return
    Undo: nothing to undo
    Wrong when: the line is older than the repair that cured it
    Source: NVIDIA, Xid errors (deploy/xid-errors)
    """
    found: dict[str, set[int]] = {}
    for xid in known(facts.driver.xids):
        found.setdefault(xid.bdf, set()).add(xid.number)
    for bdf, numbers in sorted(found.items()):
        shown = lines("dmesg", (x.line for x in known(facts.driver.xids) if x.bdf == bdf))
        hard = numbers & HARDWARE_XIDS or {
            x.number for x in known(facts.driver.xids) if x.bdf == bdf and x.switch
        }
        words = ", ".join(
            f"{n} ({_XID_WORDS[n]})" if n in _XID_WORDS else str(n) for n in sorted(hard or numbers)
        )
        if hard:
            yield fails(f"Xid {words}", bdf, evidence=shown)
        else:
            yield fails(
                f"Xid {words}: an application's fault until shown otherwise", bdf, priority=P2, evidence=shown
            )
    if not found:
        whole_log(facts)
        whole = (
            "in the kernel log since boot"
            if facts.driver.log_from_boot
            else "in what is left of the kernel log"
        )
        yield passes(f"no Xid {whole}")


@check("driver.recovery-action", P0, NONE)
def recovery(facts: Facts) -> Iterator[Verdict]:
    """The driver asks for no recovery action.

    Effect: the driver's own word for stop and repair
    Sure: high
    Fix: the action it names
    Undo: nothing to undo
    Wrong when: never
    Source: nvml.h, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        action = known(gpu.recovery_action)
        if action == 0:
            yield passes("no recovery action", subject_of(gpu))
            return
        word = _ACTIONS[action] if action < len(_ACTIONS) else f"action {action}"
        yield fails(f"the driver asks: {word}", subject_of(gpu), evidence=seen("recovery action", action))

    yield from each(gpus(facts, "nvidia"), subject_of, judge)


@check("driver.ecc", P0, REBOOT)
def ecc(facts: Facts) -> Iterator[Verdict]:
    """No uncorrected memory error, and ECC as it was asked for.

    Effect: wrong results or an application killed by an Xid; ECC itself costs about 6 % on GDDR cards only
    Sure: high
    Fix: reset or return the card; a pending mode takes a GPU reset
    Undo: nothing to undo
    Wrong when: the counters are older than the reset that cured them
    Folklore: partly: switching ECC off for speed gains nothing on HBM, and uncork never plans it
    Source: NVML API reference, ECC; Azure health checks
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        subject = subject_of(gpu)
        if not is_unknown(gpu.sram_threshold_exceeded) and gpu.sram_threshold_exceeded:
            yield fails("SRAM errors are over the driver's threshold", subject)
            return
        if is_unknown(gpu.ecc_uncorrected_volatile) and not is_unknown(gpu.name) and is_geforce(gpu.name):
            yield not_applicable("a GeForce card shows no ECC counters", subject)
            return
        count = known(gpu.ecc_uncorrected_volatile)
        if count:
            yield fails(
                f"{count} uncorrected memory errors since the driver was loaded",
                subject,
                evidence=seen("ECC volatile", count),
            )
        elif not is_unknown(gpu.ecc) and not is_unknown(gpu.ecc_pending) and gpu.ecc != gpu.ecc_pending:
            asked = "on" if gpu.ecc_pending else "off"
            yield fails(f"ECC will be {asked} only after a reset", subject, priority=P2)
        else:
            yield passes("no uncorrected memory error", subject)

    if is_unknown(facts.driver.gpus) and (told := _memory_xids(facts)):
        for bdf, codes in told.items():
            named = ", ".join(str(code) for code in sorted(codes))
            yield fails(f"uncorrected memory errors in the kernel log (Xid {named})", bdf)
        return
    yield from each(gpus(facts), subject_of, judge)


def _memory_xids(facts: Facts) -> dict[str, set[int]]:
    """GPUs whose log names uncorrected memory errors: 48 (double bit), 94 and 95 (contained, uncontained)."""
    found: dict[str, set[int]] = {}
    for xid in () if is_unknown(facts.driver.xids) else facts.driver.xids:
        if xid.number in (48, 94, 95) and not xid.switch:
            found.setdefault(xid.bdf, set()).add(xid.number)
    return found


@check("driver.row-remap", P0, NONE)
def remap(facts: Facts) -> Iterator[Verdict]:
    """No row remapping or page retirement is pending or failed.

    Effect: a pending one leaves bad memory in use until a reset; a failed one means the card goes back
    Sure: high
    Fix: reset the GPU when it is idle; return it after a failure
    Undo: nothing to undo
    Wrong when: never
    Source: NVIDIA GPU memory error management; Azure health checks
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        subject = subject_of(gpu)
        older = is_unknown(gpu.remap_pending) and not is_unknown(gpu.retired_pending)
        if older and known(gpu.retired_pending):
            yield fails("page retirement is pending", subject)
        elif older:
            yield passes("no page retirement is pending", subject)
        elif not is_unknown(gpu.remap_failure) and gpu.remap_failure:
            yield fails("row remapping failed", subject)
        elif known(gpu.remap_pending):
            yield fails("row remapping is pending until a reset", subject)
        else:
            yield passes("no row remapping is pending", subject)

    yield from each(gpus(facts, "nvidia"), subject_of, judge)


@check("driver.gpu-count", P0, NONE)
def count(facts: Facts) -> Iterator[Verdict]:
    """Every installed GPU answers.

    Effect: a missing GPU changes every later finding
    Sure: high
    Fix: power cycle, reseat, return; the kernel log names the card
    Undo: nothing to undo
    Wrong when: a container was given only some of them
    Source: Azure health checks; open-gpu-kernel-modules, 'fallen off the bus'
    """
    if logged := _lost_in_log(facts):
        yield logged
        return
    devices = () if is_unknown(facts.pcie.devices) else pci_gpus(facts)
    gone = [device.bdf for device in devices if device.off_bus]
    if gone:
        yield fails(f"off the bus: {', '.join(gone)}", evidence=seen("configuration space", "all ones"))
        return
    if "No devices were found" in facts.driver.nvml_error:
        yield fails("nvidia-smi finds no GPU", evidence=seen("nvidia-smi", facts.driver.nvml_error))
        return
    lost = [gpu for gpu in known(facts.driver.gpus) if gpu.lost]
    if lost:
        for gpu in lost:
            yield fails(f"the driver lost it: {gpu.lost}", subject_of(gpu), evidence=seen("NVML", gpu.lost))
        return
    answering = len(gpus(facts))
    if is_unknown(facts.pcie.devices):
        yield unknown(f"{answering} GPUs answer; how many are on the bus is not told (attach lspci)")
        return
    served = [d for d in devices if is_unknown(d.driver) or d.driver in ("nvidia", "amdgpu")]
    if answering < len(served) and facts.container.contained:
        yield passes(f"{answering} of the host's {len(served)} GPUs were given to this container")
    elif answering < len(served):
        yield fails(
            f"{answering} of {len(served)} GPUs answer",
            evidence=seen("lspci", ", ".join(d.bdf for d in served)),
        )
    elif answering:
        yield passes(f"all {answering} GPUs answer")


def _lost_in_log(facts: Facts) -> Verdict | None:
    """The verdict where the kernel log says that a GPU went or never came."""
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    if log.get("off-bus"):
        return fails("a GPU fell off the bus", evidence=lines("dmesg", log["off-bus"]))
    xids = () if is_unknown(facts.driver.xids) else facts.driver.xids
    dropped = [xid for xid in xids if xid.number == 79]
    if dropped:
        bdfs = ", ".join(sorted({xid.bdf for xid in dropped}))
        return fails(f"fell off the bus: {bdfs}", evidence=lines("dmesg", (xid.line for xid in dropped)))
    if is_unknown(facts.driver.gpus) and is_unknown(facts.pcie.devices) and log.get("probe-failed"):
        return fails("the driver could not start a GPU", evidence=lines("dmesg", log["probe-failed"]))
    return None


@check("driver.model-uniform", P1, NONE)
def alike(facts: Facts) -> Iterator[Verdict]:
    """GPUs that share a model are alike.

    Effect: the slowest card sets the pace, the smallest memory sets the size of the KV cache
    Sure: high
    Fix: group equal cards with CUDA_VISIBLE_DEVICES; bring VBIOS and limits to one state
    Undo: nothing to undo
    Wrong when: the odd card serves something else
    Source: Azure health checks
    """
    everything = gpus(facts)
    if len(everything) < 2:
        yield not_applicable("one GPU" if everything else "no GPU")
        return
    groups = []
    if not is_unknown(facts.engine.servers):
        groups = [visible(server, everything) for server in facts.engine.servers]
    wide = [group for group in groups if len(group) > 1]
    for group in wide or [everything]:
        yield from _alike(group, sharing=bool(wide))


_TRAITS: tuple[tuple[str, Callable[[Gpu], object]], ...] = (
    ("model", lambda gpu: gpu.name),
    ("memory", lambda gpu: gpu.memory_total_bytes),
    ("default power limit", lambda gpu: gpu.power_default_mw),
    ("VBIOS", lambda gpu: gpu.vbios),
    ("ECC mode", lambda gpu: gpu.ecc),
)


def _alike(group: tuple[Gpu, ...], *, sharing: bool) -> Iterator[Verdict]:
    for trait, of in _TRAITS:
        values = {str(value) for gpu in group if not is_unknown(value := of(gpu))}
        if len(values) < 2:
            continue
        shown = seen(trait, ", ".join(sorted(values)))
        if trait == "model" and not sharing:
            yield passes("different models, and no server here spreads over them", evidence=shown)
            return
        priority = P1 if sharing and trait not in ("VBIOS", "ECC mode") else P2
        yield fails(f"the {trait} differs: {', '.join(sorted(values))}", priority=priority, evidence=shown)
        return
    yield passes(f"{len(group)} GPUs alike")


@check("driver.foreign-processes", P1, NONE)
def foreign(facts: Facts) -> Iterator[Verdict]:
    """Only the server works on the server's GPUs.

    Effect: less memory for the KV cache, and steps that wait for somebody else's kernels
    Sure: high
    Fix: end the other process or move it (its owner decides)
    Undo: nothing to undo
    Wrong when: MPS or a monitor, which are left out here
    Source: NVML API reference, running processes
    """
    servers = known(facts.engine.servers)
    if not servers:
        yield not_applicable("no inference server runs: see cuda.free-before-start")
        return
    ours = {pid for server in servers for pid in family(server)}
    ours |= {other.pid for other in known(facts.engine.others)}
    if facts.container.contained:
        yield unknown("a container sees other process ids than the driver")
        return

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        others = [p for p in known(gpu.processes) if p.kind == "compute" and p.pid not in ours]
        subject = subject_of(gpu)
        if others:
            shown = ", ".join(f"{p.name or 'process'} {p.pid}" for p in others[:5])
            yield fails(
                f"{len(others)} other processes compute here: {shown}",
                subject,
                evidence=seen("processes", shown),
            )
        else:
            yield passes("no other process computes here", subject)

    yield from each(gpus(facts), subject_of, judge)


@check("driver.confidential-compute", INFO, NONE)
def confidential(facts: Facts) -> Iterator[Verdict]:
    """Confidential computing, which closes peer access, is off.

    Effect: copies to the GPU are encrypted and bounced, and there is no peer access
    Sure: high
    Fix: none planned: it is a security decision
    Undo: nothing to undo
    Wrong when: it is wanted
    Source: NVIDIA gpu-admin-tools; NVIDIA confidential computing deployment guide
    """
    if reason := no_nvidia(facts):
        yield not_applicable(reason)
    elif known(facts.driver.confidential):
        yield fails(
            "confidential computing is on: no peer access, slow copies", evidence=seen("NVML", "CC on")
        )
    else:
        yield passes("confidential computing is off")


@check("driver.mig-mode", P0, SERVICE_RESTART)
def mig(facts: Facts) -> Iterator[Verdict]:
    """MIG is off where a model spans GPUs.

    Effect: a slice of the GPU, and neither peer access nor NVLink
    Sure: high
    Fix: nvidia-smi -mig 0 on an idle GPU; its instances are destroyed
    Undo: nvidia-smi -mig 1 and create the instances again
    Wrong when: slices are what this host sells
    Source: NVIDIA MIG user guide
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        subject = subject_of(gpu)
        if is_unknown(gpu.mig) and not is_unknown(gpu.name) and is_geforce(gpu.name):
            yield not_applicable("a GeForce card has no MIG", subject)
        elif known(gpu.mig):
            spread = not is_unknown(facts.engine.servers) and widest(facts) > 1
            words = "MIG is on: no peer access, no NVLink"
            yield fails(words, subject, priority=P0 if spread else P2, evidence=seen("MIG mode", "enabled"))
        else:
            yield passes("MIG is off", subject)

    yield from each(gpus(facts, "nvidia"), subject_of, judge)
