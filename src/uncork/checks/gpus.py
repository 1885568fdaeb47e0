"""Questions about GPUs and the servers on them that many checks ask."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from uncork.checks import Verdict, unknown
from uncork.host.redact import cut
from uncork.model.facts import Facts
from uncork.model.facts.driver import Gpu
from uncork.model.facts.engine import Server
from uncork.model.facts.pcie import PciDevice
from uncork.model.findings import Answer, Evidence
from uncork.model.unknown import UnknownValue, is_unknown

Thing = TypeVar("Thing")
NVIDIA, AMD = 0x10DE, 0x1002
GIB = 1 << 30
# Below this a GPU does nothing that could be judged under load.
BUSY_PERCENT = 10

# Generation by what a product's name holds; of two that match, the first. Source: NVIDIA's product pages.
_GENERATIONS = (
    ("blackwell", r"RTX PRO|Blackwell|RTX 50\d0|\bG?B[123]00\b"),
    ("hopper", r"\bG?H(?:100|200|800|20)\b"),
    ("ada", r"\bAda\b|RTX 40\d0|\bL(?:4|20|40S?|2)\b"),
    ("ampere", r"RTX 30\d0|\bA(?:100|800|30|40|10G?|16|2)\b|RTX A\d{4}"),
    ("turing", r"RTX 20\d0|GTX 16\d0|\bT4G?\b|Quadro RTX|TITAN RTX|T\d{3,4}\b"),
    ("volta", r"\bV100|TITAN V"),
    ("pascal", r"GTX 10\d0|\bP(?:100|40|4)\b|GT 10\d0|TITAN Xp?"),
    ("kepler", r"\bK(?:80|40|20)"),
)
# Product → NVLinks of one GPU when all are up. Sources: NVIDIA's data sheets and DGX user guides; the A800 and
# H800 carry fewer by design.
_NVLINKS = (
    (r"\bH(?:100|200).*(?:SXM|HBM3)|\bH200\b(?!.*NVL)|\bGH200\b", 18),
    (r"\bG?B(?:200|300)\b", 18),
    (r"\bA100.*SXM", 12),
    (r"\bA800.*SXM", 8),
    (r"\bH800.*SXM", 8),
    (r"\bV100.*SXM|DGXS", 6),
    (r"\bP100.*SXM", 4),
)


def gpus(facts: Facts, vendor: str = "") -> tuple[Gpu, ...]:
    """GPUs that their driver answers for; raises UnknownValue where none could be read."""
    return tuple(gpu for gpu in facts.driver.gpus if not gpu.lost and (not vendor or gpu.vendor == vendor))


def subject_of(gpu: Gpu) -> str:
    """What a finding calls a GPU."""
    return f"GPU {gpu.index}" if is_unknown(gpu.bdf) else gpu.bdf


def each(
    things: Iterable[Thing], subject: Callable[[Thing], str], judge: Callable[[Thing], Iterable[Verdict]]
) -> Iterator[Verdict]:
    """Judge one by one; a value that is unknown for one costs only that one's answer.

    Three and more that are unknown for the same reason are one answer without a subject: thirteen devices of
    which lspci tells nothing are one thing to know.
    """
    missing: dict[str, list[Verdict]] = {}
    for thing in things:
        try:
            for verdict in judge(thing):
                if verdict.answer is Answer.UNKNOWN:
                    missing.setdefault(verdict.says, []).append(verdict)
                else:
                    yield verdict
        except UnknownValue as error:
            reason = error.reason.replace(f"/{subject(thing)}/", "/*/") if subject(thing) else error.reason
            missing.setdefault(reason, []).append(unknown(reason, subject(thing)))
    for reason, verdicts in missing.items():
        if len(verdicts) < 3:
            yield from verdicts
        else:
            yield unknown(f"{reason} ({len(verdicts)} of them)", evidence=verdicts[0].evidence)


def no_nvidia(facts: Facts) -> str:
    """Why questions about NVIDIA's driver do not arise, or an empty text (also where that is not known)."""
    if not is_unknown(facts.driver) and not is_unknown(facts.driver.gpus):
        if any(gpu.vendor == "nvidia" for gpu in facts.driver.gpus):
            return ""
        if facts.driver.gpus:
            return "no NVIDIA GPU"
    if is_unknown(facts.pcie) or is_unknown(facts.pcie.devices) or facts.pcie.source != "sysfs":
        return ""
    return "" if any(pci_gpus(facts, NVIDIA)) else "no NVIDIA GPU"


def no_amd(facts: Facts) -> str:
    """Why questions about AMD's driver do not arise, or an empty text."""
    if any(gpu.vendor == "amd" for gpu in facts.driver.gpus):
        return ""
    return "no AMD GPU"


def pci_gpus(facts: Facts, vendor: int | None = None) -> tuple[PciDevice, ...]:
    """GPUs on the PCI bus, bound to a driver or not."""
    return tuple(
        device
        for device in facts.pcie.devices
        if device.kind == "gpu"
        and (vendor is None or (not is_unknown(device.vendor) and device.vendor == vendor))
    )


def generation(name: str) -> str:
    """blackwell, hopper, ada, ampere, turing, volta, pascal, kepler; empty where the name tells none."""
    return next((word for word, pattern in _GENERATIONS if re.search(pattern, name)), "")


