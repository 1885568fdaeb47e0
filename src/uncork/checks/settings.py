"""Simple settings as rows of a table: what is read, the rule, and the write that would cure it.

    declare_setting(
        "kernel",
        Setting("kernel.zone-reclaim", "vm.zone_reclaim_mode", exactly("0"), P2, doc='''…''', unless=one_node),
    )

A key that this kernel lacks is *not applicable*; one that cannot be read is *unknown*; folklore is reported and
carries no change.
"""

import re
from collections.abc import Callable, Iterator

import msgspec

from uncork.checks import RUNTIME, Verdict, declare, fails, not_applicable, passes
from uncork.checks.hosts import known
from uncork.model.facts import Facts
from uncork.model.findings import Change, ChangeClass, Evidence, Priority
from uncork.model.unknown import Unknown, UnknownValue, is_unknown


class Rule(msgspec.Struct, frozen=True):
    """What a value must be: `holds` judges it, `says` words it, `want(now)` is what would be written."""

    says: str
    holds: Callable[[str], bool]
    want: Callable[[str], str]


def _number(text: str) -> int:
    return int(text, 0) if text[:2].lower() == "0x" else int(text)


def exactly(word: str) -> Rule:
    """The value is this word or number."""
    return Rule(word, lambda now: now == word, lambda now: word)


def at_least(number: int) -> Rule:
    """The value is a number not below this one; a higher one is somebody's wish and stays."""
    return Rule(f"at least {number}", lambda now: _number(now) >= number, lambda now: str(number))


def at_most(number: int) -> Rule:
    """The value is a number not above this one."""
    return Rule(f"at most {number}", lambda now: _number(now) <= number, lambda now: str(number))


def one_of(*words: str) -> Rule:
    """The value is one of these; the first is what would be written."""
    return Rule(" or ".join(words), lambda now: now in words, lambda now: words[0])


def none_of(*words: str, want: str) -> Rule:
    """The value is anything but these."""
    return Rule(f"not {' or '.join(words)}", lambda now: now not in words, lambda now: want)


def last_at_least(number: int) -> Rule:
    """The last of several numbers (the maximum of tcp_rmem) is not below this one; the others stay."""
    return Rule(
        f"a maximum of at least {number}",
        lambda now: int(now.split()[-1]) >= number,
        lambda now: " ".join([*now.split()[:-1], str(number)]),
    )


def holds(rule: Rule, now: str, where: str) -> bool:
    """Whether a value keeps a rule; raises UnknownValue for a text that is no value of that kind."""
    try:
        return rule.holds(now)
    except (ValueError, IndexError):
        raise UnknownValue(f"{where} holds no value of its kind: {now[:40]!r}") from None


def always(facts: Facts) -> str:
    """The setting applies on every host."""
    return ""


def sysctl_of(key: str) -> Callable[[Facts], str | Unknown]:
    """Reads a key from the facts of the kernel or of the network."""
    if key.startswith("net."):
        return lambda facts: facts.network.sysctls[key]
    return lambda facts: facts.kernel.sysctls[key]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `unless` gives the reason why it does not apply, or an empty text."""

    id: str
    target: str  # a sysctl key, or a path of sysfs
    rule: Rule
    priority: Priority
    doc: str
    unless: Callable[[Facts], str] = always
    read: Callable[[Facts], str | Unknown] | None = None  # None: the sysctl named by `target`
    knob: str = "sysctl"
    change_class: ChangeClass = RUNTIME
    planned: bool = True  # False: folklore, or a policy that its owner decides
    right: str = ""  # what a pass says; the value where it is empty


def declare_setting(dimension: str, row: Setting) -> None:
    """Enter a row into the catalogue of checks."""
    declare(
        row.id, row.priority, row.change_class, dimension, row.doc, lambda facts: judge_setting(row, facts)
    )


def judge_setting(row: Setting, facts: Facts) -> Iterator[Verdict]:
    """The verdict on one row."""
    reason = row.unless(facts)
    if reason:
        yield not_applicable(reason)
        return
    value = (row.read or sysctl_of(row.target))(facts)
    if is_unknown(value) and value.absent:
        yield not_applicable(f"this kernel has no {row.target}")
        return
    now = re.sub(r"\s+", " ", known(value)).strip()
    evidence = (Evidence(source_of(row), now),)
    if holds(row.rule, now, row.target):
        yield passes(row.right or f"{row.target} is {now}", evidence=evidence)
        return
    change = Change(row.knob, row.target, row.rule.want(now), before=now) if row.planned else None
    yield fails(f"{row.target} is {now}, not {row.rule.says}", evidence=evidence, change=change)


def source_of(row: Setting) -> str:
    """The path that a row reads."""
    return row.target if row.target.startswith("/") else "/proc/sys/" + row.target.replace(".", "/")
