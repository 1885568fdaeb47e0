"""NCCL and peer-to-peer."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from uncork.explorers import gpus, reading, statements
from uncork.host import Host
from uncork.model.facts.p2p import AmdLink, CopyTest, Matrix, NcclLog, P2pFacts
from uncork.model.unknown import Unknown

if TYPE_CHECKING:  # the parsers' expressions cost more than a live host's whole reading
    from uncork.parsers.topo import Matrix as TopoMatrix

# nvidia-smi's legend of `topo -p2p` → the words of NVML's status.
_STATUS = {
    "OK": "ok",
    "CNS": "chipset",
    "GNS": "gpu",
    "TNS": "topology",
    "NS": "not-supported",
    "DR": "regkey",
    "U": "unknown",
}
_TOPOLOGY_FILES = (
    "/var/run/nvidia-topologyd/virtualTopology.xml",
    "/opt/microsoft/ncv4/topo.xml",
    "/opt/microsoft/ndv4-topo.xml",
    "/opt/microsoft/ndv5-topo.xml",
    "/etc/nccl-topo.xml",
)


def explore(host: Host) -> P2pFacts:
    """Read what the driver claims of each pair, how pairs are attached, and what NCCL and tests said."""
    read = gpus.read(host)
    found = read.p2p
    return P2pFacts(
        source=read.source if found else "nvidia-smi topo",
        levels=_levels(host, read),
        read=found["read"] if found else _printed(host, "r"),
        write=found["write"] if found else _printed(host, "w"),
        nvlink=found["nvlink"] if found else _printed(host, "n"),
        atomics=found["atomics"] if found else _printed(host, "a"),
        log=_log(host),
        test=_test(host),
        config=_config(host),
        interfaces=_interfaces(host),
        caches=_caches(host),
        boot_time=_boot_time(host),
        amd_links=_amd_links(host),
        topology_file=_topology_file(host),
        wrong_values=_wrong_values(host),
        hung=_hung(host),
    )


def _no_gpu(read: gpus.Reading) -> bool:
    return not isinstance(read.gpus, Unknown) and not read.gpus


def _levels(host: Host, read: gpus.Reading) -> Matrix | Unknown:
    if not isinstance(read.levels, Unknown) or _no_gpu(read):
        return () if _no_gpu(read) else read.levels
    answer = host.run(("nvidia-smi", "topo", "-m"))
    if isinstance(answer, Unknown):
        return answer
    from uncork.parsers import topo

    matrix = topo.parse(answer.stdout)
    return _square(matrix, lambda cell: topo.MODERN.get(cell, cell))


def _printed(host: Host, letter: str) -> Matrix | Unknown:
    answer = host.run(("nvidia-smi", "topo", "-p2p", letter))
    if isinstance(answer, Unknown):
        return answer
    from uncork.parsers import topo

    return _square(topo.parse(answer.stdout), lambda cell: _STATUS.get(cell, "unknown"))


def _square(matrix: "TopoMatrix", translate: Callable[[str], str]) -> Matrix | Unknown:
    if not matrix.gpus or not matrix.cells:
        return Unknown("the text holds no matrix")
    missing = Unknown("the matrix has no such cell")
    return tuple(
        tuple(
            None if a == b else translate(cell) if (cell := matrix.cells.get((a, b))) else missing
            for b in matrix.gpus
        )
        for a in matrix.gpus
    )


def _log(host: Host) -> NcclLog | Unknown:
    texts = reading.attached(host, "nccl-log")
    if not texts:
        return Unknown("no NCCL_DEBUG=INFO log was given")
    from uncork.parsers import nccl_log

    text = "\n".join(texts)
    log = nccl_log.parse(text)
    hosts = set(re.findall(r"^\s*(\S+?):\d+:\d+ \[\d+\]", text, re.MULTILINE))
    return NcclLog(
        version=log.version,
        warnings=tuple((one.where, one.text) for one in log.warnings),
        transports=log.transports,
        pairs=log.pairs,
        interfaces=log.interfaces,
        network=log.network,
        environment=log.environment,
        ranks=log.ranks,
        no_socket=log.no_socket,
        gdr=log.gdr,
        nvls_channels=log.nvls_channels,
        p2p_channels=log.p2p_channels,
        several_hosts=len(hosts) > 1,
        info="NCCL INFO" in text,
    )


def _test(host: Host) -> CopyTest | Unknown:
    texts = reading.attached(host, "p2p-test")
    if not texts:
        return Unknown("no peer copy test was given")
    from uncork.parsers import p2p_test

    test = p2p_test.parse("\n".join(texts))
    return CopyTest(
        wrong=test.wrong,
        passed=test.passed,
        access=test.access,
        bandwidth=tuple((one.title, one.cells) for one in test.matrices),
        pairings=tuple((one.pairs, one.gb_s, one.text) for one in test.pairings),
        acs_refused=test.acs_redirect_refused,
        names=test.names,
    )


def _config(host: Host) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in ("/etc/nccl.conf", "/root/.nccl.conf"):
        text = host.read(path)
        if not isinstance(text, Unknown):
            from uncork.parsers import environment

            found |= environment.parse(text)
    return found


def _interfaces(host: Host) -> tuple[str, ...] | Unknown:
    names = host.list("/sys/class/net")
    if not isinstance(names, Unknown):
        return names
    answer = host.run(("ip", "addr")) if not host.live else names
    if isinstance(answer, Unknown):
        return answer
    found = re.findall(r"^(?:\d+: )?([\w.@-]+?)(?:@\S+)?:\s", answer.stdout, re.MULTILINE)
    return tuple(dict.fromkeys(found)) or Unknown("`ip addr` names no interface")


def _caches(host: Host) -> tuple[tuple[str, int | Unknown], ...]:
    """vLLM's stored verdicts about peer access, with their times."""
    found = []
    for home in ("/root", "/home/*"):
        for path in host.glob(f"{home}/.cache/vllm/gpu_p2p_access_cache_for_*.json"):
            answer = host.run(("stat", "-c", "%Y", path))
            text = answer if isinstance(answer, Unknown) else answer.stdout.strip()
            found.append((path, text if isinstance(text, Unknown) else int(text) if text.isdigit() else 0))
    return tuple(found)


