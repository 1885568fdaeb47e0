"""Modes of GPUs and of their driver that somebody set, or left."""

import re
from collections.abc import Iterator

from uncork.checks import (
    P1,
    P2,
    REBOOT,
    RUNTIME,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    passes,
)
from uncork.checks.gpus import each, gpus, no_amd, no_nvidia, pci_gpus, subject_of
from uncork.checks.hosts import known, seen
from uncork.model.facts import Facts
from uncork.model.facts.driver import Gpu
from uncork.model.facts.pcie import PciDevice
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown


def nvml_target(gpu: Gpu, setting: str) -> str | None:
    """The address that the nvml knob knows: the bus address, which a snapshot keeps, else the UUID."""
    if not is_unknown(gpu.bdf):
        return f"{gpu.bdf}:{setting}"
    return None if is_unknown(gpu.uuid) else f"{gpu.uuid}:{setting}"


def nvml_change(gpu: Gpu, setting: str, want: str, before: str) -> Change | None:
    """The write of one NVML setting; None where the GPU cannot be named."""
    target = nvml_target(gpu, setting)
    return Change("nvml", target, want, before=before) if target else None


@check("driver.persistence", P2, RUNTIME, unless=no_nvidia)
def persistence(facts: Facts) -> Iterator[Verdict]:
    """The driver keeps its state while no program uses the GPU.

    Effect: seconds at each start, container hooks that time out on hosts of eight GPUs, and settings that are
        lost between runs; no steady throughput
    Sure: high
    Fix: start nvidia-persistenced, or nvidia-smi -pm 1
    Undo: nvidia-smi -pm 0
    Wrong when: a laptop that should sleep
    Folklore: partly: it makes nothing faster while a server holds the GPU
    Source: NVIDIA driver persistence guide; Azure health checks
    """
    if is_unknown(facts.driver.gpus) and "persistence" in facts.driver.stated:
        value, line = facts.driver.stated["persistence"]
        if value == "False":
            yield fails("persistence mode is off", evidence=seen("as reported", line))
        else:
            yield passes("persistence mode is on")
        return

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        if known(gpu.persistence):
            yield passes("persistence mode is on", subject_of(gpu))
        else:
            change = nvml_change(gpu, "persistence", "1", "0")
            yield fails(
                "persistence mode is off",
                subject_of(gpu),
                change=change,
                evidence=seen("persistence mode", "off"),
            )

    yield from each(gpus(facts, "nvidia"), subject_of, judge)


@check("driver.compute-mode", P1, RUNTIME)
def compute_mode(facts: Facts) -> Iterator[Verdict]:
    """Several processes may use a GPU.

    Effect: helpers of an engine end with 'all CUDA-capable devices are busy'
    Sure: high
    Fix: nvidia-smi -c 0
    Undo: nvidia-smi -c with the former mode
    Wrong when: MPS, which wants EXCLUSIVE_PROCESS, or a batch system that sets it
    Source: NVML API reference, compute mode
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        mode, subject = known(gpu.compute_mode), subject_of(gpu)
        mps = any(
            other.kind == "mps" for other in ([] if is_unknown(facts.engine.others) else facts.engine.others)
        )
        if mode == "default":
            yield passes("compute mode is default", subject)
        elif mode == "exclusive-process" and mps:
            yield passes("exclusive process, as MPS wants it", subject)
        else:
            number = {"exclusive-thread": "1", "prohibited": "2", "exclusive-process": "3"}.get(mode)
            change = nvml_change(gpu, "compute_mode", "0", number) if number else None
            yield fails(
                f"compute mode is {mode}", subject, change=change, evidence=seen("compute mode", mode)
            )

    yield from each(gpus(facts, "nvidia"), subject_of, judge)


@check("driver.display-attached", P2, SERVICE_RESTART)
def display(facts: Facts) -> Iterator[Verdict]:
    """No desktop lives on a serving GPU.

    Effect: memory and time slices
    Sure: high
    Fix: stop the display manager, or put the display on another card
    Undo: start it again
    Wrong when: it is somebody's workstation
    Source: NVML API reference, display active
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        drawn = [] if is_unknown(gpu.processes) else [p for p in gpu.processes if p.kind == "graphics"]
        if known(gpu.display_active):
            yield fails("a display is active", subject_of(gpu), evidence=seen("display active", "yes"))
        elif drawn:
            yield fails(
                f"{len(drawn)} programs draw on it",
                subject_of(gpu),
                evidence=seen("graphics", drawn[0].pid),
            )
        else:
            yield passes("no display", subject_of(gpu))

    yield from each(gpus(facts, "nvidia"), subject_of, judge)


