"""Driver versions."""

import re
from collections.abc import Iterator

from uncork.checks import (
    P0,
    P1,
    REBOOT,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    passes,
    unknown,
)
from uncork.checks.gpus import (
    generation,
    is_data_centre,
    lines,
    named,
    no_nvidia,
    subject_of,
    version,
    whole_log,
)
from uncork.checks.hosts import known, seen
from uncork.model.facts import Facts
from uncork.model.unknown import is_unknown

# Lowest driver branch that knows a generation. Source: NVIDIA data centre driver release notes.
_LOWEST_BRANCH = {"blackwell": 570, "hopper": 520, "ada": 520, "ampere": 450, "turing": 410, "volta": 384}


# The last branch that knows a generation. Source: NVIDIA, supported products of the 470 and 580 branches.
_LAST_BRANCH = {"kepler": 470, "pascal": 580, "volta": 580}


# Before this, 525 drivers lose contact with the GSP under load (Xid 119). Source: release notes of 525.105.17.
_GSP_FIXED = (525, 105, 17)


@check("driver.library-mismatch", P0, SERVICE_RESTART, unless=no_nvidia)
def library_mismatch(facts: Facts) -> Iterator[Verdict]:
    """The driver's user-space libraries have the version of the loaded kernel module.

    Effect: NVML and CUDA do not start (NVML error 18)
    Sure: high
    Fix: install the same version of both; on a host unload and load the module or reboot, in a container
        install the host's version without its kernel module
    Undo: install the former package again
    Wrong when: a second version lies unused beside the one in use
    Source: NVML API reference, NVML_ERROR_LIB_RM_VERSION_MISMATCH; open-gpu-kernel-modules, API mismatch message
    """
    driver = facts.driver
    if "version mismatch" in driver.nvml_error.lower():
        yield fails(f"NVML refuses: {driver.nvml_error}", evidence=seen("NVML", driver.nvml_error))
        return
    log = {} if is_unknown(driver.log) else driver.log
    if log.get("api-mismatch") and not _older_boot(facts):
        yield fails(
            "the kernel module refused a client of another version",
            evidence=lines("dmesg", log["api-mismatch"]),
        )
        return
    module = known(driver.module_version)
    if not driver.library_versions:
        yield unknown("no version of libcuda or libnvidia-ml was found beside the module's")
        return
    shown = ", ".join(f"{where} {found}" for where, found in driver.library_versions)
    if any(same_version(found, module) for _, found in driver.library_versions):
        yield passes(f"driver {module} in the kernel and in user space", evidence=seen("libraries", shown))
    else:
        yield fails(
            f"the kernel runs {module}, user space has {driver.library_versions[0][1]}",
            evidence=(*seen("/proc/driver/nvidia/version", module), *seen("libraries", shown)),
        )


def _older_boot(facts: Facts) -> bool:
    """Whether the refusals in the log come from a module that is not the loaded one any more."""
    module, log = facts.driver.module_version, known(facts.driver.log)
    refused = [
        match[1]
        for line in log["api-mismatch"]
        if (match := re.search(r"kernel module has the version ([\d.]+\d)", line))
    ]
    return (
        not is_unknown(module) and bool(refused) and not any(same_version(found, module) for found in refused)
    )


def same_version(one: str, other: str) -> bool:
    return version(one) == version(other)


