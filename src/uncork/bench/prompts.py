"""Random prompts of known length."""

import random
from collections.abc import Iterator

import msgspec

from uncork.bench.api import Api, Options
from uncork.bench.loop import Job
from uncork.bench.workload import Prompt

# Short, common words: with a leading space each is one token in the BPE and Unigram vocabularies of the
# models people serve. What the server counted stands beside what was aimed at.
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


class Lengths(msgspec.Struct, frozen=True):
    """How many words give how many tokens on this server: tokens = overhead + words x per_word."""

    overhead: float = 0.0
    per_word: float = 1.0
    source: str = "assumed"

    def words(self, tokens: int) -> int:
        """The number of words that comes closest to that many tokens."""
        return max(1, round((tokens - self.overhead) / self.per_word))


def random_prompts(
    seed: int, input_len: int, output_len: int, lengths: Lengths, *, spread: float = 0.0
) -> Iterator[Prompt]:
    """Prompts without end. Each begins with words drawn for it alone, so no prefix cache serves it.

    The rest is a slice of one long random text per seed: cheap to make, and as hard to predict.
    """
    chance = random.Random(f"uncork-prompts-{seed}")
    text = chance.choices(WORDS, k=max(4096, 2 * lengths.words(int(input_len * (1 + spread)))))
    while True:
        share = 1 + (chance.uniform(-spread, spread) if spread else 0.0)
        asked = max(1, round(input_len * share))
        answer = max(1, round(output_len * share)) if spread else output_len
        count = lengths.words(asked)
        own = chance.choices(WORDS, k=min(count, 12))
        rest = count - len(own)
        at = chance.randrange(len(text) - rest)
        yield Prompt(" ".join(own + text[at : at + rest]), asked, answer)


def jobs(prompts: Iterator[Prompt], count: int, api: Api, options: Options) -> Iterator[Job]:
    """Prompts as numbered request bodies."""
    encode = msgspec.json.Encoder().encode
    for index in range(count):
        prompt = next(prompts, None)
        if prompt is None:
            return
        body = encode(api.body(prompt, prompt.output_len, options))
        yield index, body, prompt.input_len, prompt.output_len
