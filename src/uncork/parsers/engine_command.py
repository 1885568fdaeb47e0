"""Engine command lines, compose and Kubernetes files, engine YAML: which engine with which flags."""

import re
import shlex

import msgspec

_ENGINES = (
    (
        "vllm",
        re.compile(r"\bvllm serve\b|\bvllm\.entrypoints\b|\bvllm/vllm-openai\b|\bvllm-openai\b|-m vllm"),
    ),
    ("sglang", re.compile(r"\bsglang\.launch_server\b|\bsglang serve\b|\blmsysorg/sglang\b|-m sglang")),
    ("tensorrt-llm", re.compile(r"\btrtllm-serve\b|\btensorrt_llm\b|tritonserver")),
    ("tgi", re.compile(r"\btext-generation-(?:launcher|inference)\b")),
    ("llama.cpp", re.compile(r"\bllama-(?:server|cli)\b|llama\.cpp")),
)
_YAML = re.compile(
    r"^\s*(?:- )?[\"']?([a-z][a-z0-9_-]{2,60})[\"']?\s*[:=]\s*[\"']?([^\"'#\n]*?)[\"']?\s*(?:#.*)?$"
)
_VERSION = re.compile(
    r"(?:vllm/vllm-openai|lmsysorg/sglang|text-generation-inference|vllm-openai):v?(\d+\.\d+[\w.-]*)"
)
_FLAG = re.compile(r"^--?[a-zA-Z][\w-]*(?:=.*)?$")


class Command(msgspec.Struct, frozen=True):
    """Flags without dashes and with dashes inside (`enforce-eager`); a bare switch is "true"."""

    engine: str | None = None
    version: str | None = None
    flags: dict[str, str] = {}


def parse(text: str) -> Command:
    """Read a command (continued over lines or not), a list of arguments, or keys of a YAML file."""
    engine = next((name for name, pattern in _ENGINES if pattern.search(text)), None)
    version = _VERSION.search(text)
    flags = _flags(_words(text))
    for line in text.split("\n"):
        if "--" not in line and (found := _YAML.match(line[:500])) and ("_" in found[1] or "-" in found[1]):
            flags.setdefault(_plain(found[1]), found[2].strip() or "true")
    return Command(engine, version[1] if version else None, flags)


def _plain(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def _words(text: str) -> list[str]:
    words: list[str] = []
    for line in text.replace("\\\n", " ").split("\n"):
        line = re.sub(r"^\s*- ", "", line[:8000]).strip().rstrip(",")
        if line[:1] in "[\"'" and line[:1]:
            line = re.sub(r"[\[\],]", " ", line)
        try:
            words += shlex.split(line, comments=False)
        except ValueError:
            words += line.split()
    return words


def _flags(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        if not _FLAG.match(word) or (not word.startswith("--") and len(word) > 4):
            continue
        name, equals, value = word.partition("=")
        if equals:
            found[_plain(name)] = value
        elif at + 1 < len(words) and not words[at + 1].startswith("-"):
            found[_plain(name)] = words[at + 1]
        else:
            found[_plain(name)] = "true"
    return found