@check("driver.dcgm-profiling-load", P2, SERVICE_RESTART)
def monitors(facts: Facts) -> Iterator[Verdict]:
    """Nobody asks the GPUs more than once a second.

    Effect: each question takes the driver's locks on every GPU
    Sure: low
    Fix: a longer interval
    Undo: the former interval
    Wrong when: a measurement of minutes that needs the resolution
    Folklore: partly: the effect is usually small
    Source: own reasoning; no measurement found
    """
    watching = [other for other in known(facts.engine.others) if other.kind == "monitor"]
    for other in watching:
        command, subject = " ".join(other.command), f"{other.command[0].rpartition('/')[2]} ({other.pid})"
        match = re.search(r"(?:-lms|--loop-ms)[= ]?(\d+)", command)
        if match and int(match[1]) < 1000:
            yield fails(f"asks every {match[1]} ms", subject, evidence=seen("command line", command))
        else:
            yield passes("asks once a second or less", subject)


@check("driver.dynamic-power-mgmt", P2, RUNTIME)
def runtime_d3(facts: Facts) -> Iterator[Verdict]:
    """GPUs do not power down between requests.

    Effect: a wake-up at the next request, and on some boards reports of a link that went down
    Sure: medium
    Fix: echo on > /sys/bus/pci/devices/ADDRESS/power/control
    Undo: echo auto to the same file
    Wrong when: a laptop
    Source: NVIDIA driver README, dynamic power management; Linux Documentation/ABI/testing/sysfs-devices-power
    """

    def judge(device: PciDevice) -> Iterator[Verdict]:
        control, status = known(device.power_control), known(device.runtime_status)
        states = dict(facts.driver.runtime_d3)
        enabled = states.get(device.bdf, "").lower().startswith("enabled")
        if control == "auto" and (status == "suspended" or enabled):
            change = Change("sysfs", f"/sys/bus/pci/devices/{device.bdf}/power/control", "on", before="auto")
            yield fails(
                f"may power down (now {status})",
                device.bdf,
                change=change,
                evidence=seen("power/control", control),
            )
        else:
            yield passes(f"stays {status}", device.bdf)

    yield from each(pci_gpus(facts), lambda device: device.bdf, judge)


@check("driver.amd-module-params", P1, REBOOT, unless=no_amd)
def amd_params(facts: Facts) -> Iterator[Verdict]:
    """amdgpu allows PCIe peer access and keeps GPUs awake.

    Effect: without pcie_p2p and CONFIG_HSA_AMD_P2P there is no peer access over PCIe
    Sure: medium
    Fix: amdgpu.pcie_p2p=1 on the kernel command line; a kernel with CONFIG_HSA_AMD_P2P
    Undo: the former command line
    Wrong when: all GPUs are joined by xGMI
    Source: Linux Documentation/gpu/amdgpu/module-parameters.rst; AMD Instinct MI300X system optimization
    """
    params = known(facts.driver.amd_params)
    if params.get("pcie_p2p", "Y") == "N":
        yield fails("amdgpu.pcie_p2p is off", evidence=seen("parameters/pcie_p2p", "N"))
    elif (
        not is_unknown(facts.kernel_version.config)
        and facts.kernel_version.config.get("CONFIG_HSA_AMD_P2P") != "y"
    ):
        yield fails(
            "the kernel is built without CONFIG_HSA_AMD_P2P",
            evidence=seen("kernel config", "HSA_AMD_P2P"),
        )
    elif params.get("runpm") in ("1", "2"):
        yield fails(
            "amdgpu.runpm lets GPUs power down",
            priority=P2,
            evidence=seen("parameters/runpm", params["runpm"]),
        )
    else:
        yield passes("amdgpu's parameters allow peer access")


@check("driver.amd-perf-level", P2, RUNTIME)
def amd_level(facts: Facts) -> Iterator[Verdict]:
    """amdgpu chooses clocks by load.

    Effect: a low or manual level left behind keeps clocks down
    Sure: low
    Fix: echo auto > power_dpm_force_performance_level
    Undo: the former level
    Wrong when: a measurement fixed it on purpose
    Folklore: partly: high shortens the first token after a pause and costs idle power; auto is the default
    Source: Linux Documentation/gpu/amdgpu/thermal.rst
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        level = known(gpu.perf_level)
        if level in ("auto", "high"):
            yield passes(f"performance level is {level}", subject_of(gpu))
        else:
            change = Change("amd_perf_level", known(gpu.bdf), "auto", before=level)
            yield fails(
                f"performance level is {level}",
                subject_of(gpu),
                change=change,
                evidence=seen("performance level", level),
            )

    yield from each(gpus(facts, "amd"), subject_of, judge)
