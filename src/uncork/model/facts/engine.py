"""Inference engines that run, and their Python."""

import msgspec

from uncork.model.unknown import Unknown


class Process(msgspec.Struct, frozen=True):
    """One process of a server: the started one (`role` main), a rank, a scheduler, a tokenizer."""

    pid: int
    parent: int
    title: str  # comm, as setproctitle left it
    role: str  # main, worker, scheduler, tokenizer, other
    threads: int | Unknown
    cpus_allowed: tuple[int, ...] | Unknown
    swap_bytes: int | Unknown
    nice: int | Unknown
    policy: int | Unknown  # SCHED_OTHER 0, FIFO 1, RR 2, BATCH 3, IDLE 5
    cpu_share: float | Unknown  # of one core, the busiest thread over the sampling window


class Server(msgspec.Struct, frozen=True):
    """A running inference server.

    `flags` holds long names without dashes and with the engine's own spelling made one (`tp` becomes
    `tensor-parallel-size`); a switch has the value "true". `environ` holds only names on the allow-list, with
    values that look like secrets masked. `(pid, start_ticks)` names the process even after a pid is reused.
    """

    kind: str  # vllm, sglang, tensorrt-llm, tgi, llama.cpp, transformers, lmdeploy, ollama
    pid: int
    start_ticks: int | Unknown
    endpoint: str | Unknown  # http://host:port
    model: str | Unknown
    flags: dict[str, str]
    environ: dict[str, str] | Unknown
    version: str | Unknown
    packages: dict[str, str] | Unknown  # distribution -> version of what its Python would import
    command: tuple[str, ...]  # redacted
    processes: tuple[Process, ...]
    libraries: tuple[str, ...] | Unknown  # paths of mapped shared objects
    cgroup: str | Unknown
    unit: str | Unknown  # what would restart it: a systemd unit, container or pod; Unknown where none is seen
    oom_score_adj: int | Unknown
    memlock_bytes: int | Unknown | None  # soft RLIMIT_MEMLOCK; None is unlimited
    nofile: int | Unknown | None


class Launcher(msgspec.Struct, frozen=True):
    """A process beside the servers that matters to them: MPS, a monitor, a fabric manager, a profiler."""

    kind: str  # mps, monitor, persistenced, fabric-manager, imex, display, profiler
    pid: int
    command: tuple[str, ...]


class EngineFacts(msgspec.Struct, frozen=True):
    """Inference engines that run, and their Python."""

    servers: tuple[Server, ...] | Unknown
    others: tuple[Launcher, ...] | Unknown
    signs: dict[str, tuple[str, ...]] | Unknown  # lines of an engine's log by what they tell
    log_from_start: bool  # whether that log holds the start, so that the absence of a line means something
    environ: dict[str, str] | Unknown  # variables that were attached, allowed names only
