"""When two values mean the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork.knobs.recipes import compare
from uncork.knobs.recipes.files import canonical


@given(st.sets(st.integers(0, 511)))
def test_a_cpu_list_names_the_set_that_it_was_made_of(cpus):
    assert compare.cpu_set(compare.cpu_list(cpus)) == cpus


@given(st.lists(st.integers(0, 2**63), min_size=1, max_size=4))
def test_spacing_and_leading_zeros_say_nothing(numbers):
    want = " ".join(map(str, numbers))

    assert compare.words(want, canonical("\t".join(f"{number:025d}" for number in numbers) + "\n"))


@given(st.sampled_from(sorted(compare.RULES)), st.text("0123456789 ,-=:xabcdef", max_size=20))
def test_every_value_is_the_same_as_itself(rule, value):
    assert compare.RULES[rule](value, value)


@pytest.mark.parametrize(
    ("rule", "want", "got"),
    [
        ("words", "0x10", "16"),
        ("pair", "0", "vm.dirty_ratio=20"),
        ("start", "max", "max 100000"),
        ("governor", "powersave", "powersave epp=power"),
        ("limits", "unlimited", "unlimited:unlimited"),
        ("cpus", "3,1-2", "1-3"),
        ("pages", "1", "4096"),
    ],
)
def test_two_spellings_of_one_value(rule, want, got):
    assert compare.RULES[rule](want, got)


@pytest.mark.parametrize(
    ("rule", "want", "got"),
    [
        ("words", "1", "10"),
        ("words", "1 2", "1"),
        ("pair", "1", "vm.dirty_ratio=1"),
        ("start", "max 50000", "max 100000"),
        ("governor", "powersave epp=power", "powersave epp=performance"),
        ("limits", "64:128", "64:256"),
        ("cpus", "1-3", "1-4"),
        ("cpus", "1-", "1"),
        ("pages", "4096", "0"),
    ],
)
def test_two_values(rule, want, got):
    assert not compare.RULES[rule](want, got)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[always] madvise never\n", "always"),
        ("4096\t131072\t6291456\n", "4096 131072 6291456"),
        ("none [mq-deadline] kyber\n", "mq-deadline"),
        ("plain\n", "plain"),
        ("[a] [b]\n", "[a] [b]"),
        ("\n", ""),
    ],
)
def test_one_line_or_the_chosen_word(text, value):
    assert canonical(text) == value
