"""What NCCL's own logs and tests show: ways, channels, versions, interfaces."""

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
from uncork.checks.gpus import expected_nvlinks, generation, lines, named, no_nvidia, version
from uncork.checks.hosts import known, no_rdma, seen, spread
from uncork.checks.nvlink.fabric import nvls_failures
from uncork.checks.p2p.access import refused, single
from uncork.checks.p2p.nccl import environments
from uncork.model.facts import Facts
from uncork.model.unknown import is_unknown

# Fixed in the version beside it. Source: NCCL release notes.
_LOWEST = {"blackwell": (2, 25), "hopper": (2, 16), "ada": (2, 14)}


_WRONG_INTERFACE = re.compile(r"^(?:lo|docker\d*|virbr\d*|br-[0-9a-f]+|veth\w+|cni\d*|flannel\S*|cali\w+)$")


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
    shown = seen("NCCL log", ", ".join(f"{name} {count}" for name, count in sorted(log.transports.items())))
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
        yield fails(f"{log.p2p_channels} peer channels", evidence=seen("NCCL log", log.p2p_channels))
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
            yield fails(words, evidence=seen("NCCL", text))
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
        yield fails(words, evidence=seen("NCCL log", "no socket interface found"))
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
            yield fails(f"NCCL chose {', '.join(wrong)} between machines", evidence=seen("NCCL log", wrong))
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
    shown = seen("environment", f"{name}={value}; interfaces {', '.join(interfaces)}")
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


@check("nccl.allreduce-value-check", P0, NONE)
def value_check(facts: Facts) -> Iterator[Verdict]:
    """An all-reduce gives the right sums.

    Effect: end-to-end proof of collectives
    Sure: high
    Fix: see the other findings
    Undo: nothing to undo
    Wrong when: one GPU
    Source: nccl-tests; Azure health checks
    """
    if reason := single(facts):
        yield not_applicable(reason)
    elif facts.p2p.wrong_values > 0:
        says = f"{facts.p2p.wrong_values} wrong values in an all-reduce"
        yield fails(says, evidence=seen("nccl-tests", "Out of bounds values"))
    elif facts.p2p.wrong_values == 0:
        yield passes("an all-reduce gave right sums", evidence=seen("nccl-tests", "Out of bounds values : 0"))
    else:
        yield unknown(
            "not tested: `uncork verify` runs it, or attach all_reduce_perf's output with value check"
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
            "NCCL says that GPUDirect RDMA is off", evidence=seen("NCCL log", "GPU Direct RDMA Disabled")
        )
    elif log.gdr:
        yield passes("GPUDirect RDMA is on")
    elif log.network == "Socket":
        yield not_applicable("NCCL uses sockets")
    else:
        yield unknown("the NCCL log does not speak of GPUDirect RDMA")
