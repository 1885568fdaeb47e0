"""The prompts of a level, made from its seed."""

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

from uncork.bench.api import Api, Options
from uncork.bench.datasets import read_prompts
from uncork.bench.lengths import Lengths
from uncork.bench.sending import Job
from uncork.bench.spec import Workload
from uncork.bench.workload import Prompt


def level_prompts(
    workload: Workload, seed: int, input_len: int, output_len: int, lengths: Lengths, concurrency: int
) -> Iterator[Prompt]:
    """Prompts of that workload; without end, but for a trace. Raises `BadInput` on a file that has none."""
    if workload.kind == "random":
        return random_prompts(seed, input_len, output_len, lengths, spread=workload.spread)
    if workload.kind == "shared-prefix":
        return shared_prefix_prompts(seed, workload, input_len, output_len, lengths)
    if workload.kind == "multi-turn":
        return conversations(seed, workload, input_len, output_len, lengths, concurrency)
    found = read_prompts(workload.kind, Path(workload.path), output_len, lengths)
    if workload.kind == "trace":
        return iter(found)
    return salted(seed, found)


def random_prompts(
    seed: int, input_len: int, output_len: int, lengths: Lengths, *, spread: float = 0.0
) -> Iterator[Prompt]:
    """Prompts without end. Each begins with words drawn for it alone, so no prefix cache serves it.

    The rest is a slice of one long random text per seed: cheap to make, and as hard to predict.
    """
    chance = random.Random(f"uncork-prompts-{seed}")
    text = chance.choices(lengths.words, k=max(4096, 2 * lengths.count(int(input_len * (1 + spread)))))
    while True:
        share = 1 + (chance.uniform(-spread, spread) if spread else 0.0)
        asked = max(1, round(input_len * share))
        answer = max(1, round(output_len * share)) if spread else output_len
        yield Prompt(_text(chance, text, lengths.count(asked), lengths), asked, answer)


def _text(chance: random.Random, text: list[str], count: int, lengths: Lengths) -> str:
    own = chance.choices(lengths.words, k=min(count, 12))
    rest = count - len(own)
    at = chance.randrange(len(text) - rest)
    return " ".join(own + text[at : at + rest])


def shared_prefix_prompts(
    seed: int, workload: Workload, input_len: int, output_len: int, lengths: Lengths
) -> Iterator[Prompt]:
    """Prompts that begin with one of `groups` texts of `prefix_len` tokens, chosen at random."""
    chance = random.Random(f"uncork-shared-{seed}")
    shared = min(workload.prefix_len or input_len // 2, input_len - 1)
    count = lengths.count(input_len)
    common = min(round(shared / lengths.per_word), count - 1)
    prefixes = [" ".join(chance.choices(lengths.words, k=common)) for _ in range(max(1, workload.groups))]
    while True:
        own = " ".join(chance.choices(lengths.words, k=count - common))
        yield Prompt(f"{chance.choice(prefixes)} {own}", input_len, output_len)


def conversations(
    seed: int, workload: Workload, input_len: int, output_len: int, lengths: Lengths, concurrency: int
) -> Iterator[Prompt]:
    """Conversations of `turns` turns with scripted answers, so that every run sends the same.

    `concurrency` conversations advance together: by the time a second turn is sent, the first was answered.
    Each turn adds `input_len` tokens; what the earlier turns hold comes on top.
    """
    chance = random.Random(f"uncork-turns-{seed}")
    ask, answer = max(1, round(input_len / lengths.per_word)), max(1, round(output_len / lengths.per_word))
    while True:
        histories: list[tuple[dict[str, str], ...]] = [()] * max(1, concurrency)
        for turn in range(max(1, workload.turns)):
            for which, history in enumerate(histories):
                text = " ".join(chance.choices(lengths.words, k=ask))
                yield Prompt(text, input_len + turn * (input_len + output_len), output_len, history)
                said = " ".join(chance.choices(lengths.words, k=answer))
                histories[which] = (
                    *history,
                    {"role": "user", "content": text},
                    {"role": "assistant", "content": said},
                )


def salted(seed: int, prompts: tuple[Prompt, ...]) -> Iterator[Prompt]:
    """A file's prompts in an order of the seed, round and round, each behind a short mark of its own.

    The mark keeps a prefix cache from serving the second repeat what the first one left there.
    """
    chance = random.Random(f"uncork-file-{seed}")
    while True:
        for prompt in chance.sample(prompts, len(prompts)):
            mark = f"[{chance.getrandbits(40):010x}]"
            if prompt.tokens:  # sent as they stand: no mark of words could be put before them
                yield prompt
            elif prompt.history:
                first = {**prompt.history[0], "content": f"{mark} {prompt.history[0]['content']}"}
                yield msgspec.structs.replace(prompt, history=(first, *prompt.history[1:]))
            else:
                yield msgspec.structs.replace(prompt, text=f"{mark} {prompt.text}")


def jobs(
    prompts: Iterator[Prompt], count: int, api: Api, options: Options, part: tuple[int, int] = (0, 1)
) -> Iterator[Job]:
    """Prompts as numbered request bodies; `part` (i, n) takes every n-th from the i-th on."""
    encode = msgspec.json.Encoder().encode
    for index in range(count):
        prompt = next(prompts, None)
        if prompt is None:
            return
        if index % part[1] == part[0]:
            body = encode(api.body(prompt, prompt.output_len, options))
            yield index, body, prompt.input_len, prompt.output_len