@check("driver.version-branch", P1, SERVICE_RESTART, unless=no_nvidia)
def version_branch(facts: Facts) -> Iterator[Verdict]:
    """The driver knows this GPU and the engine's CUDA, and is not one with a fault that shows here.

    Effect: a GPU that is not initialised, CUDA that does not start, or a known fault; rarely throughput
    Sure: medium
    Fix: install a supported branch; every GPU client must stop
    Undo: install the former package again
    Wrong when: a vendor has taken the fix into an older branch
    Folklore: partly: that the newest driver is faster is not shown, and branches bring regressions of their own
    Source: NVIDIA data centre driver release notes; release notes of 525.105.17
    """
    if silent := _gsp_timeout(facts):
        yield silent
        return
    module = known(facts.driver.module_version)
    branch, evidence = version(module)[0], seen("driver", module)
    for name in named(facts):
        kind = generation(name)
        if branch < _LOWEST_BRANCH.get(kind, 0):
            says = f"branch {branch} does not know {name}: at least {_LOWEST_BRANCH[kind]}"
            yield fails(says, evidence=evidence)
            return
        if branch > _LAST_BRANCH.get(kind, 9999):
            says = f"branch {branch} has dropped {name}: at most {_LAST_BRANCH[kind]}"
            yield fails(says, evidence=evidence)
            return
    yield from _cuda_of_servers(facts, module)


def _gsp_timeout(facts: Facts) -> Verdict | None:
    """The verdict where the kernel log shows that the GSP did not answer, and the driver may be why."""
    xids = () if is_unknown(facts.driver.xids) else facts.driver.xids
    evidence = lines("dmesg", (xid.line for xid in xids if xid.number in (119, 120)))
    module = facts.driver.module_version
    if not evidence:
        return None
    if is_unknown(module):
        says = (
            "the GSP timed out (Xid 119), and no text names the driver's version: 525 drivers before 525.105.17 "
            "do that; attach /proc/driver/nvidia/version"
        )
        return unknown(says, evidence=evidence)
    if (525,) <= version(module) < _GSP_FIXED:
        return fails(f"driver {module} loses contact with the GSP; 525.105.17 mends that", evidence=evidence)
    return None


def _cuda_of_servers(facts: Facts, module: str) -> Iterator[Verdict]:
    """Whether the driver serves the CUDA that each server's torch was built for."""
    served = facts.driver.cuda_version
    if not is_unknown(served) and not is_unknown(facts.engine.servers):
        for server in facts.engine.servers:
            torch = "" if is_unknown(server.packages) else server.packages.get("torch", "")
            _, plus, built = torch.partition("+cu")
            if plus and built[:-1].isdigit() and int(built[:-1]) > version(served)[0]:
                yield fails(
                    f"{server.kind} brings CUDA {built[:-1]}, driver {module} serves CUDA {served}",
                    evidence=seen("torch", torch),
                )
                return
    yield passes(f"driver {module}", evidence=seen("driver", module))


@check("driver.kernel-module-flavour", P1, REBOOT, unless=no_nvidia)
def flavour(facts: Facts) -> Iterator[Verdict]:
    """The open kernel module where the GPU needs it, the proprietary one where only that knows the GPU.

    Effect: Blackwell GPUs are not initialised without the open module; DMA-BUF for RDMA needs it too
    Sure: high
    Fix: install the other flavour of the same version and reboot
    Undo: install the former package again
    Wrong when: a vGPU guest driver, which has rules of its own
    Source: NVIDIA open-gpu-kernel-modules README; CUDA GPUDirect RDMA guide
    """
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    if log.get("needs-open"):
        yield fails(
            "the driver says that this GPU needs the open kernel module",
            priority=P0,
            evidence=lines("dmesg", log["needs-open"]),
        )
        return
    is_open = facts.driver.module_open
    kinds = {generation(name) for name in named(facts)} - {""}
    flavour = "open" if is_open else "proprietary"
    if not is_open and "blackwell" in kinds:
        yield fails("Blackwell needs the open kernel module", priority=P0)
    elif is_open and kinds & {"volta", "pascal", "kepler"}:
        yield fails("the open kernel module does not know GPUs before Turing", priority=P0)
    else:
        yield passes(f"{flavour} kernel module")


