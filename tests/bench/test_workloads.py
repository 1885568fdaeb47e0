"""Prompts: exact, from a seed, never served by what an earlier one left in a cache."""

from collections import Counter
from itertools import islice, pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork.bench.arrivals import arrival_times_ns
from uncork.bench.datasets import read_prompts
from uncork.bench.lengths import WORDS, Lengths, calibrate, calibrate_on_usage, single_words
from uncork.bench.level import seed_of
from uncork.bench.prompts import level_prompts, random_prompts
from uncork.bench.spec import Level, Workload
from uncork.errors import BadInput

LENGTHS = Lengths(overhead=7.0)


@given(st.integers(0, 2**48), st.integers(1, 3000), st.integers(1, 300))
def test_a_random_prompt_has_the_length_asked_for(seed, input_len, output_len):
    for prompt in islice(random_prompts(seed, input_len, output_len, LENGTHS), 3):
        assert len(prompt.text.split()) + 7 == max(input_len, 8)
        assert (prompt.input_len, prompt.output_len) == (input_len, output_len)


def test_no_two_prompts_begin_alike():
    seeds = [seed_of(0, Level(concurrency=c), repeat) for c in (1, 2, 4, 8) for repeat in range(3)]
    begins = Counter(
        " ".join(prompt.text.split()[:8])
        for seed in seeds
        for prompt in islice(random_prompts(seed, 64, 8, LENGTHS), 500)
    )

    assert len(begins) == 12 * 500


def test_a_seed_decides_everything():
    def of(seed):
        return list(islice(random_prompts(seed, 100, 10, LENGTHS, spread=0.2), 20))

    assert of(5) == of(5)
    assert of(5) != of(6)


@given(st.floats(0.01, 0.9))
def test_spread_lengths_stay_within_their_share(spread):
    prompts = list(islice(random_prompts(1, 200, 100, LENGTHS, spread=spread), 50))

    assert all(200 * (1 - spread) - 1 <= prompt.input_len <= 200 * (1 + spread) + 1 for prompt in prompts)
    assert all(100 * (1 - spread) - 1 <= prompt.output_len <= 100 * (1 + spread) + 1 for prompt in prompts)


def test_shared_prefixes_are_shared_within_their_groups():
    workload = Workload(kind="shared-prefix", prefix_len=60, groups=3)
    prompts = list(islice(level_prompts(workload, 1, 100, 8, LENGTHS, 4), 60))
    begins = Counter(" ".join(prompt.text.split()[:60]) for prompt in prompts)

    assert len(begins) == 3
    assert {len(prompt.text.split()) for prompt in prompts} == {93}
    assert len({prompt.text for prompt in prompts}) == 60


def test_a_turn_carries_the_turns_before_it():
    workload = Workload(kind="multi-turn", turns=3)
    prompts = list(islice(level_prompts(workload, 1, 10, 5, LENGTHS, 2), 6))

    assert [len(prompt.history) for prompt in prompts] == [0, 0, 2, 2, 4, 4]
    assert prompts[4].history[0]["content"] == prompts[0].text
    assert prompts[4].history[2]["content"] == prompts[2].text


def test_sharegpt(tmp_path):
    path = tmp_path / "share.json"
    turns = [
        {"from": "human", "value": "one two"},
        {"from": "gpt", "value": "three"},
        {"from": "human", "value": "four"},
        {"from": "gpt", "value": "five six seven"},
    ]
    path.write_bytes(msgspec.json.encode([{"conversations": turns}, {"conversations": []}, {"other": 1}]))
    found = read_prompts("sharegpt", path, 0, LENGTHS)

    assert [(prompt.text, len(prompt.history), prompt.output_len) for prompt in found] == [
        ("one two", 0, 1),
        ("four", 2, 4),
    ]


