"""Flags of the engine that cost speed."""

from collections.abc import Iterator

from uncork.checks import (
    INFO,
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
from uncork.checks.engine.servers import each_server, flag, name_of, sign
from uncork.checks.gpus import gpus, lines, number, tensor_parallel, visible
from uncork.checks.hosts import seen
from uncork.checks.nvlink.links import no_nvlink
from uncork.model.facts import Facts
from uncork.model.facts.engine import Server
from uncork.model.unknown import is_unknown

GPU_ENGINES = ("vllm", "sglang", "tensorrt-llm", "tgi", "lmdeploy", "engine")


@check("engine.cuda-graph-disabled", P0, SERVICE_RESTART)
def cuda_graphs(facts: Facts) -> Iterator[Verdict]:
    """CUDA graphs are on and cover the batches that are served.

    Effect: decoding with few requests can take several times as long; published: 22 to 13 ms and 19 to 6 ms a token
    Sure: high
    Fix: take --enforce-eager or --disable-cuda-graph out; find out which fault it once hid
    Undo: the flag again
    Wrong when: a model or backend that cannot be captured
    Source: vLLM and SGLang documentation; scaleapi/llm-engine issue 851
    """
    told = sign(facts, "eager")
    if told and not any(
        _eager(server) for server in ([] if is_unknown(facts.engine.servers) else facts.engine.servers)
    ):
        yield fails("the log says that CUDA graphs are off", evidence=lines("engine log", told))
        return

    def judge(server: Server) -> Iterator[Verdict]:
        if server.kind == "llama.cpp":
            yield not_applicable("llama.cpp captures graphs by itself", name_of(server))
            return
        found = _eager(server)
        if found:
            yield fails("CUDA graphs are off", name_of(server), evidence=seen("command line", found))
            return
        most = number(server, "cuda-graph-max-bs", 0)
        batch = number(server, "max-running-requests", 0) or number(server, "max-num-seqs", 0)
        if most and batch and most < batch:
            words = f"graphs end at {most} requests, the batch at {batch}"
            yield fails(
                words,
                name_of(server),
                priority=P1,
                evidence=seen("command line", f"--cuda-graph-max-bs {most}"),
            )
        else:
            yield passes("CUDA graphs are on", name_of(server))

    yield from each_server(facts, judge)


def _eager(server: Server) -> str:
    """The flag that switches graphs off, or an empty text."""
    for name in ("enforce-eager", "disable-cuda-graph"):
        if flag(server, name):
            return f"--{name}"
    compilation = server.flags.get("compilation-config", "")
    if (
        compilation in ("0", '{"mode":0}', '{"mode": 0}', '{"level":0}', '{"level": 0}')
        or '"cudagraph_mode": "NONE"' in compilation
    ):
        return f"--compilation-config {compilation}"
    return ""


@check("engine.overlap-disabled", P1, SERVICE_RESTART)
def overlap(facts: Facts) -> Iterator[Verdict]:
    """The host prepares the next step while the GPU works.

    Effect: the host's time shows in each step, worst with few requests
    Sure: medium
    Fix: take --disable-overlap-schedule or --no-async-scheduling out
    Undo: the flag again
    Wrong when: a feature that does not go with it
    Source: SGLang server arguments; vLLM engine arguments
    """
    yield from _switch(
        facts,
        ("disable-overlap-schedule", "no-async-scheduling"),
        "the host waits for each step",
        "overlap-off",
    )


@check("engine.prefix-cache-disabled", P1, SERVICE_RESTART)
def prefix_cache(facts: Facts) -> Iterator[Verdict]:
    """Shared prefixes are computed once.

    Effect: time to the first token where prompts share a beginning
    Sure: high
    Fix: take --disable-radix-cache or --no-enable-prefix-caching out
    Undo: the flag again
    Wrong when: a benchmark of random prompts; keep it equal before and after
    Source: SGLang server arguments; vLLM engine arguments
    """
    yield from _switch(
        facts,
        ("disable-radix-cache", "no-enable-prefix-caching"),
        "the prefix cache is off",
        "prefix-cache-off",
    )


def _switch(facts: Facts, names: tuple[str, ...], words: str, what: str) -> Iterator[Verdict]:
    told = sign(facts, what)

    def judge(server: Server) -> Iterator[Verdict]:
        found = next((name for name in names if flag(server, name)), "")
        if found:
            yield fails(words, name_of(server), evidence=seen("command line", f"--{found}"))
        elif told:
            yield fails(words, name_of(server), evidence=lines("engine log", told))
        else:
            yield passes("as the engine ships it", name_of(server))

    yield from each_server(facts, judge)


@check("engine.mem-fraction", P1, SERVICE_RESTART)
def mem_fraction(facts: Facts) -> Iterator[Verdict]:
    """The KV cache gets the memory that is there.

    Effect: more cache is more requests at once, where the cache is the limit
    Sure: medium
    Fix: raise --gpu-memory-utilization or --mem-fraction-static by 0.02 at a time
    Undo: the former value
    Wrong when: long prefills that run out of memory
    Source: vLLM documentation, optimization; SGLang documentation, hyperparameter tuning
    """

    def judge(server: Server) -> Iterator[Verdict]:
        text = server.flags.get("gpu-memory-utilization") or server.flags.get("mem-fraction-static")
        if text is None:
            yield passes("as the engine ships it", name_of(server))
            return
        try:
            share = float(text)
        except ValueError:
            yield unknown(f"not a number: {text}", name_of(server))
            return
        if share < 0.7:
            yield fails(f"{share:g} of the memory", name_of(server), evidence=seen("command line", text))
            return
        tight = (
            []
            if is_unknown(facts.driver.gpus)
            else [
                gpu
                for gpu in visible(server, gpus(facts))
                if not is_unknown(gpu.memory_free_bytes) and gpu.memory_free_bytes < 1 << 30
            ]
        )
        if tight:
            yield fails(
                f"{share:g}, and less than 1 GiB is left on a GPU",
                name_of(server),
                priority=P2,
                evidence=seen("free memory", tight[0].memory_free_bytes),
            )
        else:
            yield passes(f"{share:g} of the memory", name_of(server))

    yield from each_server(facts, judge, kinds=("vllm", "sglang", "engine"))


@check("engine.batch-limits", P2, SERVICE_RESTART)
def batch_limits(facts: Facts) -> Iterator[Verdict]:
    """The limit of requests at once leaves room for more than a few.

    Effect: throughput against latency
    Sure: medium
    Fix: raise it step by step, measured
    Undo: the former value
    Wrong when: a latency target
    Source: SGLang documentation, hyperparameter tuning
    """

    def judge(server: Server) -> Iterator[Verdict]:
        limit = number(server, "max-num-seqs", 0) or number(server, "max-running-requests", 0)
        if limit and limit < 8:
            yield fails(f"{limit} requests at once", name_of(server), evidence=seen("command line", limit))
        else:
            yield passes(f"{limit} requests at once" if limit else "as the engine ships it", name_of(server))

    yield from each_server(facts, judge, kinds=("vllm", "sglang", "engine"))


@check("engine.speculative-missing", INFO, NONE)
def speculative(facts: Facts) -> Iterator[Verdict]:
    """Whether speculative decoding is in use.

    Effect: may help with few requests and cost with many
    Sure: medium
    Fix: none planned
    Undo: nothing to undo
    Wrong when: always worth a doubt
    Source: vLLM and SGLang documentation, speculative decoding
    """

    def judge(server: Server) -> Iterator[Verdict]:
        used = any(
            name.startswith("speculative") or name in ("model-draft", "draft-model", "md")
            for name in server.flags
        )
        yield passes("speculative decoding is " + ("on" if used else "off"), name_of(server))

    yield from each_server(facts, judge)


@check("engine.tp-shape", P1, SERVICE_RESTART)
def shape(facts: Facts) -> Iterator[Verdict]:
    """Tensor parallelism is no wider than PCIe carries.

    Effect: each layer waits for an all-reduce over the links
    Sure: medium
    Fix: the narrowest shape that holds the model, and replicas instead
    Undo: the former shape
    Wrong when: the model needs the memory of all of them
    Source: vLLM documentation, parallelism; SGLang documentation
    """

    def judge(server: Server) -> Iterator[Verdict]:
        wide = tensor_parallel(server)
        if wide < 2:
            yield passes("one GPU a layer", name_of(server))
        elif no_nvlink(facts) and wide > 4:
            words = f"tensor parallelism of {wide} without NVLink"
            yield fails(words, name_of(server), priority=P2, evidence=seen("command line", wide))
        elif wide & (wide - 1):
            yield fails(
                f"tensor parallelism of {wide} is no power of two",
                name_of(server),
                priority=P2,
                evidence=seen("command line", wide),
            )
        else:
            yield passes(f"tensor parallelism of {wide}", name_of(server))

    yield from each_server(facts, judge, kinds=GPU_ENGINES)


@check("engine.grammar-pool", P1, SERVICE_RESTART)
def grammar_pool(facts: Facts) -> Iterator[Verdict]:
    """The pool that compiles grammars is no larger than the CPU quota.

    Effect: 7 to 9 ms between tokens became 68 to 93 ms
    Sure: high
    Fix: lift the quota, or a version that counts CPUs by it
    Undo: the former quota
    Wrong when: nobody asks for structured output
    Source: vLLM issue 49460; SGLang issue 32084
    """
    quota = facts.container.processes
    servers = facts.engine.servers
    if not servers:
        yield not_applicable("no inference server runs here")
        return
    narrow = [
        group.cpu_quota
        for process in quota
        if not is_unknown(process.cgroups)
        for group in process.cgroups
        if not is_unknown(group.cpu_quota) and group.cpu_quota is not None
    ]
    if not narrow:
        yield passes("no CPU quota")
        return
    for server in servers:
        threads = max((p.threads for p in server.processes if not is_unknown(p.threads)), default=0)
        if threads > 8 * min(narrow):
            words = f"{threads} threads on a quota of {min(narrow):g} CPUs"
            yield fails(words, name_of(server), evidence=seen("Threads", words))
        else:
            yield passes(f"a quota of {min(narrow):g} CPUs", name_of(server))