def is_geforce(name: str) -> bool:
    """Whether the product is a GeForce (or TITAN) card: no PCIe peer access in the stock driver since Turing."""
    if re.search(r"GeForce|GTX |TITAN", name):
        return True
    return bool(re.search(r"\bRTX [2345]0[5-9]0\b", name))


def closed_to_peers(name: str) -> bool:
    """Whether the stock driver keeps peer access over PCIe from the product."""
    return is_geforce(name) and generation(name) in ("turing", "ampere", "ada", "blackwell")


def is_data_centre(name: str) -> bool:
    """Whether it is a data-centre part, which maps all of its memory through BAR1 as shipped."""
    return bool(
        re.search(
            r"\b(?:G?B[123]00|G?H(?:100|200|800|20)|A(?:100|800|30|40|10G?|16|2)|L(?:4|20|40S?|2)|V100|P100|P40|T4)\b",
            name,
        )
    )


def expected_nvlinks(name: str) -> int | None:
    """NVLinks of this product when all are up; None where it depends on a bridge or is not known."""
    return next((count for pattern, count in _NVLINKS if re.search(pattern, name)), None)


def named(facts: Facts) -> tuple[str, ...]:
    """Models of the host's GPUs, as far as anything names them."""
    return facts.driver.models


def busy(gpu: Gpu) -> bool:
    """Whether the GPU works, by its utilisation, else by its performance state; raises where neither is known."""
    if not is_unknown(gpu.utilization_percent) and gpu.utilization_percent >= BUSY_PERCENT:
        return True
    if not is_unknown(gpu.pstate):
        return gpu.pstate <= 2 and not (
            is_unknown(gpu.utilization_percent) or gpu.utilization_percent < BUSY_PERCENT
        )
    return gpu.utilization_percent >= BUSY_PERCENT


def number(server: Server, flag: str, otherwise: int = 1) -> int:
    """A numeric flag."""
    text = server.flags.get(flag, "")
    return int(text) if text.isdigit() else otherwise


def ranks(server: Server) -> int:
    """GPU worker processes that the flags ask for."""
    if "data-parallel-size-local" in server.flags:
        copies = number(server, "data-parallel-size-local")
    else:
        # In SGLang's data-parallel attention the copies share the tensor-parallel ranks.
        shared = server.kind == "sglang" and "enable-dp-attention" in server.flags
        copies = 1 if shared else number(server, "data-parallel-size")
    nodes = max(1, number(server, "nnodes"))
    return max(
        1, number(server, "tensor-parallel-size") * number(server, "pipeline-parallel-size") * copies // nodes
    )


def tensor_parallel(server: Server) -> int:
    """GPUs that one layer is spread over."""
    return number(server, "tensor-parallel-size")


def widest(facts: Facts) -> int:
    """The widest tensor parallelism of any server here; 1 where none runs."""
    servers = facts.engine.servers
    return max((tensor_parallel(server) for server in servers), default=1)


def visible(server: Server, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs a server uses, in its order: what its environment makes visible, as many as it has ranks.

    Indices are taken in bus order, which is CUDA's own only for equal GPUs or CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    chosen = ""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if not is_unknown(server.environ) and server.environ.get(name):
            chosen = server.environ[name]
            break
    order = tuple(gpus)
    if chosen and chosen.lower() not in ("all", "nodevfiles", "void"):
        picked = []
        for word in (part.strip() for part in chosen.split(",")):
            if word.isdigit() and int(word) < len(gpus):
                picked.append(gpus[int(word)])
            elif word.startswith(("GPU-", "MIG-")):
                picked += [gpu for gpu in gpus if not is_unknown(gpu.uuid) and gpu.uuid.startswith(word)]
        order = tuple(picked)
    return order[: ranks(server)]


def family(server: Server) -> set[int]:
    """Process ids of a server."""
    return {server.pid, *(process.pid for process in server.processes)}


def whole_log(facts: Facts) -> dict[str, tuple[str, ...]]:
    """Lines of the kernel log by kind, where their absence means something; raises UnknownValue for a piece of it."""
    if not is_unknown(facts.driver.log) and facts.driver.log_piece:
        raise UnknownValue("only a few lines of the kernel log were given: attach all of dmesg")
    if is_unknown(facts.driver.log):
        raise UnknownValue(facts.driver.log.reason)
    return facts.driver.log


def lines(source: str, found: Iterable[str], most: int = 3) -> tuple[Evidence, ...]:
    """The first few lines as evidence."""
    return tuple(Evidence(source, cut(line, 400)) for line in list(found)[:most])


def version(text: str) -> tuple[int, ...]:
    """A dotted version as numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:4])


def wrong_data(facts: Facts) -> tuple[str, ...]:
    """Lines that show peer data which did not arrive; empty where none or no test was given."""
    test = facts.p2p.test
    return () if is_unknown(test) else test.wrong


def iommu_translates(facts: Facts) -> bool:
    """Whether DMA of GPUs is translated; raises UnknownValue where nothing tells."""
    types = (
        [d.iommu_type for d in pci_gpus(facts) if not is_unknown(d.iommu_type)]
        if not is_unknown(facts.pcie.devices)
        else []
    )
    if types:
        return any(kind.startswith("DMA") for kind in types)
    return facts.pcie.iommu_default == "translated"
