"""How the kernel was built, and whether it has been hurt."""

from collections.abc import Iterator

from uncork.checks import P1, P2, REBOOT, RUNTIME, Verdict, check, fails, not_applicable, passes, unknown
from uncork.checks.hosts import known, seen
from uncork.model.facts import Facts
from uncork.model.unknown import is_unknown

P2P_OPTIONS = {
    "PCI_P2PDMA": "peer-to-peer DMA",
    "DMABUF_MOVE_NOTIFY": "dma-buf that moves",
    "HSA_AMD_P2P": "AMD peer access over PCIe",
    "ZONE_DEVICE": "device memory",
    "DEVICE_PRIVATE": "private device memory",
}
DEBUG_OPTIONS = ("KASAN", "PROVE_LOCKING", "DEBUG_PAGEALLOC_ENABLE_DEFAULT", "KCSAN", "SLUB_DEBUG_ON")
# Bits of kernel.tainted that say trouble (Linux admin-guide/tainted-kernels.rst).
TROUBLE = {4: "machine check", 5: "bad page", 7: "oops", 14: "soft lockup"}


def _gpu_vendors(facts: Facts) -> set[str]:
    driver = facts.kernel_version.gpu_driver
    found = {"amd"} if not is_unknown(driver) and driver == "amdgpu" else set()
    gpus = facts.driver.gpus
    return found | ({gpu.vendor for gpu in gpus} if not is_unknown(gpus) else set())


@check("kernel-version.config-p2p", P1, REBOOT)
def config_p2p(facts: Facts) -> Iterator[Verdict]:
    """The kernel was built with what peer access needs.

    Effect: the path is missing: copies go through host memory
    Sure: high
    Fix: a kernel of a distribution that sets these options
    Undo: boot the former entry
    Wrong when: NVIDIA's own peer access is used, which needs none of them
    Source: AMD Instinct MI300X system optimization; CUDA GPUDirect RDMA guide (dma-buf)
    """
    amd = "amd" in _gpu_vendors(facts)
    ports = facts.network.ports
    rdma = not is_unknown(ports) and bool(ports)
    if not amd and not rdma:
        if is_unknown(facts.driver.gpus) and is_unknown(facts.kernel_version.gpu_driver):
            yield unknown("whether AMD GPUs or RDMA are in use cannot be told")
        else:
            yield not_applicable(
                "neither AMD GPUs nor RDMA: NVIDIA's peer access needs none of these options"
            )
        return
    config = known(facts.kernel_version.config)
    wanted = ["PCI_P2PDMA", "DMABUF_MOVE_NOTIFY", *(["HSA_AMD_P2P", "ZONE_DEVICE"] if amd else [])]
    missing = [name for name in wanted if config.get(name) != "y"]
    evidence = seen("kernel configuration", ", ".join(f"{name}={config.get(name, 'n')}" for name in wanted))
    if missing:
        yield fails(f"the kernel lacks {', '.join(P2P_OPTIONS[name] for name in missing)}", evidence=evidence)
    else:
        yield passes("the kernel has what peer access needs", evidence=evidence)


@check("kernel-version.config-debug", P1, REBOOT)
def config_debug(facts: Facts) -> Iterator[Verdict]:
    """The kernel is not a debug build.

    Effect: every path through the kernel is much slower
    Sure: high
    Fix: boot the normal kernel of the distribution
    Undo: boot the former entry
    Source: Linux dev-tools/kasan.rst; Linux locking/lockdep-design.rst; own reasoning
    """
    release, version = facts.kernel_version.release, facts.kernel_version.version
    named = [
        text for text in (release, version) if not is_unknown(text) and ("+debug" in text or "-debug" in text)
    ]
    if named:
        yield fails("a debug kernel runs", evidence=seen("uname -a", named[0]))
        return
    config = known(facts.kernel_version.config)
    on = [name for name in DEBUG_OPTIONS if config.get(name) == "y"]
    if on:
        yield fails(
            f"the kernel was built with {', '.join(on)}", evidence=seen("kernel configuration", ", ".join(on))
        )
    else:
        yield passes("no debug kernel", evidence=seen("kernel configuration", "none of the debug options"))


@check("kernel-version.preempt-model", P2, RUNTIME)
def preempt_model(facts: Facts) -> Iterator[Verdict]:
    """The kernel is not a real-time one.

    Effect: NVIDIA's driver does not build for it without an override; other models differ by nothing proven
    Sure: low
    Fix: boot the normal kernel; the model of a dynamic one can be chosen in debugfs sched/preempt
    Undo: write the former word back
    Folklore: partly: none, voluntary or full makes no proven difference
    Source: Linux admin-guide/kernel-parameters.txt, preempt=
    """
    version = known(facts.kernel_version.version)
    evidence = seen("uname -v", version)
    if "PREEMPT_RT" in version or "PREEMPT RT" in version:
        yield fails("a real-time kernel runs", evidence=evidence, change_class=REBOOT)
    else:
        model = next((word for word in version.split() if word.startswith("PREEMPT")), "no preemption word")
        yield passes(f"preemption: {model}", evidence=evidence)


@check("kernel-version.taint", P1, REBOOT)
def taint(facts: Facts) -> Iterator[Verdict]:
    """The kernel has not been hurt since boot.

    Effect: an unstable host: what is measured on it is not worth much
    Sure: high
    Fix: reboot before measuring, and look for the cause
    Undo: nothing to undo
    Wrong when: bits 0, 12 and 13 (proprietary, out of tree, unsigned) are normal with NVIDIA; bit 6 is set by
        writes to PCI configuration
    Source: Linux admin-guide/tainted-kernels.rst
    """
    mask = known(facts.kernel_version.tainted)
    found = [words for bit, words in TROUBLE.items() if mask >> bit & 1]
    evidence = seen("/proc/sys/kernel/tainted", mask)
    if found:
        yield fails(f"the kernel is tainted by: {', '.join(found)}", evidence=evidence)
    else:
        yield passes("no sign of damage in the kernel", evidence=evidence)


@check("kernel-version.page-size", P1, REBOOT)
def page_size(facts: Facts) -> Iterator[Verdict]:
    """Grace runs a kernel with 64 KiB pages.

    Effect: better TLB and ATS behaviour (NVIDIA's guide; no figure given)
    Sure: medium
    Fix: boot the -64k flavour of the kernel
    Undo: boot the 4k flavour
    Wrong when: programs built for 4 KiB pages (jemalloc) run on the host
    Source: NVIDIA Grace performance tuning guide
    """
    if known(facts.kernel.architecture) != "aarch64":
        yield not_applicable("not an arm64 processor")
        return
    size = known(facts.kernel_version.page_bytes)
    evidence = seen("/proc/self/auxv", f"{size} bytes")
    if size == 65536:
        yield passes("64 KiB pages", evidence=evidence)
    else:
        yield fails(f"{size // 1024} KiB pages", evidence=evidence)
