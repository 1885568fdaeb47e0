"""NCCL and RCCL: variables that were left, custom all-reduce, files of topologies and verdicts."""

from collections.abc import Iterator

from uncork.checks import (
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
from uncork.checks.engine.servers import sign
from uncork.checks.gpus import iommu_translates, lines, named, no_amd, tensor_parallel, wrong_data
from uncork.checks.hosts import known, seen, virtual
from uncork.checks.nvlink.links import no_nvlink
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


def environments(facts: Facts) -> list[tuple[str, str, dict[str, str]]]:
    """Subject, engine and environment of every server; and NCCL's files and attached variables."""
    found: list[tuple[str, str, dict[str, str]]] = []
    for server in () if is_unknown(facts.engine.servers) else facts.engine.servers:
        if not is_unknown(server.environ):
            found.append((f"{server.kind} ({server.pid})" if server.pid else "", server.kind, server.environ))
    given = facts.engine.environ
    if not is_unknown(given) and given and all(environ != given for _, _, environ in found):
        found.append(("", "", given))
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
        shown = seen("environment", ", ".join(f"{n}={environ[n]}" for n in (*closed, *forced)))
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
            yield fails(f"NCCL_P2P_LEVEL={value}", subject, evidence=seen("environment", value))
        else:
            yield passes("NCCL_P2P_LEVEL is not set", subject)


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
                evidence=seen("set_mempolicy", refused),
            )
        else:
            yield passes("nothing refuses host allocations", subject)


@check("nccl.topo-file-vm", P1, SERVICE_RESTART, unless=single)
def topo_file(facts: Facts) -> Iterator[Verdict]:
    """In a cloud NCCL knows the host's true topology.

    Effect: order of rings, and which NIC serves which GPU
    Sure: medium
    Fix: NCCL_TOPO_FILE with the file that the image brings
    Undo: unset it
    Wrong when: one GPU, or a guest that sees the true tree
    Source: Azure azhpc-images; NCCL user guide, NCCL_TOPO_FILE
    """
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
    elif is_unknown(shipped) and not shipped.absent:
        yield unknown(shipped.reason)
    elif not is_unknown(shipped) and "/var/run/nvidia-topologyd/" not in shipped:
        yield fails(f"{shipped} is here, and no server names it", evidence=seen("file", shipped))
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
    if wide:
        yield from (_of_server(facts, server, doubt) for server in wide)
    elif off := sign(facts, "custom-allreduce-off"):
        says = "the log says that it is off"
        yield passes(_RIGHTLY_OFF) if doubt else fails(says, priority=P2, evidence=lines("engine log", off))
    elif not is_unknown(facts.engine.servers) and not servers and not doubt:
        yield not_applicable("no server here spreads over GPUs")
    else:
        yield _unseen(facts, doubt)


_RIGHTLY_OFF = "off, as it must be while peer access is in doubt"


def _of_server(facts: Facts, server: Server, doubt: list[str]) -> Verdict:
    """The verdict on a server whose flags are known."""
    subject = f"{server.kind} ({server.pid})" if server.pid else server.kind
    if "disable-custom-all-reduce" in server.flags:
        evidence = seen("command line", "--disable-custom-all-reduce")
        if doubt:
            return passes(_RIGHTLY_OFF, subject)
        return fails("switched off by a flag", subject, priority=P2, evidence=evidence)
    if doubt and _would_use(facts, server):
        return fails(f"in use, and {doubt[0]}", subject, priority=P0, evidence=lines("doubt", doubt))
    return passes("as the engine chooses", subject)


def _unseen(facts: Facts, doubt: list[str]) -> Verdict:
    """The verdict where no command line is in sight."""
    if doubt and "custom_allreduce_active" in facts.driver.stated:
        words = f"the engine's own all-reduce is active, and {doubt[-1]}"
        return fails(words, priority=P0, evidence=lines("doubt", doubt))
    if doubt:
        says = f"{doubt[0]}; whether the engine uses its own all-reduce is not told (attach its command line)"
        return unknown(says, evidence=lines("doubt", doubt))
    return unknown("no server's command line is in sight")


def _would_use(facts: Facts, server: Server) -> bool:
    """vLLM and SGLang use it for two GPUs, and for four, six or eight only where NVLink joins them all."""
    wide = tensor_parallel(server)
    return wide == 2 or (wide in (4, 6, 8) and not no_nvlink(facts))


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
            yield fails("older than this boot", path, evidence=seen(path, when))
        else:
            yield passes("of this boot", path)


@check("nccl.rccl-env", P2, SERVICE_RESTART, unless=no_amd)
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
    for subject, _, environ in environments(facts):
        odd = [n for n in ("HSA_ENABLE_SDMA", "HSA_FORCE_FINE_GRAIN_PCIE") if environ.get(n) == "0"]
        if odd:
            yield fails(f"{odd[0]}=0", subject, evidence=seen("environment", odd))
        else:
            yield passes("no ROCm variable stands in the way", subject)
