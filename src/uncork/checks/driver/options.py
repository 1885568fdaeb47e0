"""Options of NVIDIA's modules, RDMA modules beside them, and patched drivers."""

import re
from collections.abc import Iterator

from uncork.checks import (
    P0,
    P1,
    P2,
    REBOOT,
    RUNTIME,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.gpus import (
    closed_to_peers,
    generation,
    is_geforce,
    lines,
    named,
    no_nvidia,
    version,
    wrong_data,
)
from uncork.checks.hosts import known, no_rdma, seen, spread
from uncork.host.redact import cut
from uncork.model.facts import Facts
from uncork.model.findings import Change
from uncork.model.unknown import UnknownValue, is_unknown

# Registry keys that change who may talk to whom. They are not documented. Source: open-gpu-kernel-modules,
# nvrm_registry.h, and the reports named in docs/checks-left-out-gpu.md.
_PEER_KEYS = (
    "ForceP2P",
    "RMForceP2PType",
    "RMPcieP2PType",
    "PeerMappingOverride",
    "RMForceStaticBar1",
    "RmForceStaticBar1",
    "GrdmaPciTopoCheckOverride",
    "RmNvlinkBandwidth",
    "NvLinkDisable",
)


def registry(facts: Facts) -> tuple[str, str]:
    """Registry keys in force or configured, and where they stand; empty where none are."""
    params = {} if is_unknown(facts.driver.params) else facts.driver.params
    for name in ("RegistryDwords", "RegistryDwordsPerDevice"):
        if params.get(name, "").strip('" '):
            return params[name], f"/proc/driver/nvidia/params {name}"
    for name in ("NVreg_RegistryDwords", "NVreg_RegistryDwordsPerDevice"):
        if facts.driver.modprobe.get(name, "").strip():
            return facts.driver.modprobe[name], f"modprobe.d {name}"
    return "", ""


def peers_matter(facts: Facts) -> bool:
    """Whether two of the GPUs could reach each other over PCIe: not with GeForce cards under the stock driver."""
    read = () if is_unknown(facts.driver.gpus) else facts.driver.gpus
    counted = [gpu.name for gpu in read if not is_unknown(gpu.name)]
    cards = counted or list(named(facts))
    able = [
        name for name in cards if not (is_geforce(name) and generation(name) not in ("", "pascal", "kepler"))
    ]
    # A name in words stands for any number of cards.
    few = bool(cards) and len(able) < (2 if counted else 1)
    return not few or bool(facts.driver.patched) or bool(registry(facts)[0])


@check("driver.registry-dwords", P1, SERVICE_RESTART, unless=no_nvidia)
def registry_keys(facts: Facts) -> Iterator[Verdict]:
    """No undocumented registry keys of the driver are set.

    Effect: ForceP2P=0x11 also switches peer atomics off, and false peer grants deliver wrong data
    Sure: medium
    Fix: take NVreg_RegistryDwords out of modprobe.d and load the module again, one key at a time
    Undo: put the line back
    Wrong when: the owner wrote down why, and a data check passed
    Folklore: yes: forum recipes for peer access
    Source: NVIDIA open-gpu-kernel-modules, nvrm_registry.h; rtx6kpro measurements
    """
    keys, where = registry(facts)
    if keys:
        peer = [name for name in _PEER_KEYS if re.search(rf"\b{name}\b", keys, re.IGNORECASE)]
        words = (
            f"registry keys decide about peer access: {', '.join(peer)}"
            if peer
            else f"registry keys are set: {cut(keys, 80)}"
        )
        yield fails(words, priority=P1 if peer else P2, evidence=seen(where, keys))
    elif is_unknown(facts.driver.params):
        yield unknown(facts.driver.params.reason)
    else:
        yield passes("no registry keys")


@check("driver.uvm-hmm", P2, SERVICE_RESTART)
def uvm_hmm(facts: Facts) -> Iterator[Verdict]:
    """Heterogeneous memory management is as the driver ships it.

    Effect: stability only: CUDA that does not start on some EL9 kernels, a deadlock when memory is oversubscribed
    Sure: medium
    Fix: leave the default; options nvidia_uvm uvm_disable_hmm=1 only with that symptom
    Undo: take the option out
    Wrong when: the symptom is there
    Folklore: partly: it is passed on as a cure for peer access, with weak evidence
    Source: open-gpu-kernel-modules issues 901 and 1223
    """
    if reason := no_nvidia(facts):
        yield not_applicable(reason)
    elif known(facts.driver.uvm_hmm_disabled):
        yield passes("HMM is switched off by an option: right only with its symptom")
    else:
        yield passes("HMM is as shipped")


@check("driver.peermem", P1, RUNTIME)
def peermem(facts: Facts) -> Iterator[Verdict]:
    """RDMA reaches GPU memory, by nvidia-peermem or DMA-BUF.

    Effect: GPU traffic of the NIC is staged through host memory: 33 instead of 93 GB/s in nccl issue 1412
    Sure: high
    Fix: modprobe nvidia-peermem (needs peer memory support in ib_core); nothing to do where DMA-BUF is used
    Undo: modprobe -r nvidia-peermem when nothing uses it
    Wrong when: one machine alone, or a NIC that carries no GPU traffic
    Folklore: partly: it is put on every list, and is pointless without RDMA
    Source: NVIDIA CUDA GPUDirect RDMA guide; NCCL issues 1412 and 1676
    """
    log = facts.p2p.log
    if not is_unknown(log) and log.gdr:
        yield passes("NCCL says that GPUDirect RDMA is used")
        return
    modules = facts.driver.modules
    loaded = (
        ""
        if is_unknown(modules)
        else next((n for n in ("nvidia_peermem", "nv_peer_mem") if n in modules), "")
    )
    if is_unknown(facts.network) or is_unknown(facts.network.ports):
        yield _by_text(facts, loaded)
        return
    if reason := no_rdma(facts) or no_nvidia(facts):
        yield not_applicable(reason)
    elif loaded:
        yield passes(f"{loaded} is loaded")
    elif dma_buf(facts):
        yield not_applicable("DMA-BUF does the same without it")
    elif not spread(facts):
        yield not_applicable("no server here spans machines")
    else:
        change = Change("module", "nvidia_peermem", "loaded", before="absent")
        yield fails(
            "neither nvidia-peermem nor DMA-BUF",
            change=change,
            evidence=seen("/proc/modules", "no nvidia_peermem"),
        )


def _by_text(facts: Facts, loaded: str) -> Verdict:
    """The verdict where nothing shows the NICs."""
    log, modules = facts.p2p.log, facts.driver.modules
    if loaded:
        return passes(f"{loaded} is loaded")
    if not is_unknown(log) and log.gdr is False and log.network == "IB":
        shown = seen("NCCL log", "GPU Direct RDMA Disabled")
        return fails("NCCL goes over InfiniBand without GPUDirect RDMA", evidence=shown)
    if is_unknown(modules):
        return unknown("neither lsmod nor an RDMA NIC is in sight")
    missing = "no peer memory module is loaded, and no text tells whether"
    several = not is_unknown(log) and (log.several_hosts or (log.ranks or 0) > 8 or bool(log.network))
    return unknown(
        f"{missing} "
        + ("the NICs do RDMA or DMA-BUF is used" if several else "an RDMA NIC carries GPU traffic")
    )


def dma_buf(facts: Facts) -> bool:
    """Whether RDMA can use DMA-BUF of GPU memory: kernel 5.12, the open module, CUDA 11.7."""
    kernel = known(facts.kernel_version.release)
    cuda = known(facts.driver.cuda_version)
    return bool(
        version(kernel)[:2] >= (5, 12) and known(facts.driver.module_open) and version(cuda)[:2] >= (11, 7)
    )


@check("driver.dma-buf-rdma", P1, REBOOT, unless=(no_rdma, no_nvidia))
def dma_buf_rdma(facts: Facts) -> Iterator[Verdict]:
    """RDMA can use GPU memory through DMA-BUF.

    Effect: replaces nvidia-peermem, which NVIDIA gives up in its favour
    Sure: medium
    Fix: the open kernel module, kernel 5.12 or later with DMABUF_MOVE_NOTIFY, CUDA 11.7 or later
    Undo: nothing to undo
    Wrong when: nvidia-peermem does the work
    Source: NVIDIA CUDA GPUDirect RDMA guide; NCCL sources, ncclGdrSupport
    """
    modules = {} if is_unknown(facts.driver.modules) else facts.driver.modules
    if dma_buf(facts):
        config = facts.kernel_version.config
        if not is_unknown(config) and config.get("CONFIG_DMABUF_MOVE_NOTIFY", "y") != "y":
            yield fails(
                "the kernel lacks CONFIG_DMABUF_MOVE_NOTIFY",
                evidence=seen("kernel config", "DMABUF_MOVE_NOTIFY"),
            )
        else:
            yield passes("kernel, module and CUDA can do DMA-BUF")
    elif "nvidia_peermem" in modules:
        yield passes("nvidia-peermem does the work instead")
    else:
        yield fails(
            "kernel, module flavour or CUDA are too old for DMA-BUF", priority=P1 if spread(facts) else P2
        )


@check("driver.gdrdrv", P2, RUNTIME)
def gdrdrv(facts: Facts) -> Iterator[Verdict]:
    """gdrcopy's module is there for programs that use it.

    Effect: latency of small messages
    Sure: medium
    Fix: modprobe gdrdrv, and pass /dev/gdrdrv into the container
    Undo: modprobe -r gdrdrv
    Wrong when: neither UCX, NVSHMEM nor DeepEP is used
    Source: NVIDIA gdrcopy README
    """
    servers = known(facts.engine.servers)
    users = [
        s for s in servers if not is_unknown(s.packages) and ("deep-ep" in s.packages or "nixl" in s.packages)
    ]
    if not users or not spread(facts):
        yield not_applicable("no server here moves data with UCX, NVSHMEM or DeepEP between machines")
    elif "gdrdrv" in known(facts.driver.modules):
        yield passes("gdrdrv is loaded")
    else:
        yield fails("gdrdrv is not loaded", change=Change("module", "gdrdrv", "loaded", before="absent"))


@check("driver.nvreg-relaxed-ordering", P2, SERVICE_RESTART, unless=no_nvidia)
def relaxed_ordering(facts: Facts) -> Iterator[Verdict]:
    """The driver's relaxed ordering mode is as it ships.

    Effect: DGX OS sets it for its own platforms; elsewhere no gain is shown
    Sure: low
    Fix: NVreg_EnablePCIERelaxedOrderingMode=1 only with a measured gain and a data check
    Undo: take the option out
    Wrong when: a DGX, where its package belongs
    Folklore: partly
    Source: DGX OS 6 user guide, configuration packages; open-gpu-kernel-modules, nv-reg.h
    """
    value = known(facts.driver.params).get("EnablePCIERelaxedOrderingMode", "0")
    yield passes(
        "relaxed ordering mode is " + ("as shipped" if value == "0" else f"{value}, set by an option")
    )


@check("driver.patched-p2p", P0, SERVICE_RESTART, unless=no_nvidia)
def patched(facts: Facts) -> Iterator[Verdict]:
    """No patched module grants peer access that the stock driver refuses, without a data test.

    Effect: copies between GPUs report success and deliver nothing or wrong data
    Sure: high
    Fix: the stock driver, or NCCL_P2P_DISABLE=1 and no custom all-reduce until a one-way data test passes
    Undo: load the patched module again
    Wrong when: a one-way data test of every ordered pair passed on this very boot
    Source: club-3090 threads 873, 874 and 922; tinygrad and aikitoria open-gpu-kernel-modules threads 8, 13, 25
    """
    if facts.driver.patched:
        extra = lines("copy test", wrong_data(facts))
        yield fails(
            "the module is patched for peer access",
            evidence=(*seen("as reported", facts.driver.patched), *extra),
        )
        return
    keys, where = registry(facts)
    static = re.search(r"RMForceStaticBar1|PeerMappingOverride", keys, re.IGNORECASE)
    if static:
        yield fails("registry keys of the patched module are set", evidence=seen(where, keys))
        return
    granted = _granted(facts)
    if granted is None:
        raise UnknownValue("which pairs the driver grants is not told: attach `nvidia-smi topo -p2p r`")
    cards = named(facts)
    refused = [name for name in cards if closed_to_peers(name)]
    if not granted:
        yield passes("no peer access is granted over PCIe")
    elif refused:
        yield fails(
            f"peer access is granted on {refused[0]}, which the stock driver refuses",
            evidence=seen("topo -p2p", "OK"),
        )
    elif not cards:
        yield unknown(
            "the driver grants peer access over PCIe, and no text names the cards: a GeForce needs a patch for that"
        )
    else:
        yield passes("peer access is granted by the stock driver")


def _granted(facts: Facts) -> bool | None:
    """Whether some pair without NVLink may read or write its peer; None where that is not told."""
    for matrix in (facts.p2p.write, facts.p2p.read):
        if is_unknown(matrix):
            continue
        for a, row in enumerate(matrix):
            for b, cell in enumerate(row):
                if cell is not None and not is_unknown(cell) and cell == "ok" and not _nvlinked(facts, a, b):
                    return True
        return False
    return None


def _nvlinked(facts: Facts, a: int, b: int) -> bool:
    levels = facts.p2p.levels
    if is_unknown(levels) or a >= len(levels) or b >= len(levels[a]):
        return False
    cell = levels[a][b]
    if cell is None or is_unknown(cell):
        return False
    links = facts.p2p.nvlink
    if not is_unknown(links) and a < len(links) and b < len(links[a]):
        by_link = links[a][b]
        if by_link is not None and not is_unknown(by_link) and by_link == "ok":
            return True
    return cell.startswith("NV")
