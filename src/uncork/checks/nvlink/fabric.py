"""The fabric above NVLinks: NVSwitch, C2C, xGMI, and what switches it off."""

import re
from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    NONE,
    P0,
    P1,
    P2,
    RUNTIME,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.driver.options import registry
from uncork.checks.gpus import (
    each,
    expected_nvlinks,
    gpus,
    lines,
    named,
    no_amd,
    no_nvidia,
    subject_of,
    whole_log,
)
from uncork.checks.hosts import known, seen
from uncork.checks.nvlink.links import links_up, no_nvlink
from uncork.host.redact import cut
from uncork.model.facts import Facts
from uncork.model.facts.driver import Gpu
from uncork.model.facts.nvlink import Xgmi
from uncork.model.unknown import is_unknown

_HEALTH = {0: "degraded bandwidth", 2: "route recovery", 4: "unhealthy route", 6: "access timeout recovery"}


@check("nvlink.fabric-state", P0, SERVICE_RESTART)
def fabric_state(facts: Facts) -> Iterator[Verdict]:
    """Every GPU is registered with the NVSwitch fabric.

    Effect: CUDA error 802, or no multicast (NVLS), and NCCL fails with 'invalid argument'
    Sure: high
    Fix: start the fabric manager; after it was stopped and started under running GPUs, reset them or reboot
    Undo: nothing to undo
    Wrong when: bridge and PCIe systems, which have no fabric
    Source: NVML API reference, GPU fabric info; NVIDIA Fabric Manager user guide; NCCL issue 1562
    """
    if broken := nvls_failures(facts):
        yield fails(
            "NVLS fails with 'invalid argument': the fabric was started again without a reset of the GPUs",
            evidence=lines("NCCL log", broken),
        )
        return
    if reason := no_nvidia(facts):
        yield not_applicable(reason)
        return

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        subject = subject_of(gpu)
        if is_unknown(gpu.fabric_state) and not is_unknown(gpu.name) and expected_nvlinks(gpu.name) is None:
            yield not_applicable("no part of an NVSwitch fabric", subject)
            return
        state = known(gpu.fabric_state)
        if state == 0:
            yield not_applicable("no part of an NVSwitch fabric", subject)
        elif state == 3 and (is_unknown(gpu.fabric_status) or gpu.fabric_status == 0):
            yield passes("registered with the fabric", subject)
        else:
            words = ("not supported", "not started", "in progress", "completed with an error")[min(state, 3)]
            yield fails(
                f"registration with the fabric: {words}",
                subject,
                evidence=seen("fabric", f"state {state}"),
            )

    yield from each(gpus(facts, "nvidia"), subject_of, judge)


def nvls_failures(facts: Facts) -> list[str]:
    """NCCL warnings in which multicast memory is refused."""
    log = facts.p2p.log
    if is_unknown(log):
        return []
    return [
        f"{where} {text}" for where, text in log.warnings if "nvls" in where and "failure" in text.lower()
    ]


