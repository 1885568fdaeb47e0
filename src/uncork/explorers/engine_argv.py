"""Command lines of inference engines: which engine, with which flags."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

# Long names that mean the same; the first engine documentation name wins. Sources: vLLM engine arguments,
# SGLang server arguments, trtllm-serve, text-generation-launcher and llama-server --help.
_COMMON = {
    "tp": "tensor-parallel-size",
    "tp-size": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "pp-size": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "dp-size": "data-parallel-size",
    "ep": "expert-parallel-size",
    "ep-size": "expert-parallel-size",
}
ALIASES: dict[str, dict[str, str]] = {
    "vllm": _COMMON | {"O": "optimization-level", "cc": "compilation-config", "asc": "api-server-count"},
    "sglang": _COMMON | {"model": "model-path"},
    "tensorrt-llm": {
        "tp-size": "tensor-parallel-size",
        "pp-size": "pipeline-parallel-size",
        "ep-size": "expert-parallel-size",
    },
    "tgi": {"p": "port", "num-shard": "tensor-parallel-size"},
    "lmdeploy": _COMMON | {"server-name": "host", "server-port": "port"},
    "llama.cpp": {
        "m": "model",
        "c": "ctx-size",
        "np": "parallel",
        "ngl": "n-gpu-layers",
        "gpu-layers": "n-gpu-layers",
        "fa": "flash-attn",
        "t": "threads",
        "tb": "threads-batch",
        "b": "batch-size",
        "ub": "ubatch-size",
        "sm": "split-mode",
        "ts": "tensor-split",
        "mg": "main-gpu",
        "a": "alias",
        "hf": "hf-repo",
    },
    "transformers": {},
    "ollama": {},
}
DEFAULT_PORT = {
    "vllm": 8000,
    "sglang": 30000,
    "tensorrt-llm": 8000,
    "tgi": 3000,
    "llama.cpp": 8080,
    "transformers": 8000,
    "lmdeploy": 23333,
    "ollama": 11434,
}
# Flags without a value, so that the word after them is not taken for one, and flags with several values.
_SWITCH = re.compile(r"(enable|disable|no|skip|log)-|enforce-eager$|trust-remote-code$|async-scheduling$")
_MANY = {
    "cuda-graph-bs",
    "cuda-graph-sizes",
    "cudagraph-capture-sizes",
    "served-model-name",
    "lora-paths",
    "lora-modules",
    "middleware",
}
_MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
    "sglang.launch_server": "sglang",
    "llama_cpp.server": "llama.cpp",
    "uncork.loop.demo_server": "llama.cpp",
    "tensorrt_llm.commands.serve": "tensorrt-llm",
    "lmdeploy": "lmdeploy",
}
_PROGRAMS = {
    "trtllm-serve": "tensorrt-llm",
    "text-generation-launcher": "tgi",
    "llama-server": "llama.cpp",
    "llama-server-cuda": "llama.cpp",
    "llamafile": "llama.cpp",
}
# Programs that are servers only with this word after them.
_SUBCOMMANDS = {
    ("vllm", "serve"): "vllm",
    ("sglang", "serve"): "sglang",
    ("transformers", "serve"): "transformers",
    ("transformers-cli", "serve"): "transformers",
    ("lmdeploy", "serve"): "lmdeploy",
    ("ollama", "serve"): "ollama",
}
_PYTHON = re.compile(r"(python|pypy)[\d.]*(-dbg)?$")
_SECRET_FLAG = re.compile(r"(api-?key|token|secret|password|passwd|auth|credential)", re.IGNORECASE)
# What secrets look like wherever they stand: Hugging Face, OpenAI and GitHub tokens, JWTs, URLs with a
# password, long runs without a path or a word break.
_SECRET_VALUE = re.compile(
    r"(\b(hf|sk|gh[pousr]|glpat|xox[bap]|AKIA|wandb)[_-]?[A-Za-z0-9_-]{16,}|\beyJ[\w-]{10,}\.[\w.-]{10,}"
    r"|://[^/\s:@]+:[^/\s@]+@|\b(?=[A-Za-z0-9+=]*[0-9])(?=[A-Za-z0-9+=]*[A-Za-z])[A-Za-z0-9+=]{40,}\b)"
)
MASK = "[redacted]"


def masked(text: str) -> str:
    """The text with everything that looks like a secret replaced."""
    return _SECRET_VALUE.sub(MASK, text)


def redact(argv: Sequence[str]) -> tuple[str, ...]:
    """The command line with values of secret-named flags, and secret-looking values, replaced."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if hide_next and not word.startswith("--"):
            shown.append(MASK)
        elif word.startswith("-") and equals and _SECRET_FLAG.search(name):
            shown.append(f"{name}={MASK}")
        else:
            shown.append(masked(word))
        hide_next = word.startswith("-") and not equals and bool(_is_secret_flag(word))
    return tuple(shown)


