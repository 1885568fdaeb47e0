"""What one serving process may lock, open, share and bind."""

from collections.abc import Iterator

from uncork.checks import (
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
from uncork.checks.hosts import (
    GIB,
    identity,
    known,
    no_process,
    one_node,
    seen,
    serving,
    sizes,
    spread,
    subject,
)
from uncork.model.facts import Facts
from uncork.model.facts.container import Confined
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown

IPC_LOCK, SYS_NICE = 14, 23
FILES = 65536
DOCKER_SHM_BYTES = 64 << 20
WANTED_SHM_BYTES = 16 * GIB


def _rdma_reason(facts: Facts) -> str:
    """Why locked memory does not matter, or an empty text: CUDA's pinned memory is not counted by it."""
    ports = facts.network.ports
    if facts.container.said.registration_failed:
        return ""
    if is_unknown(ports):
        bool(ports)
    if not ports:
        return "no RDMA device: CUDA's pinned memory is not counted as locked"
    return "" if spread(facts) else "no server here registers memory with an RDMA adapter"


@check("container.memlock", P1, SERVICE_RESTART)
def memlock(facts: Facts) -> Iterator[Verdict]:
    """A server that uses RDMA may lock any amount of memory.

    Effect: ibv_reg_mr fails, or RDMA is silently not used
    Sure: high
    Fix: prlimit on the live process for later registrations; durable: LimitMEMLOCK=infinity (of the container
        daemon too), docker --ulimit memlock=-1, lxc.prlimit.memlock
    Undo: the former limits
    Wrong when: the limit is read from a shell: a container inherits the daemon's
    Folklore: partly: no effect on one machine without RDMA
    Source: NCCL troubleshooting; openucx/ucx documentation; azhpc-images
    """
    said = facts.container.said
    finite = [(where, limit) for where, limit in said.locked if limit is not None]
    if said.registration_failed and finite:
        where, limit = min(finite, key=lambda pair: pair[1])
        evidence = seen(where, f"locked memory {limit} bytes") + seen(
            "attached log", said.registration_failed
        )
        yield fails(f"memory registration failed under a limit of {sizes(limit)}", evidence=evidence)
        return
    if said.registration_failed and not serving(facts):
        yield unknown(
            "memory registration failed; 'Max locked memory' in /proc/PID/limits of the server settles it"
        )
        return
    if reason := no_process(facts) or _rdma_reason(facts):
        yield not_applicable(reason)
        return
    for process in serving(facts):
        soft, hard = known(process.limits).get("Max locked memory", (None, None))
        evidence = seen(f"/proc/{process.pid}/limits", f"locked memory {soft} of {hard}")
        if soft is None:
            yield passes("locked memory unlimited", subject(process), evidence=evidence)
        else:
            before = f"{soft}:{'unlimited' if hard is None else hard}"
            change = Change("rlimit", f"{identity(process)}:memlock", "unlimited", before=before)
            says = f"it may lock {sizes(soft)} only"
            yield fails(says, subject(process), evidence=evidence, change=change, change_class=RUNTIME)


@check("container.nofile", P1, RUNTIME)
def nofile(facts: Facts) -> Iterator[Verdict]:
    """A server may open enough files and sockets.

    Effect: connections are refused under many clients
    Sure: high
    Fix: prlimit --nofile on the live process; durable: LimitNOFILE= or --ulimit nofile
    Undo: the former limits
    Source: getrlimit(2); vLLM documentation, troubleshooting
    """
    if exhausted := facts.container.said.files_exhausted:
        yield fails("it ran out of open files", evidence=seen("attached log", exhausted))
        return
    if reason := no_process(facts):
        yield not_applicable(reason)
        return
    roots = {server.pid for server in facts.engine.servers}
    # Only the process that listens holds the clients' sockets.
    for process in (p for p in serving(facts) if p.pid in roots or not roots):
        soft, hard = known(process.limits).get("Max open files", (None, None))
        used = process.open_files
        evidence = seen(f"/proc/{process.pid}/limits", f"open files {soft} of {hard}; {used} open")
        crowded = not is_unknown(used) and soft is not None and used > soft / 2
        if soft is None or (soft >= FILES and not crowded):
            yield passes("enough open files", subject(process), evidence=evidence)
            continue
        want = max(FILES, soft * 2 if crowded else FILES)
        top = "unlimited" if hard is None else max(hard, want)
        before = f"{soft}:{'unlimited' if hard is None else hard}"
        change = Change("rlimit", f"{identity(process)}:nofile", f"{want}:{top}", before=before)
        priority = P1 if crowded or soft <= 4096 else P2
        says = f"{soft} open files allowed" + (f", {used} open" if crowded else "")
        yield fails(says, subject(process), evidence=evidence, change=change, priority=priority)


@check("container.ipc-lock-cap", P1, SERVICE_RESTART)
def capabilities(facts: Facts) -> Iterator[Verdict]:
    """A server has the capabilities that its flags need.

    Effect: NUMA binding becomes a warning or nothing; NCCL falls back to /dev/shm
    Sure: high
    Fix: docker --cap-add SYS_NICE (NUMA binding) and --cap-add IPC_LOCK (RDMA)
    Undo: recreate without them
    Wrong when: nothing binds memory and no RDMA is used: a capability widens the attack surface
    Source: vLLM documentation, NUMA binding; NVIDIA/nccl issue 2190; capabilities(7)
    """
    if refused := facts.container.said.policy_refused:
        yield fails("memory policy calls are refused", evidence=seen("attached log", refused))
        return
    if reason := no_process(facts):
        yield not_applicable(reason)
        return
    inside = [process for process in serving(facts) if process.containerised is True]
    if not inside:
        yield not_applicable("no server runs in a container")
        return
    binding = not one_node(facts)
    rdma = not is_unknown(facts.network.ports) and bool(facts.network.ports) and bool(spread(facts))
    if not binding and not rdma:
        yield not_applicable("one NUMA node and no RDMA: neither capability is needed")
        return
    for process in inside:
        mask = known(process.capabilities)
        missing = [name for bit, name, used in _needed(binding, rdma) if used and not mask >> bit & 1]
        evidence = seen(f"/proc/{process.pid}/status", f"CapEff {mask:016x}")
        if missing:
            yield fails(f"it lacks {' and '.join(missing)}", subject(process), evidence=evidence)
        else:
            yield passes("capabilities for binding are there", subject(process), evidence=evidence)


def _needed(binding: bool, rdma: bool) -> tuple[tuple[int, str, bool], ...]:
    return ((SYS_NICE, "CAP_SYS_NICE", binding), (IPC_LOCK, "CAP_IPC_LOCK", rdma))


@check("container.seccomp-numa-syscalls", P2, SERVICE_RESTART)
def seccomp(facts: Facts) -> Iterator[Verdict]:
    """Memory policy calls are let through.

    Effect: numactl and an engine's NUMA binding do nothing
    Sure: high
    Fix: docker --cap-add SYS_NICE opens these calls in its profile; or a profile of your own
    Undo: recreate without
    Source: moby default seccomp profile; set_mempolicy(2)
    """
    if refused := facts.container.said.policy_refused:
        yield fails("memory policy calls are refused", evidence=seen("attached log", refused))
        return
    if reason := one_node(facts):
        yield not_applicable(reason)
        return
    if facts.container.contained:
        answer = known(facts.container.mempolicy)
        if answer == "allowed":
            yield passes("set_mempolicy is let through", evidence=seen("set_mempolicy(MPOL_DEFAULT)", answer))
        else:
            yield fails("set_mempolicy is refused here", evidence=seen("set_mempolicy(MPOL_DEFAULT)", answer))
        return
    filtered = [process for process in serving(facts) if process.seccomp == 2]
    if not filtered:
        yield not_applicable("no server runs under a seccomp filter")
        return
    for process in filtered:
        allowed = known(process.capabilities) >> SYS_NICE & 1
        evidence = seen(
            f"/proc/{process.pid}/status", f"Seccomp 2, CAP_SYS_NICE {'yes' if allowed else 'no'}"
        )
        if allowed:
            yield passes(
                "filtered, with the capability that opens these calls", subject(process), evidence=evidence
            )
        else:
            yield unknown(
                "a filter is on; only a call from inside tells whether it refuses", subject(process)
            )


@check("container.shm-size", P0, SERVICE_RESTART)
def shm_size(facts: Facts) -> Iterator[Verdict]:
    """/dev/shm is large enough for several ranks.

    Effect: NCCL fails to initialise or a rank dies of a bus error; multimodal inputs share tensors there
    Sure: high
    Fix: recreate with --shm-size=16g or --ipc=host; where the mount is ours: remount with a larger size now
    Undo: remount with the former size
    Wrong when: one GPU only and no shared-memory broadcast; tmpfs pages count against memory.max
    Source: NCCL troubleshooting, shared memory; vLLM documentation, deployment with Docker
    """
    said = facts.container.said
    if said.shm_failed or (said.shm_bytes is not None and said.shm_bytes <= DOCKER_SHM_BYTES):
        yield fails("shared memory is too small for NCCL", evidence=seen("attached text", said.shm_line))
        return
    if said.shm_bytes is not None:
        yield passes(f"/dev/shm has {sizes(said.shm_bytes)}", evidence=seen("attached text", said.shm_line))
        return
    servers = serving(facts)
    known_none = not is_unknown(facts.engine.servers) and not facts.engine.servers
    if not servers and facts.container.contained is not True and known_none:
        yield not_applicable("no inference server runs here, and this is no container")
        return
    groups: dict[tuple[int, int], Confined] = {}
    for process in servers or facts.container.processes:
        groups.setdefault((known(process.shm_size_bytes), known(process.shm_free_bytes)), process)
    for (size, free), process in groups.items():
        yield _shm(facts, process, size, free)


def _shm(facts: Facts, process: Confined, size: int, free: int) -> Verdict:
    gpus = facts.container.gpu_functions
    several = is_unknown(gpus) or gpus > 1
    path = f"/proc/{process.pid}/root/dev/shm" if process.pid else "/dev/shm"
    evidence = seen(path, f"{sizes(size)}, {sizes(free)} free")
    if size >= GIB and free >= min(GIB, size // 10):
        return passes(f"/dev/shm has {sizes(size)}", subject(process), evidence=evidence)
    own = not process.pid or (process.containerised is False and facts.container.contained is not True)
    change = (
        Change("shm_size", "/dev/shm", str(WANTED_SHM_BYTES), before=str(size))
        if own and size < GIB
        else None
    )
    says = f"/dev/shm has {sizes(size)}, {sizes(free)} free"
    return fails(
        says,
        subject(process),
        evidence=evidence,
        change=change,
        change_class=RUNTIME if change else None,
        priority=P0 if several else P2,
    )