@check("driver.version-uniform", P0, SERVICE_RESTART, unless=no_nvidia)
def uniform(facts: Facts) -> Iterator[Verdict]:
    """Module, fabric manager and GSP firmware have one version.

    Effect: CUDA error 802 on NVSwitch hosts whose fabric manager is of another version
    Sure: high
    Fix: install the matching package and start its service again
    Undo: install the former package again
    Wrong when: an installed but unused fabric manager on a host without NVSwitch
    Source: NVIDIA Fabric Manager user guide, version compatibility
    """
    driver = facts.driver
    if driver.fabric_manager_mismatch:
        yield fails(
            "the fabric manager refuses this driver's version",
            evidence=seen("fabric manager", driver.fabric_manager_mismatch),
        )
        return
    module = known(driver.module_version)
    others = {}
    no_switch = not is_unknown(facts.nvlink.switches) and facts.nvlink.switches == 0
    if not is_unknown(driver.fabric_manager_version) and not no_switch:
        others["fabric manager"] = driver.fabric_manager_version
    if not is_unknown(driver.gpus):
        others |= {
            f"GSP firmware of {subject_of(gpu)}": gpu.gsp_version
            for gpu in driver.gpus
            if not is_unknown(gpu.gsp_version)
        }
    wrong = {name: found for name, found in others.items() if not same_version(found, module)}
    if wrong:
        name, found = next(iter(wrong.items()))
        yield fails(f"module {module}, {name} {found}", evidence=seen(name, found))
    else:
        yield passes(f"{module} throughout" if others else f"module {module}")


@check("driver.cuda-compat-libs", P0, SERVICE_RESTART)
def compat(facts: Facts) -> Iterator[Verdict]:
    """No forward-compatibility libcuda stands before the driver's own where it may not.

    Effect: cuInit fails with 803 or 804 on cards that have no forward compatibility
    Sure: high
    Fix: take /usr/local/cuda/compat out of LD_LIBRARY_PATH and the ld cache, start the server again
    Undo: put the path back
    Wrong when: a data-centre GPU under an older module, which is what these libraries are for
    Source: NVIDIA CUDA compatibility guide, forward compatibility
    """
    told = [line for line in facts.driver.cuda_errors if not re.search(r"802|not yet initialized", line)]
    if told:
        yield fails("CUDA refuses the pair of library and driver (803, 804)", evidence=lines("CUDA", told))
        return
    for server in facts.engine.servers:
        mapped = () if is_unknown(server.libraries) else server.libraries
        paths = [path for path in mapped if "/compat" in path and "libcuda.so" in path]
        searched = "" if is_unknown(server.environ) else server.environ.get("LD_LIBRARY_PATH", "")
        subject = f"{server.kind} ({server.pid})"
        cards = named(facts)
        if (paths or "cuda/compat" in searched) and cards and not any(is_data_centre(name) for name in cards):
            yield fails(
                f"forward-compatibility libcuda on {cards[0]}",
                subject,
                evidence=seen("maps", paths or searched),
            )
        elif is_unknown(server.libraries) and is_unknown(server.environ):
            yield unknown(server.libraries.reason, subject)
        else:
            yield passes("the driver's own libcuda", subject)


@check("driver.gsp-mode", P1, REBOOT, unless=no_nvidia)
def gsp(facts: Facts) -> Iterator[Verdict]:
    """The GPU system processor answers.

    Effect: each timeout hangs calls for minutes and ends in a GPU that must be reset
    Sure: medium
    Fix: a newer driver; on Turing and Ampere with the proprietary module NVreg_EnableGpuFirmware=0
    Undo: take the option out
    Wrong when: the timeouts follow another Xid, which then is the cause
    Folklore: partly: switching the GSP off for speed is folklore, and the open module cannot run without it
    Source: NVIDIA Xid errors, 119 and 120; open-gpu-kernel-modules README
    """
    timeouts = [xid for xid in facts.driver.xids if xid.number in (119, 120)]
    params = {} if is_unknown(facts.driver.params) else facts.driver.params
    off = params.get("EnableGpuFirmware") == "0"
    if timeouts:
        yield fails(
            f"{len(timeouts)} GSP timeouts (Xid 119/120)",
            evidence=lines("dmesg", (xid.line for xid in timeouts)),
        )
    else:
        whole_log(facts)
        yield passes("no GSP timeout" + ("; GSP firmware is switched off" if off else ""))
