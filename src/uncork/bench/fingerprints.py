"""What must be equal for two runs to be compared: which entries differ, and which nobody could read."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from uncork.model.bench import BenchRun
from uncork.model.unknown import Unknown

ABSENT = "(absent)"
NOTES = "notes"  # how the host was at the start: told, and not part of what must be equal


class Differing(msgspec.Struct, frozen=True):
    """An entry that is not the same in both runs; `was` and `now` are for reading."""

    name: str
    was: str
    now: str


def entry(value: object) -> Any:
    """A fact as a fingerprint stores it: text, or {"unknown": why}. What a host lacks is known to be absent."""
    if isinstance(value, Unknown):
        return ABSENT if value.absent else {"unknown": value.reason}
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value).strip()


def identity(run: BenchRun) -> dict[str, Any]:
    """All that two runs must have in common, by name."""
    checks = [level.client for level in run.levels]
    own = {
        "metrics": str(run.metrics),
        "model": run.model,
        "workload": run.workload_hash,
        "client version": run.version,
        "stamps": " ".join(sorted({check.stamp_source for check in checks})),
        "reads": " ".join(sorted({check.reads for check in checks})),
    }
    return own | {name: value for name, value in run.fingerprint.items() if name != NOTES}


def differing(before: BenchRun, after: BenchRun) -> list[Differing]:
    """The entries that are not the same; what was read in one run only is among them."""
    old, new = identity(before), identity(after)
    pairs = ((name, old.get(name, ABSENT), new.get(name, ABSENT)) for name in sorted(old.keys() | new.keys()))
    return [
        Differing(name, shown(was), shown(now))
        for name, was, now in pairs
        if is_known(was) != is_known(now) or (is_known(was) and was != now)
    ]


def unknown_in_both(before: BenchRun, after: BenchRun) -> list[str]:
    """The entries that neither run could read, so that nobody can say whether they are equal."""
    old, new = identity(before), identity(after)
    return sorted(
        name for name in old.keys() & new.keys() if not is_known(old[name]) and not is_known(new[name])
    )


def under_test(name: str, tested: Iterable[str]) -> bool:
    """Whether the change under test may alter this entry: it is named, or a pattern such as `nvml:*` covers it."""
    return any(fnmatchcase(name, pattern) for pattern in tested)


def is_known(value: object) -> bool:
    """Whether an entry holds a value; texts of older runs say `unknown (why)`."""
    return not isinstance(value, Mapping) and not str(value).startswith("unknown (")


def shown(value: object) -> str:
    """An entry for reading."""
    return f"unknown ({value.get('unknown', '')})" if isinstance(value, Mapping) else str(value)


def rows(fingerprint: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every entry for reading, the notes of the start last."""
    entries = [(name, shown(value)) for name, value in sorted(fingerprint.items()) if name != NOTES]
    return entries + [
        (f"at the start: {name}", shown(value)) for name, value in fingerprint.get(NOTES, {}).items()
    ]
