"""Prompts of exact length: which words are one token here, and what the chat template adds."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from uncork.bench.endpoint import Endpoint, ask
from uncork.bench.spec import SuiteSpec
from uncork.errors import BadInput, MissingExtra

# Short, common words: with a leading space each is one token in most vocabularies. Those that are not, here,
# are dropped where the server or a tokenizer can say so.
_TEXT = """
the of and to in is that for it as was with be by on not he his but at are this have from or had an they
which one you were all her she there would their we him been has when who will no more if out so up said
what its about than into them can only other time new some could these two may first then do any like my
now over such our man me even most made after also did many off before must well back through years much
where your way down should because long each just state those people too mr how little good world make
very year still see own work men day get here old life both between being under three never know same
last another while us might great go come since against right came take used himself few house use place
during high without again home around small however found part school big line set water left
"""
WORDS = tuple(_TEXT.split())

Count = Callable[[str], int]  # tokens of a user message as the server will count its prompt


class Lengths(msgspec.Struct, frozen=True):
    """How words become tokens on this server: tokens = overhead + words x per_word."""

    words: tuple[str, ...] = WORDS
    overhead: float = 0.0
    per_word: float = 1.0
    source: str = "assumed: one token a word"

    def count(self, tokens: int) -> int:
        """The number of words that comes closest to that many tokens."""
        return max(1, round((tokens - self.overhead) / self.per_word))


def measure_lengths(
    endpoint: Endpoint, spec: SuiteSpec, model: str, api: str, ask_usage: Callable[[str], int | None]
) -> Lengths:
    """Find out, best source first: the server's /tokenize, a local tokenizer, the usage of two requests.

    `ask_usage(text)` sends one request for one token and gives the prompt tokens of its usage record.
    Raises `BadInput` (a tokenizer file that cannot be read), `MissingExtra`.
    """
    server = server_counter(endpoint, spec, model, api)
    if server is not None:
        words = single_words(server)
        if len(words) >= 32:
            return calibrate(server, words, "exact: the server's /tokenize")
        return calibrate(server, WORDS, "close: the server's /tokenize, words of several tokens")
    if spec.workload.tokenizer:
        local = local_counter(Path(spec.workload.tokenizer))
        words = single_words(local)
        usage = calibrate_on_usage(ask_usage, words or WORDS)
        return msgspec.structs.replace(usage, source=f"a local tokenizer, template by {usage.source}")
    return calibrate_on_usage(ask_usage, WORDS)


def single_words(count: Count) -> tuple[str, ...]:
    """Those words that add exactly one token behind another word."""
    whole = count(" ".join(WORDS)) - count(WORDS[0])
    if whole == len(WORDS) - 1:
        return WORDS
    base = count("the")
    return tuple(word for word in WORDS if count(f"the {word}") == base + 1)


def calibrate(count: Count, words: tuple[str, ...], source: str) -> Lengths:
    """Fit overhead and tokens per word to two texts of random words."""
    chance = random.Random("uncork-calibration")
    short, long = (" ".join(chance.choices(words, k=k)) for k in (32, 160))
    few, many = count(short), count(long)
    per_word = (many - few) / 128
    if per_word <= 0:
        return Lengths(words=words)
    return Lengths(words, few - 32 * per_word, per_word, source)


def calibrate_on_usage(ask_usage: Callable[[str], int | None], words: tuple[str, ...]) -> Lengths:
    """Fit to the usage records of two requests; the assumption of one token a word where there are none."""
    seen: list[int | None] = []

    def count(text: str) -> int:
        seen.append(ask_usage(text))
        return seen[-1] or 0

    found = calibrate(count, words, "usage of two requests")
    return found if all(seen) else Lengths(words=words)


def server_counter(endpoint: Endpoint, spec: SuiteSpec, model: str, api: str) -> Count | None:
    """Count by the server's own /tokenize (vLLM and sglang, then llama.cpp); None where it has none.

    A chat prompt is counted with its template: vLLM takes messages, llama.cpp renders them first.
    """

    def post(path: str, body: Any) -> Any:
        status, answer = ask(endpoint, path, body, headers=spec.headers, insecure=spec.insecure)
        return answer if status == 200 and isinstance(answer, dict) else None

    def vllm(text: str) -> int | None:
        asked = {"messages": [{"role": "user", "content": text}]} if api == "chat" else {"prompt": text}
        answer = post("/tokenize", {"model": model, **asked})
        return answer.get("count") if answer else None

    def llama_cpp(text: str) -> int | None:
        if api == "chat":
            rendered = post("/apply-template", {"messages": [{"role": "user", "content": text}]})
            if rendered is None or not isinstance(rendered.get("prompt"), str):
                return None
            text = rendered["prompt"]
        answer = post("/tokenize", {"content": text, "add_special": True, "parse_special": True})
        return len(answer["tokens"]) if answer and isinstance(answer.get("tokens"), list) else None

    for way in (vllm, llama_cpp):
        try:
            if way("the quick brown fox"):
                return lambda text, way=way: way(text) or 0  # type: ignore[misc]
        except OSError:
            return None
    return None


def local_counter(path: Path) -> Count:
    """Count with the `tokenizers` library and a tokenizer.json. Raises `BadInput`, `MissingExtra`."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra(
            "Exact prompt lengths from a file need the package tokenizers; nothing was sent.",
            next="pip install 'uncork[tokens]'",
        ) from error
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise BadInput(f"{path} is not a tokenizer.json ({error}); nothing was sent.") from error
    return lambda text: len(tokenizer.encode(text).ids)