def test_a_file_of_one_s_own(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"prompt": "hello there", "output_len": 3}\n\n'
        '{"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]}\n'
        '{"tokens": [5, 6, 7]}\n',
        encoding="utf-8",
    )
    found = read_prompts("jsonl", path, 9, LENGTHS)

    assert [(p.text, p.output_len, len(p.history), p.tokens) for p in found] == [
        ("hello there", 3, 0, ()),
        ("hi", 9, 1, ()),
        ("", 9, 0, (5, 6, 7)),
    ]
    workload = Workload(kind="jsonl", path=str(path))
    one, two = (list(islice(level_prompts(workload, seed, 8, 9, LENGTHS, 1), 6)) for seed in (1, 2))
    begins = [
        {p.history[0]["content"] if p.history else p.text for p in some if not p.tokens}
        for some in (one, two)
    ]
    assert begins[0].isdisjoint(begins[1])


@pytest.mark.parametrize("text", ['{"question": 1}', "not json", "", "[1]"])
def test_a_file_without_prompts_is_named_with_its_line(tmp_path, text):
    path = tmp_path / "bad.jsonl"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(BadInput, match="nothing was sent"):
        read_prompts("jsonl", path, 1, LENGTHS)


def test_a_trace_keeps_its_times_lengths_and_shared_blocks(tmp_path):
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]},
        {"timestamp": 1500, "input_length": 1100, "output_length": 6, "hash_ids": [1, 2, 9]},
    ]
    path.write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    one, two = read_prompts("trace", path, 1, LENGTHS)
    shared = next(
        i for i, (a, b) in enumerate(zip(one.text.split(), two.text.split(), strict=True)) if a != b
    )

    assert (one.at_s, two.at_s, one.output_len, two.output_len) == (0.0, 1.5, 5, 6)
    assert len(one.text.split()) + 7 == 1100
    assert 1024 <= shared < 1040


def test_an_azure_trace(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
        encoding="utf-8",
    )
    found = read_prompts("trace", path, 1, LENGTHS)

    assert [(p.input_len, p.output_len, round(p.at_s, 3)) for p in found] == [
        (374, 44, 0.0),
        (396, 109, 4.315),
    ]


@pytest.mark.parametrize("arrival", ["constant", "poisson", "gamma"])
def test_arrivals_have_the_rate_asked_for(arrival):
    level = Level(rate_s=50.0, arrival=arrival, burstiness=0.5)
    times = arrival_times_ns(level, 20_000, 3)
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 / mean

    assert mean == pytest.approx(2e7, rel=0.05)
    assert spread == pytest.approx({"constant": 0.0, "poisson": 1.0, "gamma": 2**0.5}[arrival], abs=0.06)
    assert times == arrival_times_ns(level, 20_000, 3)


def test_a_trace_is_replayed_at_its_own_times():
    level = Level(arrival="trace", rate_s=2.0)

    assert arrival_times_ns(level, 3, 0, (10.0, 12.0, 11.0)) == (0, 500_000_000, 1_000_000_000)


def test_words_of_several_tokens_are_dropped():
    def count(text):
        return 3 + sum(2 if word in ("world", "people") else 1 for word in text.split())

    words = single_words(count)

    assert set(WORDS) - set(words) == {"world", "people"}
    assert calibrate(count, words, "x") == Lengths(words, 3.0, 1.0, "x")


def test_without_any_count_the_assumption_is_named():
    found = calibrate_on_usage(lambda text: None, WORDS)

    assert found.source.startswith("assumed")
    assert calibrate_on_usage(lambda text: 20 + 2 * len(text.split()), WORDS).per_word == 2.0


def test_a_local_tokenizer_counts(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    from uncork.bench.lengths import local_counter

    model = tokenizers.models.WordLevel({"the": 0, "of": 1, "[UNK]": 2}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))

    assert local_counter(tmp_path / "tokenizer.json")("the of the") == 3
    with pytest.raises(BadInput):
        local_counter(tmp_path / "none.json")
