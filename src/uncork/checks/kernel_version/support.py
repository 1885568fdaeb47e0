"""Releases of kernels: support, what waits for a reboot, pairs known to be bad.

Tables carry the day they were compiled: a table cannot know what happened later.
"""

import re
from collections.abc import Callable, Iterator

import msgspec

from uncork.checks import NONE, P0, P1, P2, REBOOT, Verdict, check, fails, not_applicable, passes, unknown
from uncork.checks.hosts import known, one_node, seen
from uncork.model.facts import Facts
from uncork.model.findings import Priority
from uncork.model.unknown import is_unknown

# kernel.org "Longterm release kernels" as of 2025-12; end of projected support.
LONGTERM = {
    "4.19": "2024-12",
    "5.4": "2025-12",
    "5.10": "2026-12",
    "5.15": "2026-12",
    "6.1": "2027-12",
    "6.6": "2026-12",
    "6.12": "2026-12",
    "6.18": "2027-12",
}
# A distribution's mark in the release → its kernels and the end of standard support (vendor lifecycle pages,
# as of 2025-12). Distributions support kernels that kernel.org gave up.
DISTRIBUTIONS = (
    (r"\.el7", "Enterprise Linux 7", "2024-06"),
    (r"\.el8", "Enterprise Linux 8", "2029-05"),
    (r"\.el9", "Enterprise Linux 9", "2032-05"),
    (r"\.el10", "Enterprise Linux 10", "2035-05"),
    (r"^4\.15\.0-\d+-(generic|aws|azure|gcp|lowlatency)", "Ubuntu 18.04", "2023-05"),
    (r"^5\.4\.0-\d+-(generic|aws|azure|gcp|lowlatency)", "Ubuntu 20.04", "2025-05"),
    (r"^5\.15\.0-\d+-(generic|aws|azure|gcp|lowlatency|nvidia)", "Ubuntu 22.04", "2027-04"),
    (r"^6\.8\.0-\d+-(generic|aws|azure|gcp|lowlatency|nvidia)", "Ubuntu 24.04", "2029-04"),
    (
        r"^\d+\.\d+\.0-\d+-(generic|aws|azure|gcp|lowlatency|nvidia)",
        "Ubuntu (hardware enablement)",
        "2029-04",
    ),
    (r"-pve$", "Proxmox VE", "2028-08"),
    (r"\+?deb10|^4\.19\.0-\d+-(cloud-)?amd64", "Debian 10", "2024-06"),
    (r"\+?deb11|^5\.10\.0-\d+-(cloud-)?amd64", "Debian 11", "2026-08"),
    (r"\+?deb12|^6\.1\.0-\d+-(cloud-)?amd64", "Debian 12", "2028-06"),
    (r"\+deb13", "Debian 13", "2030-06"),
    (r"\.amzn2\b", "Amazon Linux 2", "2026-06"),
    (r"\.amzn2023", "Amazon Linux 2023", "2029-06"),
    (r"-default$", "SUSE", "2031-07"),
)


