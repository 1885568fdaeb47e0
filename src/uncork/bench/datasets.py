"""Prompts from files: ShareGPT conversations, JSONL of one's own, traces."""

import csv
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from uncork.bench.lengths import Lengths
from uncork.bench.workload import Prompt
from uncork.errors import BadInput

TRACE_BLOCK = 512  # tokens a hash id of a Mooncake trace stands for (its README)
WORDS_TO_TOKENS = 1.3  # English prose, where no tokenizer counted an answer; flagged by the usage record


def read_prompts(kind: str, path: Path, output_len: int, lengths: Lengths) -> tuple[Prompt, ...]:
    """The prompts of a file, in its order. Raises `BadInput` with the line that cannot be used."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read ({error}); nothing was sent.") from error
    if kind == "sharegpt":
        found = [prompt for item in _json(path, text) for prompt in sharegpt_prompts(item, output_len)]
    elif kind == "trace" and path.suffix == ".csv":
        found = azure_trace(path, text, lengths)
    else:
        make = trace_prompt if kind == "trace" else line_prompt
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    found.append(make(msgspec.json.decode(line), output_len, lengths))
                except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
                    raise BadInput(
                        f"{path}, line {number}: {error}; nothing was sent.",
                        next="docs/bench.md names the fields",
                    ) from error
    if not found:
        raise BadInput(f"{path} holds no prompt; nothing was sent.", next="docs/bench.md names the fields")
    return tuple(found)


def _json(path: Path, text: str) -> list[Any]:
    try:
        items = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(f"{path} is not JSON ({error}); nothing was sent.") from error
    return items if isinstance(items, list) else []


def sharegpt_prompts(item: Any, output_len: int) -> list[Prompt]:
    """One prompt for each answered human turn, the turns before it as history.

    `output_len` 0 asks for as many tokens as the file's answer has, by its words.
    """
    turns = item.get("conversations") if isinstance(item, dict) else None
    found: list[Prompt] = []
    history: list[dict[str, str]] = []
    pairs = turns if isinstance(turns, list) else []
    for asked, answered in zip(pairs[::2], pairs[1::2], strict=False):
        if asked.get("from") not in ("human", "user") or answered.get("from") not in ("gpt", "assistant"):
            break
        text, answer = str(asked.get("value", "")), str(answered.get("value", ""))
        words = len(text.split()) + sum(len(turn["content"].split()) for turn in history)
        length = output_len or max(1, round(len(answer.split()) * WORDS_TO_TOKENS))
        found.append(Prompt(text, round(words * WORDS_TO_TOKENS), length, tuple(history)))
        history += [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]
    return found


def line_prompt(item: Any, output_len: int, lengths: Lengths) -> Prompt:
    """`prompt` or `messages` or `tokens`; `output_len` and `input_len` optional."""
    length = int(item.get("output_len", output_len))
    if "tokens" in item:
        tokens = tuple(int(token) for token in item["tokens"])
        return Prompt("", len(tokens), length, (), tokens)
    if "messages" in item:
        turns = [{"role": str(turn["role"]), "content": str(turn["content"])} for turn in item["messages"]]
        words = sum(len(turn["content"].split()) for turn in turns)
        asked = int(item.get("input_len", round(words * WORDS_TO_TOKENS)))
        return Prompt(turns[-1]["content"], asked, length, tuple(turns[:-1]))
    text = str(item["prompt"])
    asked = int(item.get("input_len", round(len(text.split()) * WORDS_TO_TOKENS)))
    return Prompt(text, asked, length)


def trace_prompt(item: Any, output_len: int, lengths: Lengths) -> Prompt:
    """A line of a Mooncake trace: `timestamp` (ms), `input_length`, `output_length`, `hash_ids`.

    Equal hash ids become equal blocks of text: the trace's sharing of prefixes is kept.
    """
    asked, length = int(item["input_length"]), int(item.get("output_length", output_len))
    ids = [int(one) for one in item.get("hash_ids", ())]
    text = trace_text(ids, lengths.count(asked), lengths, fallback=float(item["timestamp"]))
    return Prompt(text, asked, max(1, length), at_s=float(item["timestamp"]) / 1000)


def trace_text(ids: list[int], count: int, lengths: Lengths, *, fallback: float) -> str:
    """`count` words, block by block from the hash ids; from the time where there are none."""
    block = max(1, round(TRACE_BLOCK / lengths.per_word))
    words: list[str] = []
    for one in ids or [round(fallback * 1000)]:
        if len(words) < count:
            chance = random.Random(f"uncork-block-{one}")
            size = block if ids else count
            words += chance.choices(lengths.words, k=size)
    if len(words) < count:
        words += random.Random(f"uncork-rest-{fallback}").choices(lengths.words, k=count - len(words))
    return " ".join(words[:count])


def azure_trace(path: Path, text: str, lengths: Lengths) -> list[Prompt]:
    """A CSV of the Azure LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens."""
    found = []
    start: float | None = None
    for number, row in enumerate(csv.DictReader(text.splitlines()), 2):
        try:
            at_s = datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            asked, length = int(row["ContextTokens"]), int(row["GeneratedTokens"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{path}, line {number}: {error}; nothing was sent.") from error
        start = at_s if start is None else start
        words = trace_text([], lengths.count(asked), lengths, fallback=number)
        found.append(Prompt(words, asked, max(1, length), at_s=at_s - start))
    return found
