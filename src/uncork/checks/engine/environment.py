"""What a server's environment switches on."""

import re
from collections.abc import Iterator

from uncork.checks import (
    INFO,
    NONE,
    P1,
    P2,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    passes,
)
from uncork.checks.engine.servers import each_server, flag, name_of
from uncork.checks.gpus import ranks
from uncork.checks.hosts import known, seen
from uncork.model.facts import Facts
from uncork.model.facts.engine import Server
from uncork.model.unknown import is_unknown


def environ(server: Server) -> dict[str, str]:
    """The kept environment; raises UnknownValue where it may not be read."""
    return known(server.environ)


@check("engine.debug-logging", P1, SERVICE_RESTART)
def debug_logging(facts: Facts) -> Iterator[Verdict]:
    """Nothing is logged or traced in detail.

    Effect: tracing of functions costs multiples, logging of requests the API's core
    Sure: high
    Fix: take the variable or flag out
    Undo: set it again
    Wrong when: somebody is looking for a fault right now
    Source: vLLM documentation, environment variables; SGLang server arguments; NCCL user guide, NCCL_DEBUG
    """
    serious = {
        "VLLM_TRACE_FUNCTION": "1",
        "VLLM_LOGGING_LEVEL": "DEBUG",
        "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
        "NCCL_DEBUG": "TRACE",
        "RUST_LOG": "trace",
    }

    def judge(server: Server) -> Iterator[Verdict]:
        variables = environ(server)
        found = [
            f"{n}={variables[n]}" for n, bad in serious.items() if variables.get(n, "").upper() == bad.upper()
        ]
        mild = [f"NCCL_DEBUG={variables['NCCL_DEBUG']}"] if variables.get("NCCL_DEBUG") == "INFO" else []
        mild += ["TORCH_LOGS"] if variables.get("TORCH_LOGS") else []
        mild += [f"--{n}" for n in ("log-requests", "enable-log-requests") if flag(server, n)]
        mild += (
            ["--log-level debug"] if server.flags.get("log-level", "").lower() in ("debug", "trace") else []
        )
        if found:
            yield fails(", ".join(found), name_of(server), evidence=seen("environment", found))
        elif mild:
            yield fails(", ".join(mild), name_of(server), priority=P2, evidence=seen("environment", mild))
        else:
            yield passes("no detailed logging", name_of(server))

    yield from each_server(facts, judge)


@check("engine.python-debug", P1, SERVICE_RESTART)
def python_debug(facts: Facts) -> Iterator[Verdict]:
    """Python runs without its development modes.

    Effect: everything in Python is slower; how much was not measured here
    Sure: high
    Fix: unset the variable
    Undo: set it again
    Wrong when: somebody is looking for a fault right now
    Source: Python documentation, command line and environment
    """
    names = (
        "PYTHONDEVMODE",
        "PYTHONASYNCIODEBUG",
        "PYTHONTRACEMALLOC",
        "COVERAGE_PROCESS_START",
        "PYTHONPROFILEIMPORTTIME",
    )

    def judge(server: Server) -> Iterator[Verdict]:
        variables = environ(server)
        found = [n for n in names if variables.get(n, "0") not in ("", "0")]
        found += ["PYTHONMALLOC"] if "debug" in variables.get("PYTHONMALLOC", "") else []
        found += ["debugpy"] if any("debugpy" in word for word in server.command) else []
        if found:
            yield fails(f"{', '.join(found)} is on", name_of(server), evidence=seen("environment", found))
        else:
            yield passes("no development mode", name_of(server))

    yield from each_server(facts, judge)


@check("engine.profiler-enabled", P1, SERVICE_RESTART)
def profiler(facts: Facts) -> Iterator[Verdict]:
    """No profiler of the engine is on.

    Effect: detailed traces make the GPU wait
    Sure: medium
    Fix: take it out
    Undo: set it again
    Wrong when: the directory alone, which does nothing until a profile is started
    Source: vLLM and SGLang documentation, profiling
    """

    def judge(server: Server) -> Iterator[Verdict]:
        variables = environ(server)
        hard = [
            f"--{n}" for n in ("collect-detailed-traces", "enable-layerwise-nvtx-marker") if flag(server, n)
        ]
        soft = [n for n in ("VLLM_TORCH_PROFILER_DIR", "SGLANG_TORCH_PROFILER_DIR") if variables.get(n)]
        if hard:
            yield fails(f"{', '.join(hard)} is on", name_of(server), evidence=seen("command line", hard))
        elif soft:
            yield passes(f"{soft[0]} is set, and does nothing until a profile is started", name_of(server))
        else:
            yield passes("no profiler", name_of(server))

    yield from each_server(facts, judge)