def series(release: str) -> tuple[int, int]:
    """The first two numbers of a release; (0, 0) where there are none."""
    match = re.match(r"(\d{1,3})\.(\d{1,4})", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


@check("kernel-version.release-support", P1, REBOOT)
def release_support(facts: Facts) -> Iterator[Verdict]:
    """The running kernel is still supported.

    Effect: it carries fixes of amd_pstate, PCI, EDAC and drivers; no promise of throughput
    Sure: medium
    Fix: a supported kernel, after kernel-version.next-boot-module passes and with a console at hand
    Undo: boot the former entry
    Wrong when: the distribution sells longer support (it is told by the release's name only, as of 2025-12)
    Folklore: partly: "newer is faster" needs a named reason
    Source: kernel.org, longterm release kernels; lifecycle pages of the distributions
    """
    release = known(facts.kernel_version.release)
    evidence = seen("uname -r", release)
    day = facts.firmware.today
    named = next(((name, end) for mark, name, end in DISTRIBUTIONS if re.search(mark, release)), None)
    major, minor = series(release)
    if named is None:
        end = LONGTERM.get(f"{major}.{minor}")
        named = (f"longterm {major}.{minor}", end) if end else None
    if named is None:
        oldest = min(map(series, LONGTERM))
        if (major, minor) < oldest:
            yield fails(f"kernel {release} is older than every supported series", evidence=evidence)
        else:
            yield unknown(f"no table here knows when support of {release} ends", evidence=evidence)
        return
    name, end = named
    if is_unknown(day):
        yield unknown(f"support of {name} ends {end}; the day of the reading is not known", evidence=evidence)
    elif day[:7] > end:
        old = (major, minor) < (5, 10)
        says = f"support of this kernel ({name}) ended {end}"
        yield fails(says, evidence=evidence, priority=P1 if old else P2)
    else:
        yield passes(f"a supported kernel ({release})", evidence=evidence)


@check("kernel-version.pending-reboot", P2, REBOOT)
def pending_reboot(facts: Facts) -> Iterator[Verdict]:
    """No newer kernel waits for a reboot.

    Effect: the machine changes under the benchmark at the next reboot
    Sure: high
    Fix: reboot before measuring, or not at all until after it
    Undo: nothing to undo
    Source: Debian and Ubuntu reboot-required; own reasoning
    """
    if facts.container.contained:
        yield unknown("the host's /lib/modules and /run are not visible from a container")
        return
    waiting = facts.kernel_version.reboot_required
    if facts.kernel_version.reboot_flag is True or (not is_unknown(waiting) and waiting):
        text = ", ".join(waiting) if not is_unknown(waiting) and waiting else "reboot-required"
        yield fails("an update waits for a reboot", evidence=seen("/run/reboot-required", text))
        return
    installed = facts.kernel_version.installed
    if is_unknown(installed) and installed.absent:
        yield not_applicable("no kernels are installed under /lib/modules")
        return
    release = known(facts.kernel_version.release)
    names = [kernel.release for kernel in known(installed)]
    evidence = seen("/lib/modules", ", ".join(names))
    if names and release in names and names[-1] != release:
        yield fails(f"kernel {names[-1]} is installed, {release} runs", evidence=evidence)
    else:
        yield passes("the newest installed kernel runs", evidence=evidence)


@check("kernel-version.next-boot-module", P0, NONE)
def next_boot_module(facts: Facts) -> Iterator[Verdict]:
    """The kernel that boots next has a module for the GPUs.

    Effect: a reboot brings up a host without GPUs
    Sure: high
    Fix: install that kernel's headers and let DKMS build, or its prebuilt module package
    Undo: nothing to undo
    Wrong when: the boot loader's default is not the newest kernel
    Source: DKMS documentation; own reasoning
    """
    driver = facts.kernel_version.gpu_driver
    if not known(driver):
        yield not_applicable("no GPU driver is loaded")
        return
    if facts.container.contained:
        yield unknown("the host's /lib/modules is not visible from a container")
        return
    installed = facts.kernel_version.installed
    if is_unknown(installed) and installed.absent:
        yield not_applicable("no kernels are installed under /lib/modules")
        return
    kernels = known(installed)
    if not kernels:
        yield unknown("/lib/modules lists no kernel")
        return
    release = known(facts.kernel_version.release)
    here = next((kernel for kernel in kernels if kernel.release == release), None)
    newest = kernels[-1]
    evidence = seen(
        "/lib/modules", "; ".join(f"{k.release}: {k.gpu_modules or 'no GPU module'}" for k in kernels[-4:])
    )
    if driver in known(newest.gpu_modules):
        yield passes(f"the next kernel has a {driver} module", evidence=evidence)
    elif here is not None and driver in known(here.gpu_modules):
        yield fails(f"kernel {newest.release} has no {driver} module, {release} has", evidence=evidence)
    else:
        yield unknown(
            f"where the {driver} module comes from is not known here: look before a reboot", evidence=evidence
        )


class Pair(msgspec.Struct, frozen=True):
    """A kernel, or a kernel with a driver or setting, that is known to hurt."""

    name: str
    matches: Callable[[tuple[int, int], str], bool]
    applies: Callable[[Facts], bool]
    says: str
    source: str
    day: str
    priority: Priority


def _nvidia(facts: Facts) -> bool:
    return known(facts.kernel_version.gpu_driver) == "nvidia"


def _balancing(facts: Facts) -> bool:
    value = facts.kernel.sysctls["kernel.numa_balancing"]
    return not one_node(facts) and known(value) != "0"


def _no_cuda_with_hmm(facts: Facts) -> bool:
    """CUDA fails under HMM on these kernels; where it works or HMM is off, there is nothing to say."""
    said = facts.engine.signs
    lines = " ".join(line for found in (() if is_unknown(said) else said.values()) for line in found)
    failing = re.search(r"CUDA_ERROR_NOT_INITIALIZED|initialization error|CUDA unknown error", lines)
    return bool(failing) and facts.driver.uvm_hmm_disabled is not True


def _offloads(facts: Facts) -> bool:
    flags = (
        "cpu-offload-gb",
        "kv-offloading-size",
        "enable-hierarchical-cache",
        "host-cache-size",
        "kv-transfer-config",
    )
    return _nvidia(facts) and any(flag in server.flags for server in facts.engine.servers for flag in flags)


KNOWN_BAD = (
    Pair(
        "pin-2gib",
        lambda number, release: (6, 11) <= number <= (6, 13),
        _offloads,
        "this kernel pins at most 2 GiB at a time: a large host cache must be registered in chunks",
        "https://github.com/NVIDIA/TensorRT-LLM/pull/10736",
        "2026-01",
        P2,
    ),
    Pair(
        "el9-hmm",
        lambda number, release: ".el9" in release or ".el10" in release,
        _no_cuda_with_hmm,
        "CUDA does not initialise with HMM on this kernel: nvidia_uvm uvm_disable_hmm=1",
        "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/901",
        "2025-07",
        P1,
    ),
    Pair(
        "515-numa-work",
        lambda number, release: number == (5, 15),
        _balancing,
        "task_numa_work of this kernel stalls schedulers for milliseconds: switch NUMA balancing off",
        "https://github.com/deepseek-ai/DeepEP/issues/624",
        "2026-05",
        P1,
    ),
)


@check("kernel-version.known-bad", P1, REBOOT)
def known_bad(facts: Facts) -> Iterator[Verdict]:
    """The kernel is not one of those known to hurt servers.

    Effect: the one of its entry
    Sure: medium
    Fix: the one of its entry; another kernel is the last resort
    Undo: boot the former entry
    Wrong when: the distribution has put the fix in without a new series
    Source: NVIDIA/TensorRT-LLM pull 10736 (beside its chunked registration);
        NVIDIA/open-gpu-kernel-modules issue 901; deepseek-ai/DeepEP issue 624
    """
    release = known(facts.kernel_version.release)
    found = False
    for pair in KNOWN_BAD:
        if pair.matches(series(release), release) and pair.applies(facts):
            found = True
            evidence = seen(pair.source, f"{release} (entry of {pair.day})")
            yield fails(pair.says, pair.name, evidence=evidence, priority=pair.priority)
    if not found:
        yield passes("no known fault of this kernel applies", evidence=seen("uname -r", release))
