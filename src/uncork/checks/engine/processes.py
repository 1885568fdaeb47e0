"""Processes and threads of servers."""

import re
from collections.abc import Iterator

from uncork.checks import (
    NONE,
    P0,
    P1,
    P2,
    RUNTIME,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.engine.servers import each_server, name_of
from uncork.checks.gpus import gpus, ranks, version, visible
from uncork.checks.hosts import known, seen
from uncork.model.facts import Facts
from uncork.model.facts.engine import Server
from uncork.model.findings import Change
from uncork.model.unknown import UnknownValue, is_unknown


@check("engine.version-coherence", P1, SERVICE_RESTART)
def coherence(facts: Facts) -> Iterator[Verdict]:
    """torch, CUDA's libraries and the driver fit together.

    Effect: a silent fallback or a crash
    Sure: high
    Fix: install from one set of wheels
    Undo: the former lock file
    Wrong when: CUDA's minor compatibility, which is allowed here
    Source: NVIDIA CUDA compatibility guide; vLLM documentation, installation
    """

    def judge(server: Server) -> Iterator[Verdict]:
        packages = known(server.packages)
        torch = packages.get("torch", "")
        built = torch.partition("+cu")[2]
        served = facts.driver.cuda_version
        if built[:-1].isdigit() and not is_unknown(served) and int(built[:-1]) > version(served)[0]:
            yield fails(
                f"torch {torch} needs CUDA {built[:-1]}, the driver serves {served}",
                name_of(server),
                evidence=seen("packages", torch),
            )
            return
        majors: dict[str, set[str]] = {}
        for path in () if is_unknown(server.libraries) else server.libraries:
            if match := re.search(r"lib(cudart|cublas|cudnn)\.so\.(\d+)", path):
                majors.setdefault(match[1], set()).add(match[2])
        double = {name: found for name, found in majors.items() if len(found) > 1}
        if double:
            name, found = next(iter(double.items()))
            yield fails(
                f"{name} of versions {', '.join(sorted(found))} in one process",
                name_of(server),
                evidence=seen("maps", double),
            )
        else:
            yield passes(f"torch {torch}" if torch else "no torch beside it", name_of(server))

    yield from each_server(facts, judge)


@check("engine.cpu-core-budget", P0, RUNTIME)
def cores(facts: Facts) -> Iterator[Verdict]:
    """The server has a core for each of its busy processes.

    Effect: a scheduler or API without a core starves the GPUs: decoding halves in reports
    Sure: high
    Fix: widen the cpuset, the quota or the affinity
    Undo: the former mask
    Wrong when: a CPU engine that shares its cores on purpose
    Source: vLLM documentation, CPU resources (2 cores and one a GPU); vLLM issue 8147
    """

    def judge(server: Server) -> Iterator[Verdict]:
        main = next((p for p in server.processes if p.role == "main"), None)
        if main is None:
            raise UnknownValue("its processes are not in sight")
        need = 2 + ranks(server)
        have = float(len(known(main.cpus_allowed)))
        quota = _quota(facts, server)
        shown = f"{have:g} CPUs allowed"
        if quota is not None and quota < have:
            have, shown = quota, f"a quota of {quota:g} CPUs"
        threads = _threads_a_core(facts)
        physical = have / threads if quota is None else have
        if server.kind in ("llama.cpp", "ollama"):
            yield passes(shown, name_of(server))
        elif have < need:
            yield fails(
                f"{shown}, {need} cores are needed for {ranks(server)} ranks",
                name_of(server),
                change=None if quota is not None else _widen(facts, server, len(known(main.cpus_allowed))),
                evidence=seen("CPUs", shown),
            )
        elif physical < need:
            words = f"{shown} are {physical:g} cores, {need} are needed"
            yield fails(words, name_of(server), priority=P1, evidence=seen("CPUs", words))
        else:
            yield passes(f"{shown} for {ranks(server)} ranks", name_of(server))

    yield from each_server(facts, judge)


def _widen(facts: Facts, server: Server, allowed: int) -> Change | None:
    """The affinity of all its threads back to every CPU online; a quota or cpuset is its control group's to widen."""
    online = facts.power.cpus
    main = next((p for p in server.processes if p.role == "main"), None)
    if main is None or is_unknown(online) or is_unknown(main.cpus_allowed) or online <= allowed:
        return None
    before = ",".join(str(cpu) for cpu in main.cpus_allowed)
    return Change("affinity", str(server.pid), f"0-{online - 1}", before=before)


def _quota(facts: Facts, server: Server) -> float | None:
    """The tightest CPU quota over the server's processes."""
    if is_unknown(facts.container) or is_unknown(facts.container.processes):
        return None
    found = [
        group.cpu_quota
        for process in facts.container.processes
        if process.pid == server.pid and not is_unknown(process.cgroups)
        for group in process.cgroups
        if not is_unknown(group.cpu_quota) and group.cpu_quota is not None
    ]
    return min(found, default=None)


def _threads_a_core(facts: Facts) -> int:
    """2 with SMT, else 1; 1 where it is not known, so that nothing is claimed."""
    if is_unknown(facts.kernel) or is_unknown(facts.kernel.smt):
        return 1
    return 2 if facts.kernel.smt == "on" else 1


@check("engine.oom-score", P2, RUNTIME)
def oom_score(facts: Facts) -> Iterator[Verdict]:
    """The server is not the first that the kernel would kill.

    Effect: availability on a shared host
    Sure: high
    Fix: write -500 to its oom_score_adj
    Undo: write the former number
    Wrong when: Kubernetes, which sets it by its classes
    Source: man 5 proc_pid_oom_score_adj
    """

    def judge(server: Server) -> Iterator[Verdict]:
        value = known(server.oom_score_adj)
        if value > 0:
            change = Change("process", f"{server.pid}:oom_score_adj", "0", before=str(value))
            yield fails(
                f"oom_score_adj is {value}",
                name_of(server),
                change=change,
                evidence=seen("oom_score_adj", value),
            )
        else:
            yield passes(f"oom_score_adj is {value}", name_of(server))

    yield from each_server(facts, judge)


@check("engine.sched-policy", P2, RUNTIME)
def sched_policy(facts: Facts) -> Iterator[Verdict]:
    """The server's processes have ordinary priority or better.

    Effect: starvation where a job runner handed down a nice value
    Sure: medium
    Fix: renice 0 -p PID, or start it without nice
    Undo: renice with the former value
    Wrong when: CPUs that nobody else uses
    Folklore: partly: real-time priority for Python servers is folklore, and uncork never plans it
    Source: man 7 sched
    """
    words = {1: "FIFO", 2: "RR", 3: "BATCH", 5: "IDLE"}

    def judge(server: Server) -> Iterator[Verdict]:
        if not server.processes:
            raise UnknownValue("its processes are not in sight")
        wrong = [
            p
            for p in server.processes
            if (not is_unknown(p.nice) and p.nice > 0) or (not is_unknown(p.policy) and p.policy in words)
        ]
        if wrong:
            one = wrong[0]
            policy = words.get(one.policy, "") if not is_unknown(one.policy) else ""
            yield fails(
                f"{one.title} ({one.pid}) has nice {one.nice} {policy}".strip(),
                name_of(server),
                change_class=SERVICE_RESTART,
                evidence=seen("stat", f"{one.nice} {one.policy}"),
            )
        else:
            yield passes("ordinary priority", name_of(server))

    yield from each_server(facts, judge)


@check("engine.api-bottleneck", P1, SERVICE_RESTART)
def api_bottleneck(facts: Facts) -> Iterator[Verdict]:
    """No single thread of the server is at its limit.

    Effect: the GPU waits while Python is at 100 %
    Sure: high
    Fix: --api-server-count, --tokenizer-worker-num, or replicas behind a router
    Undo: the former number
    Wrong when: a thread that spins by design (the scheduler's between steps)
    Source: vLLM documentation, API server scale-out; SGLang server arguments
    """

    def judge(server: Server) -> Iterator[Verdict]:
        shares = {
            p.title: p.cpu_share
            for p in server.processes
            if p.role in ("main", "tokenizer") and not is_unknown(p.cpu_share)
        }
        if not shares:
            raise UnknownValue("its threads were not sampled")
        title, share = max(shares.items(), key=lambda item: item[1])
        if server.kind in ("llama.cpp", "ollama"):
            yield not_applicable("it computes in these threads", name_of(server))
        elif share > 0.9:
            yield fails(
                f"one thread of {title} takes {share:.0%} of a core",
                name_of(server),
                evidence=seen("stat", f"{share:.0%}"),
            )
        elif share < 0.05:
            yield unknown("the server rests: `uncork bench` samples it under load", name_of(server))
        else:
            yield passes(f"the busiest thread takes {share:.0%} of a core", name_of(server))

    yield from each_server(facts, judge)


@check("engine.gpu-idle-gaps", P1, NONE)
def idle_gaps(facts: Facts) -> Iterator[Verdict]:
    """While requests wait, the GPU works.

    Effect: tells whether tuning the host can help at all
    Sure: medium
    Fix: none
    Undo: nothing to undo
    Wrong when: NVML's utilisation, which counts any kernel at all
    Source: NVML API reference, utilization; vLLM and SGLang metrics
    """

    def judge(server: Server) -> Iterator[Verdict]:
        cards = visible(server, gpus(facts))
        if not cards:
            yield not_applicable("no GPU", name_of(server))
            return
        shares = [known(gpu.utilization_percent) for gpu in cards]
        busy = any(not is_unknown(p.cpu_share) and p.cpu_share > 0.3 for p in server.processes)
        if not busy:
            yield unknown("the server rests: `uncork bench` looks under load", name_of(server))
        elif min(shares) < 90:
            yield fails(
                f"a GPU is busy {min(shares)} % of the time while the server works",
                name_of(server),
                evidence=seen("utilization", shares),
            )
        else:
            yield passes(f"GPUs are busy {min(shares)} % of the time", name_of(server))

    yield from each_server(facts, judge)
