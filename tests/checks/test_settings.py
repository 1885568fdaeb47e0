"""Rules of simple settings: what holds, what would be written, and when a row does not apply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hosts import DictHost, with_base

from uncork.checks import P2, Verdict
from uncork.checks.settings import (
    Rule,
    Setting,
    at_least,
    at_most,
    exactly,
    judge_setting,
    last_at_least,
    none_of,
    one_of,
)
from uncork.explorers import explore
from uncork.model.findings import Answer, Change
from uncork.model.unknown import Unknown, UnknownValue


@pytest.mark.parametrize(
    ("rule", "good", "bad", "want"),
    [
        (exactly("0"), "0", "1", "0"),
        (at_least(16), "32", "8", "16"),
        (at_least(16), "0x10", "0xf", "16"),
        (at_most(10), "1", "60", "10"),
        (one_of("none", "kyber"), "kyber", "bfq", "none"),
        (none_of("never", want="madvise"), "always", "never", "madvise"),
        (last_at_least(16), "4 8 16", "4 8 15", "4 8 16"),
    ],
)
def test_a_rule_knows_right_wrong_and_the_cure(rule: Rule, good: str, bad: str, want: str):
    assert (rule.holds(good), rule.holds(bad), rule.want(bad)) == (True, False, want)


@given(st.integers(0, 1 << 20), st.integers(0, 1 << 20))
def test_what_would_be_written_holds(now: int, bound: int):
    for rule in (
        at_least(bound),
        at_most(bound),
        exactly(str(bound)),
        last_at_least(bound),
    ):
        assert rule.holds(rule.want(str(now)))


DOC = """It is right.

Effect: none
Source: a test
"""
FACTS = explore(DictHost(**with_base({"base": "metal"}))).facts


def verdict(value: str | Unknown, **more: object) -> Verdict:
    row = Setting(
        id="x.y", target="vm.x", rule=at_least(5), priority=P2, doc=DOC, read=lambda facts: value, **more
    )
    (found,) = judge_setting(row, FACTS)
    return found


def test_a_wrong_value_carries_its_change_with_what_was_there():
    assert verdict("3").changes == (Change("sysctl", "vm.x", "5", before="3"),)


def test_white_space_is_made_plain_before_it_is_compared():
    assert verdict(" 7\n").answer is Answer.PASS


def test_a_key_that_the_kernel_lacks_does_not_apply():
    assert verdict(Unknown("no such file", absent=True)).answer is Answer.NOT_APPLICABLE


def test_a_key_that_cannot_be_read_is_unknown():
    with pytest.raises(UnknownValue, match="denied"):
        verdict(Unknown("permission denied"))


def test_a_reason_speaks_before_the_value():
    assert verdict("3", unless=lambda facts: "not here").says == "not here"


def test_folklore_has_no_change():
    assert verdict("3", planned=False).changes == ()
