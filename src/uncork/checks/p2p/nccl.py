"""NCCL and RCCL: variables that were left, what logs show, custom all-reduce."""

import re
from collections.abc import Iterator

from uncork.checks import (
    NONE,
    P0,
    P1,
    P2,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.gpus import (
    evidence,
    expected_nvlinks,
    generation,
    iommu_translates,
    known,
    lines,
    named,
    no_amd,
    no_nvidia,
    tensor_parallel,
    version,
    wrong_data,
)
from uncork.checks.hosts import no_rdma, spread, virtual
from uncork.checks.nvlink.links import nvls_failures
from uncork.checks.p2p.access import refused, single
from uncork.model.facts import Facts
from uncork.model.facts.engine import Server
from uncork.model.unknown import UnknownValue, is_unknown

# Variables that close a way or fix a choice that NCCL makes better by itself. Source: NCCL, environment variables.
_DISABLING = {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"}
_FORCING = {
    "NCCL_NET_GDR_LEVEL",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_BUFFSIZE",
    "NCCL_NTHREADS",
    "NCCL_LAUNCH_MODE",
    "NCCL_CUMEM_ENABLE",
    "NCCL_IGNORE_CPU_AFFINITY",
    "NCCL_SOCKET_NTHREADS",
    "NCCL_NSOCKS_PERTHREAD",
}
# Sets itself: SGLang and vLLM export these for their workers.
_OWN = {
    "sglang": {"NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE"},
    "vllm": {"NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE"},
}
# Fixed in the version beside it. Source: NCCL release notes.
_LOWEST = {"blackwell": (2, 25), "hopper": (2, 16), "ada": (2, 14)}
_WRONG_INTERFACE = re.compile(r"^(?:lo|docker\d*|virbr\d*|br-[0-9a-f]+|veth\w+|cni\d*|flannel\S*|cali\w+)$")


def environments(facts: Facts) -> list[tuple[str, str, dict[str, str]]]:
    """Subject, engine and environment of every server; and NCCL's files and attached variables."""
    found: list[tuple[str, str, dict[str, str]]] = []
    for server in () if is_unknown(facts.engine.servers) else facts.engine.servers:
        if not is_unknown(server.environ):
            found.append((f"{server.kind} ({server.pid})" if server.pid else "", server.kind, server.environ))
    if not is_unknown(facts.engine.environ) and facts.engine.environ:
        found.append(("", "", facts.engine.environ))
    log = facts.p2p.log
    if not is_unknown(log) and log.environment:
        found.append(("", "", log.environment))
    if facts.p2p.config:
        found.append(("nccl.conf", "", facts.p2p.config))
    return found


def _no_environment(facts: Facts) -> str:
    """Why no environment can be judged: no server, or one that may not be read."""
    if is_unknown(facts.engine.servers):
        return facts.engine.servers.reason
    return "the servers' environment cannot be read" if facts.engine.servers else ""


@check("nccl.env-leftovers", P1, SERVICE_RESTART)
def leftovers(facts: Facts) -> Iterator[Verdict]:
    """No variable of an old trouble or another machine steers NCCL.

    Effect: NCCL_P2P_DISABLE after one bad day stays for years; copied blocks fix channels and protocols
    Sure: high
    Fix: take them out one at a time, with a measurement; before P2P_DISABLE goes, test that peer data arrives
    Undo: set them again
    Wrong when: the owner measured it on this very host
    Folklore: partly: blocks of 'optimal NCCL settings' travel from host to host
    Source: NCCL user guide, environment variables and troubleshooting
    """
    places = environments(facts)
    if not places:
        if reason := _no_environment(facts):
            yield unknown(reason)
        return
    for subject, kind, environ in places:
        closed = sorted(n for n in _DISABLING if environ.get(n, "0").strip() not in ("", "0"))
        forced = sorted(n for n in _FORCING - _OWN.get(kind, set()) if n in environ)
        missing = environ.get("NCCL_TOPO_FILE", "")
        shown = evidence("environment", ", ".join(f"{n}={environ[n]}" for n in (*closed, *forced)))
        if closed:
            yield fails(f"{', '.join(closed)} is set", subject, evidence=shown)
        elif forced:
            yield fails(f"{', '.join(forced)} is set", subject, priority=P2, evidence=shown)
        else:
            yield passes(
                "no NCCL variable closes a way" + (f"; topology from {missing}" if missing else ""), subject
            )


@check("nccl.p2p-level", P1, SERVICE_RESTART)
def level(facts: Facts) -> Iterator[Verdict]:
    """NCCL chooses by itself how far peers may be apart.

    Effect: doubled decoding with one request and halved throughput with a hundred on one rig
    Sure: medium
    Fix: unset NCCL_P2P_LEVEL; set SYS or PXB only as measured
    Undo: set it again
    Wrong when: it was measured here
    Folklore: partly: SYS is not good everywhere
    Source: NCCL user guide, NCCL_P2P_LEVEL; rtx6kpro measurements
    """
    places = environments(facts)
    if not places:
        if reason := _no_environment(facts):
            yield unknown(reason)
        return
    for subject, _, environ in places:
        value = environ.get("NCCL_P2P_LEVEL")
        if value:
            yield fails(f"NCCL_P2P_LEVEL={value}", subject, evidence=evidence("environment", value))
        else:
            yield passes("NCCL_P2P_LEVEL is not set", subject)


@check("nccl.transport-used", P1, SERVICE_RESTART)
def transport(facts: Facts) -> Iterator[Verdict]:
    """NCCL goes from GPU to GPU where the driver grants it.

    Effect: proof of the way that is taken
    Sure: high
    Fix: by cause: variables, shared memory, peer access
    Undo: nothing to undo
    Wrong when: peer access is slower than shared memory here, and that was measured
    Source: NCCL user guide, troubleshooting
    """
    log = facts.p2p.log
    if is_unknown(log):
        if reason := single(facts):
            yield not_applicable(reason)
        else:
            yield unknown(f"{log.reason}: one start with NCCL_DEBUG=INFO tells it")
        return
    if not log.transports:
        yield unknown("the NCCL log names no channel: it needs NCCL_DEBUG=INFO")
        return
    shown = evidence(
        "NCCL log", ", ".join(f"{name} {count}" for name, count in sorted(log.transports.items()))
    )
    network = [name for name in log.transports if name.startswith("NET")]
    if network and not log.several_hosts and (log.ranks or 0) <= 8:
        yield fails(f"GPUs of one host talk over {network[0]}", evidence=shown)
    elif log.transports.get("SHM") and not log.transports.get("P2P") and _all_granted(facts):
        yield fails("NCCL goes through host memory, though the driver grants peer access", evidence=shown)
    else:
        yield passes("NCCL goes over " + ", ".join(sorted(log.transports)), evidence=shown)


def _all_granted(facts: Facts) -> bool:
    return not is_unknown(facts.p2p.read) and bool(facts.p2p.read) and not refused(facts.p2p.read)


@check("nccl.channels-graph", P2, SERVICE_RESTART)
def channels(facts: Facts) -> Iterator[Verdict]:
    """NCCL found enough channels on this board.

    Effect: 22 became 37 to 41 GB/s on one Turin host with NCCL_MIN_NCHANNELS=8, and nothing on another
    Sure: low
    Fix: a newer NCCL; NCCL_MIN_NCHANNELS=8 as an experiment
    Undo: unset it
    Wrong when: NVSwitch hosts
    Folklore: partly
    Source: rtx6kpro measurements; NCCL sources, graph/tuning
    """
    log = facts.p2p.log
    if is_unknown(log):
        if reason := single(facts):
            yield not_applicable(reason)
        else:
            yield unknown(log.reason)
    elif log.p2p_channels is None:
        yield unknown("the NCCL log does not count channels")
    elif log.p2p_channels < 4:
        yield fails(f"{log.p2p_channels} peer channels", evidence=evidence("NCCL log", log.p2p_channels))
    else:
        yield passes(f"{log.p2p_channels} peer channels")


@check("nccl.version", P1, SERVICE_RESTART)
def nccl_version(facts: Facts) -> Iterator[Verdict]:
    """One NCCL is loaded, new enough for the GPU.

    Effect: faults that a version mended
    Sure: medium
    Fix: the version that the engine pins
    Undo: the former version
    Wrong when: the engine brings one of its own on purpose
    Source: NCCL release notes; NCCL issue 2106
    """
    servers = () if is_unknown(facts.engine.servers) else facts.engine.servers
    asked = False
    for server in servers:
        paths = () if is_unknown(server.libraries) else server.libraries
        found = sorted({path for path in paths if re.search(r"/libn?r?ccl\.so", path)})
        if len(found) > 1:
            asked = True
            yield fails(
                "two NCCL libraries in one server",
                f"{server.kind} ({server.pid})",
                evidence=lines("maps", found),
            )
    text = _nccl_version(facts)
    if not text:
        if not asked and servers == () and not is_unknown(facts.engine.servers):
            yield not_applicable("no inference server runs here")
        elif not asked:
            yield unknown("no log and no package names NCCL's version")
        return
    for name in named(facts):
        least = _LOWEST.get(generation(name))
        if least and version(text)[:2] < least and not asked:
            words = f"NCCL {text} is older than {name} needs ({least[0]}.{least[1]})"
            yield fails(words, evidence=evidence("NCCL", text))
            return
    yield passes(f"NCCL {text}")


def _nccl_version(facts: Facts) -> str:
    log = facts.p2p.log
    if not is_unknown(log) and log.version:
        return log.version
    for server in () if is_unknown(facts.engine.servers) else facts.engine.servers:
        packages = {} if is_unknown(server.packages) else server.packages
        for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12"):
            if name in packages:
                return packages[name]
    return ""


@check("nccl.cumem-host", P2, SERVICE_RESTART)
def cumem_host(facts: Facts) -> Iterator[Verdict]:
    """NCCL's host allocations work inside the container.

    Effect: falls back to /dev/shm, which is 64 MB in Docker
    Sure: medium
    Fix: --cap-add SYS_NICE, or NCCL_CUMEM_HOST_ENABLE=0 with a large /dev/shm
    Undo: unset it
    Wrong when: one process, or a server outside containers
    Source: NCCL issue 2190; NCCL user guide, NCCL_CUMEM_HOST_ENABLE
    """
    servers = known(facts.engine.servers)
    if not any(tensor_parallel(server) > 1 for server in servers):
        yield not_applicable("no server here spreads over GPUs")
        return
    refused = facts.container.mempolicy
    for server in servers:
        environ = {} if is_unknown(server.environ) else server.environ
        subject = f"{server.kind} ({server.pid})"
        if environ.get("NCCL_CUMEM_HOST_ENABLE") == "0":
            yield passes("NCCL_CUMEM_HOST_ENABLE=0: shared memory is used", subject)
        elif not is_unknown(refused) and refused != "allowed" and facts.container.contained:
            yield fails(
                "set_mempolicy is refused: host allocations fall back to /dev/shm",
                subject,
                evidence=evidence("set_mempolicy", refused),
            )
        else:
            yield passes("nothing refuses host allocations", subject)


@check("nccl.nvls", P2, SERVICE_RESTART)
def nvls(facts: Facts) -> Iterator[Verdict]:
    """NVLink multicast (NVLS) works where the fabric has it.

    Effect: 512 to 535 GB/s for one all-reduce on Hopper, end to end unchanged; memory of each rank
    Sure: low
    Fix: repair the fabric; then measure NCCL_NVLS_ENABLE=1 against 0
    Undo: the former value
    Wrong when: SGLang, which switches it off unless asked
    Source: NCCL user guide, NCCL_NVLS_ENABLE; NCCL issue 1562
    """
    if broken := nvls_failures(facts):
        yield fails("NVLS fails to set up", priority=P1, evidence=lines("NCCL log", broken))
        return
    if not any(
        generation(n) in ("hopper", "blackwell") and (expected_nvlinks(n) or 0) > 8 for n in named(facts)
    ):
        if named(facts) or no_nvidia(facts):
            yield not_applicable("no NVSwitch fabric with multicast")
        else:
            yield unknown("neither the GPUs' models nor an NCCL log is given")
        return
    log = facts.p2p.log
    off = [subject for subject, _, environ in environments(facts) if environ.get("NCCL_NVLS_ENABLE") == "0"]
    if not is_unknown(log) and log.nvls_channels:
        yield passes(f"{log.nvls_channels} NVLS channels")
    elif off:
        yield passes("NVLS is switched off: measure both", off[0])
    else:
        yield unknown("an NCCL_DEBUG=INFO log would tell whether NVLS is used")


@check("nccl.socket-ifname", P1, SERVICE_RESTART)
def interface(facts: Facts) -> Iterator[Verdict]:
    """NCCL starts up over an interface that exists and reaches the others.

    Effect: start-up hangs or is refused
    Sure: high
    Fix: name the interface: NCCL_SOCKET_IFNAME=eth0 (a prefix), =eth0 (exact), ^docker0 (all but)
    Undo: unset it
    Wrong when: one machine, where any interface does
    Source: NCCL user guide, NCCL_SOCKET_IFNAME
    """
    log = facts.p2p.log
    asked = [
        (subject, name, environ[name])
        for subject, _, environ in environments(facts)
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
        if environ.get(name)
    ]
    if not is_unknown(log) and log.no_socket:
        words = (
            f"NCCL finds no interface for {asked[0][1]}={asked[0][2]}" if asked else "NCCL finds no interface"
        )
        yield fails(words, evidence=evidence("NCCL log", "no socket interface found"))
        return
    for subject, name, value in asked:
        yield from _chosen(facts, subject, name, value)
    if asked:
        return
    if not is_unknown(log) and log.interfaces and log.several_hosts:
        wrong = [
            f"{n}:{a}" for n, a in log.interfaces if n == "lo" or a.startswith(("127.", "fe80", "169.254."))
        ]
        if wrong:
            yield fails(
                f"NCCL chose {', '.join(wrong)} between machines", evidence=evidence("NCCL log", wrong)
            )
        else:
            yield passes("NCCL chose " + ", ".join(n for n, _ in log.interfaces))
        return
    if is_unknown(facts.engine.servers):
        yield unknown(facts.engine.servers.reason)
    elif not spread(facts):
        yield not_applicable("no server here spans machines")
    else:
        yield passes("NCCL chooses by itself")


def _chosen(facts: Facts, subject: str, name: str, value: str) -> Iterator[Verdict]:
    """Whether a variable picks an interface that is there: `=` exact, `^` all but, else a prefix; a list."""
    interfaces = known(facts.p2p.interfaces)
    sign = value[0] if value[0] in "=^" else ""
    words = [word for word in value.removeprefix(sign).split(",") if word]
    exact = sign == "=" or name != "NCCL_SOCKET_IFNAME"
    picked = [i for i in interfaces if any(i == word if exact else i.startswith(word) for word in words)]
    if sign == "^":
        picked = [i for i in interfaces if i not in picked]
    shown = evidence("environment", f"{name}={value}; interfaces {', '.join(interfaces)}")
    if not picked:
        yield fails(f"{name}={value} matches no interface", subject, evidence=shown)
    elif all(_WRONG_INTERFACE.match(i) for i in picked) and (
        is_unknown(facts.engine.servers) or spread(facts)
    ):
        yield fails(
            f"{name}={value} picks {picked[0]}, which reaches no other machine", subject, evidence=shown
        )
    else:
        yield passes(f"{name} picks {', '.join(picked)}", subject)


@check("nccl.topo-file-vm", P1, SERVICE_RESTART)
def topo_file(facts: Facts) -> Iterator[Verdict]:
    """In a cloud NCCL knows the host's true topology.

    Effect: order of rings, and which NIC serves which GPU
    Sure: medium
    Fix: NCCL_TOPO_FILE with the file that the image brings
    Undo: unset it
    Wrong when: one GPU, or a guest that sees the true tree
    Source: Azure azhpc-images; NCCL user guide, NCCL_TOPO_FILE
    """
    if reason := single(facts):
        yield not_applicable(reason)
        return
    if not virtual(facts):
        yield not_applicable("no virtual machine")
        return
    named_files = [
        (subject, environ["NCCL_TOPO_FILE"])
        for subject, _, environ in environments(facts)
        if environ.get("NCCL_TOPO_FILE")
    ]
    shipped = facts.p2p.topology_file
    if named_files:
        yield passes(f"NCCL_TOPO_FILE={named_files[0][1]}", named_files[0][0])
    elif not is_unknown(shipped) and "/var/run/nvidia-topologyd/" not in shipped:
        yield fails(f"{shipped} is here, and no server names it", evidence=evidence("file", shipped))
    else:
        yield passes(
            "no topology file is needed here"
            if is_unknown(shipped)
            else "NCCL reads topologyd's file by itself"
        )


@check("nccl.custom-allreduce", P1, SERVICE_RESTART)
def custom_allreduce(facts: Facts) -> Iterator[Verdict]:
    """The engine's own all-reduce is used where peers are proven, and not where they are not.

    Effect: latency of decoding with few requests; wrong output where peer access lies
    Sure: medium
    Fix: --disable-custom-all-reduce until peer data is proven; take it out afterwards
    Undo: the flag again
    Wrong when: more than two GPUs without NVLink, where vLLM does without it by itself
    Source: vLLM documentation, --disable-custom-all-reduce; SGLang server arguments; vLLM issue 47544
    """
    doubt = _doubts(facts)
    servers = () if is_unknown(facts.engine.servers) else facts.engine.servers
    wide = [server for server in servers if tensor_parallel(server) > 1 and server.kind in ("vllm", "sglang")]
    for server in wide:
        subject = f"{server.kind} ({server.pid})" if server.pid else server.kind
        disabled = "disable-custom-all-reduce" in server.flags
        if disabled and doubt:
            yield passes("off, as it must be while peer access is in doubt", subject)
        elif disabled:
            yield fails(
                "switched off by a flag",
                subject,
                priority=P2,
                evidence=evidence("command line", "--disable-custom-all-reduce"),
            )
        elif doubt and _would_use(server):
            yield fails(f"in use, and {doubt[0]}", subject, priority=P0, evidence=lines("doubt", doubt))
        else:
            yield passes("as the engine chooses", subject)
    if wide:
        return
    if not is_unknown(facts.engine.servers) and not servers and not doubt:
        yield not_applicable("no server here spreads over GPUs")
    elif doubt:
        yield unknown(
            f"{doubt[0]}; whether the engine uses its own all-reduce is not told (attach its command line)",
            evidence=lines("doubt", doubt),
        )
    else:
        yield unknown("no server's command line is in sight")


def _would_use(server: Server) -> bool:
    """vLLM and SGLang use it for two GPUs, and for more only with NVLink."""
    return tensor_parallel(server) in (2, 4, 6, 8)


def _doubts(facts: Facts) -> list[str]:
    """What speaks against trusting peer access."""
    found = []
    if wrong_data(facts):
        found.append("a copy test shows peer data that does not arrive")
    if facts.driver.patched:
        found.append("the module is patched for peer access")
    if "custom_allreduce_active" in facts.driver.stated and facts.p2p.hung:
        found.append("the report names the engine's own all-reduce in a hang")
    try:
        if facts.p2p.hung and iommu_translates(facts):
            found.append("the IOMMU translates")
    except UnknownValue:
        pass
    granted = facts.p2p.read if not is_unknown(facts.p2p.read) else facts.p2p.write
    if not found and not is_unknown(granted) and granted and not refused(granted) and not _proven_part(facts):
        found.append("the driver grants peer access on cards that are not named")
    return found


def _proven_part(facts: Facts) -> bool:
    """Whether the cards are ones whose stock driver grants peer access, or nothing suggests otherwise."""
    return bool(named(facts)) or facts.pcie.source == "sysfs"


@check("nccl.vllm-p2p-cache", P1, SERVICE_RESTART)
def cache(facts: Facts) -> Iterator[Verdict]:
    """The stored verdict about peer access is of this boot.

    Effect: an old verdict keeps peer access off, or on
    Sure: medium
    Fix: move the file aside and start the server again
    Undo: move it back
    Wrong when: nothing changed since
    Source: vLLM documentation, VLLM_SKIP_P2P_CHECK; vLLM issue 51513
    """
    if not facts.p2p.caches:
        yield not_applicable("no stored verdict is in sight")
        return
    booted = known(facts.p2p.boot_time)
    for path, when in facts.p2p.caches:
        if known(when) < booted:
            yield fails("older than this boot", path, evidence=evidence(path, when))
        else:
            yield passes("of this boot", path)


@check("nccl.rccl-env", P2, SERVICE_RESTART)
def rccl(facts: Facts) -> Iterator[Verdict]:
    """ROCm's variables are as AMD advises for serving.

    Effect: a few per cent each
    Sure: low
    Fix: by AMD's guide for the part
    Undo: the former values
    Wrong when: another ROCm release
    Folklore: partly
    Source: AMD ROCm, inference optimization, workload tuning
    """
    if reason := no_amd(facts):
        yield not_applicable(reason)
        return
    for subject, _, environ in environments(facts):
        odd = [n for n in ("HSA_ENABLE_SDMA", "HSA_FORCE_FINE_GRAIN_PCIE") if environ.get(n) == "0"]
        if odd:
            yield fails(f"{odd[0]}=0", subject, evidence=evidence("environment", odd))
        else:
            yield passes("no ROCm variable stands in the way", subject)


@check("nccl.allreduce-value-check", P0, NONE)
def value_check(facts: Facts) -> Iterator[Verdict]:
    """An all-reduce gives the right sums at the expected bandwidth.

    Effect: end-to-end proof of collectives
    Sure: high
    Fix: see the other findings
    Undo: nothing to undo
    Wrong when: one GPU
    Source: nccl-tests; Azure health checks
    """
    if reason := single(facts):
        yield not_applicable(reason)
    elif facts.p2p.out_of_bounds > 0:
        yield fails(
            f"{facts.p2p.out_of_bounds} wrong values in an all-reduce",
            evidence=evidence("nccl-tests", "Out of bounds values"),
        )
    else:
        yield unknown(
            "not tested: `uncork gate` runs it, or attach all_reduce_perf's output with value check"
        )


@check("nccl.gdr-disabled", P1, SERVICE_RESTART)
def gdr(facts: Facts) -> Iterator[Verdict]:
    """NCCL uses GPUDirect RDMA on every NIC.

    Effect: traffic between machines is staged through host memory
    Sure: high
    Fix: nvidia-peermem or DMA-BUF; NCCL_NET_GDR_LEVEL only as measured
    Undo: nothing to undo
    Wrong when: sockets without RDMA
    Source: NCCL issues 1676 and 1412
    """
    log = facts.p2p.log
    if is_unknown(log):
        if (
            not is_unknown(facts.network)
            and not is_unknown(facts.network.ports)
            and (reason := no_rdma(facts))
        ):
            yield not_applicable(reason)
        else:
            yield unknown(log.reason)
    elif log.gdr is False and log.network != "Socket":
        yield fails(
            "NCCL says that GPUDirect RDMA is off", evidence=evidence("NCCL log", "GPU Direct RDMA Disabled")
        )
    elif log.gdr:
        yield passes("GPUDirect RDMA is on")
    elif log.network == "Socket":
        yield not_applicable("NCCL uses sockets")
    else:
        yield unknown("the NCCL log does not speak of GPUDirect RDMA")