@check("nvlink.fabric-health", P1, FIRMWARE)
def fabric_health(facts: Facts) -> Iterator[Verdict]:
    """The fabric reports no degraded or unhealthy route.

    Effect: less bandwidth
    Sure: medium
    Fix: none on the host
    Undo: nothing to undo
    Wrong when: a recovery was under way
    Source: nvml.h, NVML_GPU_FABRIC_HEALTH_MASK
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        mask = known(gpu.fabric_health)
        # Two bits a field: 0 not supported, 1 true, 2 false; then four bits of configuration trouble.
        wrong = [word for shift, word in _HEALTH.items() if mask >> shift & 3 == 1]
        if mask >> 8 & 0xF > 1:
            wrong.append("incorrect configuration")
        if wrong:
            yield fails(
                f"the fabric reports {', '.join(wrong)}",
                subject_of(gpu),
                evidence=seen("health mask", f"{mask:#x}"),
            )
        else:
            yield passes("the fabric is healthy", subject_of(gpu))

    in_fabric = [g for g in gpus(facts, "nvidia") if not is_unknown(g.fabric_state) and g.fabric_state > 0]
    yield from each(in_fabric, subject_of, judge)


@check("nvlink.low-power", P2, RUNTIME)
def low_power(facts: Facts) -> Iterator[Verdict]:
    """NVLink has its full bandwidth mode.

    Effect: latency of small messages after a pause, or less bandwidth by choice
    Sure: low
    Fix: nvidia-smi nvlink --set-nvlink-bw-mode
    Undo: the former mode
    Wrong when: power is saved on purpose
    Folklore: partly
    Source: NVML API reference, NvLink bandwidth mode; open-gpu-kernel-modules, RmNvlinkBandwidth
    """
    if reason := no_nvlink(facts):
        yield not_applicable(reason)
    elif "RmNvlinkBandwidth" in registry(facts)[0]:
        yield fails("a registry key limits NVLink's bandwidth", evidence=seen("registry", registry(facts)[0]))
    elif not is_unknown(facts.nvlink.gpus) and not any(links_up(one) for one in facts.nvlink.gpus):
        yield not_applicable("no NVLink is up")
    elif known(facts.driver.nvlink_bw_mode) == 0:
        yield passes("NVLink has its full bandwidth mode")
    else:
        mode = facts.driver.nvlink_bw_mode
        yield fails(f"NVLink bandwidth mode {mode}", evidence=seen("NVML", mode))


@check("nvlink.disabled-by-param", P0, SERVICE_RESTART, unless=no_nvlink)
def disabled(facts: Facts) -> Iterator[Verdict]:
    """No module option switches NVLink off.

    Effect: no NVLink
    Sure: high
    Fix: take NvLinkDisable out of modprobe.d and load the module again
    Undo: put the line back
    Wrong when: a cloud's policy
    Source: open-gpu-kernel-modules, nv-reg.h, NVreg_NvLinkDisable
    """
    params = facts.driver.params
    option = facts.driver.modprobe.get("NVreg_NvLinkDisable", "")
    value = option if is_unknown(params) else params.get("NvLinkDisable", option)
    if value not in ("", "0") or "NvLinkDisable" in registry(facts)[0]:
        yield fails(
            "a module option switches NVLink off",
            evidence=seen("NvLinkDisable", value or registry(facts)[0]),
        )
    elif is_unknown(params):
        yield unknown(params.reason)
    else:
        yield passes("no option switches NVLink off")


@check("nvlink.c2c", P0, FIRMWARE)
def c2c(facts: Facts) -> Iterator[Verdict]:
    """All links between a Grace processor and its GPU are up.

    Effect: copies to the GPU fall to what PCIe does
    Sure: medium
    Fix: none on the host
    Undo: nothing to undo
    Wrong when: never
    Source: nvml.h, NVML_FI_DEV_C2C_LINK
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        subject = subject_of(gpu)
        if known(gpu.c2c_links) == 0:
            return
        errors = 0 if is_unknown(gpu.c2c_errors) else gpu.c2c_errors
        if known(gpu.c2c_status) != 1:
            yield fails("a C2C link is down", subject, evidence=seen("C2C status", gpu.c2c_status))
        elif errors:
            yield fails(f"{errors} C2C replays", subject, priority=P1, evidence=seen("C2C errors", errors))
        else:
            yield passes("all C2C links are up", subject)

    grace = [
        gpu for gpu in gpus(facts, "nvidia") if is_unknown(gpu.name) or re.search(r"\bG[HB]\d{3}", gpu.name)
    ]
    yield from each(grace, subject_of, judge)


@check("nvlink.xgmi-amd", P0, FIRMWARE, unless=no_amd)
def xgmi(facts: Facts) -> Iterator[Verdict]:
    """xGMI links of AMD GPUs report no error.

    Effect: RCCL takes a slower way
    Sure: medium
    Fix: none on the host
    Undo: nothing to undo
    Wrong when: GPUs without xGMI
    Source: Linux drivers/gpu/drm/amd/amdgpu/amdgpu_xgmi.c; AMD SMI
    """

    def judge(one: Xgmi) -> Iterator[Verdict]:
        ras = 0 if is_unknown(one.ras_errors) else one.ras_errors
        if known(one.error) or ras:
            yield fails(
                f"xGMI error {one.error}, {ras} uncorrected",
                one.bdf,
                evidence=seen("xgmi_error", one.error),
            )
        else:
            yield passes("no xGMI error", one.bdf)

    yield from each(facts.nvlink.xgmi, lambda one: one.bdf, judge)


@check("nvlink.nvswitch-errors", P0, NONE)
def switch_errors(facts: Facts) -> Iterator[Verdict]:
    """NVSwitches report no error.

    Effect: the fabric is at fault
    Sure: high
    Fix: what NVIDIA's list says of the SXid
    Undo: nothing to undo
    Wrong when: Blackwell, which tells it elsewhere (NVLSM)
    Source: NVIDIA Fabric Manager user guide, SXid errors
    """
    found = [] if is_unknown(facts.driver.xids) else [xid for xid in facts.driver.xids if xid.switch]
    told = facts.driver.fabric_manager_errors
    fatal = (
        []
        if is_unknown(told)
        else [line for line in told if re.search(r"NVSwitch (?:non-)?fatal error", line)]
    )
    if found or fatal:
        serious = [line for line in fatal if "non-fatal" not in line] or found
        words = f"SXid {found[0].number}" if found else cut(fatal[0], 80)
        yield fails(
            words,
            priority=P0 if serious else P1,
            evidence=lines("log", [*(xid.line for xid in found), *fatal]),
        )
    elif reason := no_nvidia(facts):
        yield not_applicable(reason)
    elif not is_unknown(facts.nvlink.switches) and facts.nvlink.switches == 0:
        yield not_applicable("no NVSwitch")
    elif named(facts) and all(expected_nvlinks(name) is None for name in named(facts)):
        yield not_applicable(f"{named(facts)[0]} is no NVSwitch part")
    elif is_unknown(facts.driver.xids):
        yield unknown(facts.driver.xids.reason)
    else:
        whole_log(facts)
        yield passes("no SXid in the kernel log")