def _is_secret_flag(word: str) -> bool:
    # max-tokens, tokenizer and their like carry no secret.
    return bool(_SECRET_FLAG.search(word)) and not re.search(r"tokeni|tokens|token-(length|id|limit)", word)


def kind_and_arguments(argv: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """Which engine this command line starts, and the words after its name; None for any other program."""
    if not argv:
        return None
    words = list(argv)
    names = [PurePosixPath(word).name for word in words[:4]]
    if _PYTHON.match(names[0]):
        at = _first_program(words)
        if at is None:
            return None
        if words[at] == "-m":
            kind = _MODULES.get(words[at + 1]) if len(words) > at + 1 else None
            return (kind, tuple(words[at + 2 :])) if kind else None
        words = words[at:]
        names = [PurePosixPath(word).name for word in words[:4]]
    if names[0] in _PROGRAMS:
        return _PROGRAMS[names[0]], tuple(words[1:])
    if names[0] == "launch_server.py" or names[0] == "api_server.py":
        kind = next((k for k in ("vllm", "sglang") if f"/{k}/" in words[0]), None)
        return (kind, tuple(words[1:])) if kind else None
    if len(words) > 1 and (kind := _SUBCOMMANDS.get((names[0], words[1]))):
        skip = 3 if kind == "lmdeploy" else 2
        return kind, tuple(words[skip:])
    return None


def _first_program(words: Sequence[str]) -> int | None:
    """Where Python's own options end: the index of `-m` or of the script."""
    at = 1
    while at < len(words):
        if words[at] == "-m" or not words[at].startswith("-"):
            return at
        at += 2 if words[at] in ("-X", "-W") else 1
    return None


def parse_flags(kind: str, words: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Long names and values, and the words that belong to no flag (vLLM's model)."""
    aliases = ALIASES.get(kind, {})
    flags: dict[str, str] = {}
    loose: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or _is_number(word):
            loose.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if not equals:
            values: list[str] = []
            while at < len(words) and (not words[at].startswith("-") or _is_number(words[at])):
                if _SWITCH.match(name) or (values and name not in _MANY):
                    break
                values.append(words[at])
                at += 1
            value = " ".join(values) if values else "true"
        flags[aliases.get(name, name)] = MASK if _is_secret_flag(name) else masked(value)
    return flags, tuple(loose)


def _is_number(word: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d+)?", word))


def model_of(kind: str, flags: Mapping[str, str], loose: Sequence[str]) -> str | None:
    """The model the command line names."""
    for name in ("model", "model-path", "model-id", "hf-repo", "model-url", "force-model"):
        if flags.get(name, "true") != "true":
            return flags[name]
    return loose[0] if loose and kind in ("vllm", "tensorrt-llm", "sglang", "lmdeploy", "llama.cpp") else None


def address_of(kind: str, flags: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, int]:
    """The host and port the command line and environment ask for, with the engine's default."""
    port = flags.get("port") or environ.get("LLAMA_ARG_PORT" if kind == "llama.cpp" else "PORT", "")
    host = flags.get("host") or flags.get("hostname") or environ.get("LLAMA_ARG_HOST", "127.0.0.1")
    if kind == "ollama" and environ.get("OLLAMA_HOST"):
        host, _, port = environ["OLLAMA_HOST"].rpartition("://")[2].partition(":")
    number = int(port) if port.isdigit() else DEFAULT_PORT[kind]
    return ("127.0.0.1" if host in ("0.0.0.0", "::", "*", "true", "") else host), number