@check("engine.omp-threads", P1, SERVICE_RESTART)
def omp(facts: Facts) -> Iterator[Verdict]:
    """Ranks do not open more threads than there are cores.

    Effect: pools that spin against each other; 45 times slower under a quota in one CPU engine
    Sure: high
    Fix: OMP_NUM_THREADS from 1 to 8
    Undo: the former value
    Wrong when: an engine that computes on the CPU
    Source: Ollama issue 17916; vLLM documentation, environment variables
    """

    def judge(server: Server) -> Iterator[Verdict]:
        variables, many = environ(server), ranks(server)
        text = variables.get("OMP_NUM_THREADS", "")
        main = next((p for p in server.processes if p.role == "main"), None)
        allowed = 0 if main is None or is_unknown(main.cpus_allowed) else len(main.cpus_allowed)
        if text.isdigit() and allowed and int(text) * many > allowed:
            words = f"{many} ranks of {text} threads on {allowed} CPUs"
            yield fails(words, name_of(server), evidence=seen("OMP_NUM_THREADS", text))
        elif not text and many > 1 and allowed > 64 and server.kind not in ("vllm", "sglang"):
            words = f"OMP_NUM_THREADS is not set: {many} ranks of {allowed} threads"
            yield fails(words, name_of(server), priority=P2, evidence=seen("environment", words))
        else:
            yield passes(f"OMP_NUM_THREADS={text}" if text else "the engine sets it", name_of(server))

    yield from each_server(facts, judge)


@check("engine.malloc-preload", INFO, NONE)
def malloc_preload(facts: Facts) -> Iterator[Verdict]:
    """Which memory allocator is preloaded.

    Effect: engines on CPUs gain; nothing is shown for GPUs
    Sure: low
    Fix: none planned
    Undo: nothing to undo
    Wrong when: always worth a doubt
    Folklore: partly
    Source: own reasoning
    """

    def judge(server: Server) -> Iterator[Verdict]:
        paths = known(server.libraries)
        found = sorted({m[0] for path in paths if (m := re.search(r"tcmalloc|jemalloc|mimalloc", path))})
        yield passes(found[0] if found else "the system's allocator", name_of(server))

    yield from each_server(facts, judge)


@check("engine.proxy-env", P2, SERVICE_RESTART)
def proxy(facts: Facts) -> Iterator[Verdict]:
    """No proxy variable catches local traffic.

    Effect: a benchmark measures the proxy, and ranks do not find each other
    Sure: high
    Fix: no_proxy=localhost,127.0.0.1 and the node's addresses
    Undo: the former value
    Wrong when: clients that never leave the host
    Source: own reasoning
    """

    def judge(server: Server) -> Iterator[Verdict]:
        variables = {name.lower(): value for name, value in environ(server).items()}
        used = [n for n in ("http_proxy", "https_proxy", "all_proxy") if variables.get(n)]
        spared = variables.get("no_proxy", "")
        if used and not re.search(r"\*|127\.0\.0\.1|localhost", spared):
            yield fails(
                f"{used[0]} is set, and no_proxy spares no local address",
                name_of(server),
                evidence=seen("environment", f"no_proxy={spared}"),
            )
        else:
            yield passes("local traffic goes straight", name_of(server))

    yield from each_server(facts, judge)


@check("engine.hf-hub-online", INFO, NONE)
def hub(facts: Facts) -> Iterator[Verdict]:
    """Whether the server asks the hub at start.

    Effect: delay or failure at start
    Sure: medium
    Fix: HF_HUB_OFFLINE=1 where the weights are local
    Undo: unset it
    Wrong when: weights that are fetched
    Source: Hugging Face Hub, environment variables
    """

    def judge(server: Server) -> Iterator[Verdict]:
        offline = environ(server).get("HF_HUB_OFFLINE", "0") not in ("", "0")
        yield passes("offline" if offline else "may ask the hub at start", name_of(server))

    yield from each_server(facts, judge)


@check("engine.image-glibc-allocator", INFO, NONE)
def glibc(facts: Facts) -> Iterator[Verdict]:
    """Which settings of glibc's allocator are in force.

    Effect: resident memory only
    Sure: low
    Fix: none planned
    Undo: nothing to undo
    Wrong when: always worth a doubt
    Folklore: yes: nothing is shown for serving on GPUs
    Source: own reasoning
    """

    def judge(server: Server) -> Iterator[Verdict]:
        variables = environ(server)
        found = [f"{n}={variables[n]}" for n in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES") if variables.get(n)]
        yield passes(", ".join(found) or "as glibc ships it", name_of(server))

    yield from each_server(facts, judge)