def _boot_time(host: Host) -> int | Unknown:
    text = host.read("/proc/stat")
    if isinstance(text, Unknown):
        return text
    match = re.search(r"^btime (\d+)", text, re.MULTILINE)
    return int(match[1]) if match else Unknown("/proc/stat has no boot time")


def _amd_links(host: Host) -> tuple[AmdLink, ...] | Unknown:
    """Links between KFD nodes that are GPUs."""
    base = "/sys/class/kfd/kfd/topology/nodes"
    nodes = host.list(base)
    if isinstance(nodes, Unknown):
        return _printed_amd_links(host) or nodes
    gpu_nodes = {
        int(node)
        for node in nodes
        if node.isdigit() and _properties(host, f"{base}/{node}/properties").get("simd_count", 0) > 0
    }
    found = []
    for node in sorted(gpu_nodes):
        for kind in ("io_links", "p2p_links"):
            for path in host.glob(f"{base}/{node}/{kind}/*/properties"):
                link = _properties(host, path)
                if link.get("node_to", -1) in gpu_nodes:
                    found.append(AmdLink(node, link["node_to"], link.get("type", 0), link.get("weight", 0)))
    return tuple(found)


# KFD's numbers for what rocm-smi prints (include/uapi/linux/kfd_sysfs.h).
_AMD_KINDS = {"XGMI": 11, "PCIE": 2}


def _printed_amd_links(host: Host) -> tuple[AmdLink, ...]:
    """The same from an attached `rocm-smi --showtopo`."""
    texts = reading.attached(host, "rocm")
    if not texts:
        return ()
    from uncork.parsers import rocm

    report = rocm.parse("\n".join(texts))
    return tuple(
        AmdLink(
            a,
            b,
            _AMD_KINDS[kind],
            int(weight) if (weight := report.weight.get((a, b), "")).isdecimal() else 0,
        )
        for (a, b), kind in report.link_type.items()
        if a != b and kind in _AMD_KINDS
    )


def _properties(host: Host, path: str) -> dict[str, int]:
    text = host.read(path)
    pairs = (line.split() for line in ("" if isinstance(text, Unknown) else text).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].lstrip("-").isdigit()}


def _topology_file(host: Host) -> str | Unknown:
    for path in _TOPOLOGY_FILES:
        there = host.exists(path)
        if isinstance(there, Unknown):
            return there
        if there:
            return path
    return Unknown("no topology file of a cloud is here", absent=True)


def _wrong_values(host: Host) -> int:
    """Wrong values that nccl-tests counted between several ranks; -1 where no such test was given."""
    texts = reading.attached(host, "nccl-tests")
    if not texts:
        return -1
    from uncork.parsers import nccl_tests

    runs = [nccl_tests.parse(text) for text in texts]
    # One rank adds nothing up: that it counts no wrong value proves nothing.
    counts = [run.wrong for run in runs if run.wrong is not None and (run.wrong or run.ranks != 1)]
    return sum(counts) if counts else -1


def _hung(host: Host) -> tuple[str, ...]:
    lines = statements.words(host).splitlines()
    return tuple(
        line.strip() for line in lines if re.search(r"\b(hangs?|hung|spins?|stuck)\b", line, re.IGNORECASE)
    )
