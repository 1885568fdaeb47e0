"""What an engine's own log tells of the way it took."""

from collections.abc import Iterator

from uncork.checks import (
    P0,
    P1,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.engine.flags import GPU_ENGINES
from uncork.checks.engine.servers import each_server, name_of, sign
from uncork.checks.gpus import lines
from uncork.checks.hosts import seen
from uncork.model.facts import Facts
from uncork.model.facts.engine import Server
from uncork.model.unknown import is_unknown


@check("engine.kv-pressure", P1, SERVICE_RESTART)
def kv_pressure(facts: Facts) -> Iterator[Verdict]:
    """No request is thrown out of the KV cache and computed again.

    Effect: work that is done twice
    Sure: high
    Fix: fewer requests at once, or more cache
    Undo: the former limit
    Wrong when: rare peaks
    Source: vLLM documentation, preemption; SGLang documentation, hyperparameter tuning
    """
    told = sign(facts, "kv-pressure")
    if told:
        yield fails("requests are thrown out of the KV cache", evidence=lines("engine log", told))
    elif facts.engine.log_from_start:
        yield passes("the log names no request that was thrown out")
    elif reason := _nobody(facts):
        yield not_applicable(reason)
    else:
        yield unknown("the engine's log or metrics tell it: `uncork bench` reads them under load")


def _nobody(facts: Facts) -> str:
    if is_unknown(facts.engine.servers):
        return ""
    if not facts.engine.servers:
        return "no inference server runs here"
    kinds = {server.kind for server in facts.engine.servers}
    return "" if kinds & set(GPU_ENGINES) else f"{', '.join(sorted(kinds))} has no such thing"


@check("engine.attention-backend-fallback", P1, SERVICE_RESTART)
def attention(facts: Facts) -> Iterator[Verdict]:
    """The attention backend is not one of last resort.

    Effect: often tens of per cent
    Sure: medium
    Fix: the wheel that matches CUDA and the GPU, or --attention-backend
    Undo: the former wheel or flag
    Wrong when: numerics that need another backend
    Source: vLLM documentation, attention backends; SGLang documentation, attention backend
    """
    told = sign(facts, "attention-fallback")
    if told:
        yield fails("a fallback computes attention", evidence=lines("engine log", told))
        return

    def judge(server: Server) -> Iterator[Verdict]:
        environ = {} if is_unknown(server.environ) else server.environ
        chosen = server.flags.get("attention-backend") or environ.get("VLLM_ATTENTION_BACKEND", "")
        slow = ("torch_native", "torch_sdpa", "TORCH_SDPA", "XFORMERS", "FLEX_ATTENTION")
        if chosen in slow:
            yield fails(f"{chosen} was chosen", name_of(server), evidence=seen("setting", chosen))
        elif facts.engine.log_from_start:
            yield passes("the log names no fallback", name_of(server))
        else:
            yield unknown("only the engine's log tells which backend was taken", name_of(server))

    yield from each_server(facts, judge, kinds=("vllm", "sglang", "engine"))


@check("engine.moe-config-missing", P1, SERVICE_RESTART)
def moe_config(facts: Facts) -> Iterator[Verdict]:
    """The fused MoE kernel is tuned for this GPU.

    Effect: 514 to 599 tokens a second in one published comparison (int4, gfx942, eight GPUs)
    Sure: medium
    Fix: run the engine's tuner once and keep the file
    Undo: take the file away
    Wrong when: models without experts
    Source: vLLM and SGLang, benchmark/kernels/fused_moe
    """
    told = sign(facts, "moe-config-missing")
    if told:
        yield fails("no tuned configuration for the MoE kernel", evidence=lines("engine log", told))
    elif facts.engine.log_from_start:
        yield passes("the log misses no MoE configuration")
    elif reason := _nobody(facts):
        yield not_applicable(reason)
    else:
        yield unknown("only the engine's log tells it")


@check("engine.arch-not-compiled", P0, SERVICE_RESTART)
def arch(facts: Facts) -> Iterator[Verdict]:
    """The engine's wheels hold code for this GPU.

    Effect: it fails, or compiles for minutes at start
    Sure: high
    Fix: the wheel or image for this generation
    Undo: the former image
    Wrong when: never
    Source: PyTorch documentation, torch.cuda.get_arch_list
    """
    told = sign(facts, "arch-not-compiled")
    if told:
        yield fails("the wheels hold no code for this GPU", evidence=lines("engine log", told))
    elif facts.engine.log_from_start:
        yield passes("the log names no missing kernel image")
    elif reason := _nobody(facts):
        yield not_applicable(reason)
    else:
        # A server that serves has kernels; whether they were compiled at start is in its log.
        yield (
            passes("it serves")
            if any(server.pid for server in facts.engine.servers)
            else unknown("only the engine's log tells it")
        )
