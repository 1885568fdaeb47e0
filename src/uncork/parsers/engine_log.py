"""Server logs of vLLM, sglang, TensorRT-LLM, TGI and llama.cpp: what they say about how they run."""

import re

import msgspec

# what → (a word that must be there, the line). Sentences are the engines' own, found in their sources and logs.
SIGNS: dict[str, tuple[str, re.Pattern[str]]] = {
    "attention-fallback": (
        "ttention",
        re.compile(
            r"Cannot use Flash(?:Attention|Infer)"
            r"|Using (?:XFormers|Torch SDPA|TORCH_SDPA|ROCmFlash|Triton) (?:attention )?backend"
            r"|FlashAttention(?:-2)? (?:is not available|backend because)|falling back to .*attention",
            re.IGNORECASE,
        ),
    ),
    "attention-backend": (
        "ackend",
        re.compile(r"Using (\S+(?: \S+)?) (?:attention )?backend|attention_backend='?(\w+)"),
    ),
    "eager": (
        "",
        re.compile(
            r"[Cc]uda ?graph is disabled|enforce_eager=True|enforce-eager|disable_cuda_graph=True"
            r"|CUDA graphs? (?:are )?disabled"
        ),
    ),
    "custom-allreduce-off": (
        "ustom",
        re.compile(r"Custom allreduce is disabled|disable_custom_all_reduce=True"),
    ),
    "custom-allreduce-on": (
        "ustom",
        re.compile(r"Registering \d+ cuda graph addresses|disable_custom_all_reduce=False"),
    ),
    "moe-config-missing": (
        "MoE",
        re.compile(r"Using default MoE (?:kernel )?config|Config file not found at .*E=\d+"),
    ),
    "arch-not-compiled": (
        "",
        re.compile(
            r"no kernel image is available|sm_\d+ is not compatible with the current PyTorch"
            r"|not compiled for (?:sm|gfx)"
        ),
    ),
    "kv-pressure": (
        "",
        re.compile(
            r"is preempted by|KV cache pool is full|Retract(?:ed)? requests|# ?retracted|not enough KV cache"
        ),
    ),
    "p2p-cache": ("p2p", re.compile(r"gpu_p2p_access_cache|reading GPU P2P access cache from")),
    "oom": ("", re.compile(r"OutOfMemoryError|CUDA out of memory|HIP out of memory|Not enough memory")),
    "profiler": (
        "rofil",
        re.compile(r"(?:Torch )?[Pp]rofiler (?:enabled|started)|torch_profiler_dir|VLLM_TORCH_PROFILER_DIR"),
    ),
    "prefix-cache-off": ("", re.compile(r"enable_prefix_caching=False|disable_radix_cache=True")),
    "peer-refused": (
        "eer",
        re.compile(r"peer access is not supported between these two devices|cudaErrorPeerAccessUnsupported"),
    ),
    "overlap-off": ("overlap", re.compile(r"disable_overlap_schedule=True")),
}
_ARGUMENTS = re.compile(r"\b([a-z][a-z0-9_]{2,60})=('[^']{0,200}'|\"[^\"]{0,200}\"|[\w./:+-]{1,200})")
_VERSION = re.compile(
    r"(vLLM|vllm|SGLang|sglang|TensorRT-LLM|TGI|llama\.cpp)(?: \w+){0,3} (?:version|[vV])[ =:]*v?(\d+\.\d+[\w.+-]*)"
)
_ARGUMENT_LINES = (
    "server_args=",
    "non-default args",
    "args: Namespace",
    "Initializing a",
    "engine config",
    "ServerArgs(",
)


class Sign(msgspec.Struct, frozen=True):
    """A line that says something: which of `SIGNS`, and the line."""

    what: str
    text: str


class Log(msgspec.Struct, frozen=True):
    """What a server's log says. `arguments` are those it prints at start."""

    engine: str | None = None
    version: str | None = None
    signs: tuple[Sign, ...] = ()
    arguments: dict[str, str] = {}

    def sign(self, what: str) -> str | None:
        """The first line of that sign."""
        return next((sign.text for sign in self.signs if sign.what == what), None)


def parse(text: str) -> Log:
    """Read a log of any length; equal lines and more than 50 of one sign are dropped."""
    signs: dict[tuple[str, str], None] = {}
    counts: dict[str, int] = {}
    arguments: dict[str, str] = {}
    version = _VERSION.search(text[:200_000])
    for line in text.split("\n"):
        line = line[:8000]
        for what, (word, pattern) in SIGNS.items():
            if word in line and counts.get(what, 0) < 50 and pattern.search(line):
                signs[what, line.strip()] = None
                counts[what] = counts.get(what, 0) + 1
        if any(start in line for start in _ARGUMENT_LINES):
            for name, value in _ARGUMENTS.findall(line):
                arguments.setdefault(name, value.strip("'\""))
    return Log(
        version[1].lower() if version else None,
        version[2] if version else None,
        tuple(Sign(what, line) for what, line in signs),
        arguments,
    )
