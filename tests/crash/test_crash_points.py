"""Whatever dies at whatever point, the host is as it was or as the plan says, and the record tells which."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from world import (
    AFTER,
    BEFORE,
    KEYS,
    STEP,
    each_crash,
    knobs,
    make,
    no_guard,
    record,
    restore,
    touched_without_intent,
    unrecorded,
    values,
)

from uncork.apply import guard, hold, persist, transaction
from uncork.apply.recover import recover
from uncork.apply.rollback import rollback
from uncork.errors import BadValue
from uncork.knobs.files import Sysctl
from uncork.plan.store import Store, find


def apply(folder: Path) -> None:
    with Store(folder / "state") as store:
        step = find(store.read(), STEP)
        transaction.apply_step(store, step, knobs=knobs(folder), guard=no_guard, hold_s=3600)


def put_in_order(folder: Path) -> None:
    with Store(folder / "state") as store:
        recover(store, guard=no_guard, is_armed=lambda name: True)


def roll_back(folder: Path) -> None:
    with Store(folder / "state") as store:
        rollback(store)


def confirm(folder: Path) -> None:
    with Store(folder / "state") as store:
        hold.confirm_all(store, store.read())


def damage(folder: Path) -> list[str]:
    """What is wrong with a world after recovery; empty where the promise holds."""
    says, chain = record(folder)
    now = values(folder)
    expected = {
        "pending": BEFORE,
        "reverted undone": BEFORE,
        "completed open": AFTER,
        "completed confirmed": AFTER,
    }.get(says)
    wrong = [f"chain: {line}" for line in chain]
    if now != expected:
        wrong.append(f"the record says {says!r}, the host has {now}")
    return wrong


@pytest.fixture(scope="module")
def place():
    """A folder in memory where there is one: these tests kill processes and do not test the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def live(place):
    return place / "live"


@pytest.fixture(scope="module")
def approved(live, place):
    return shutil.copytree(make(live), place / "approved")


@pytest.fixture(scope="module")
def applied(approved, live, place):
    apply(restore(approved, live))
    assert values(live) == AFTER
    return shutil.copytree(live, place / "applied")


def test_apply_killed_at_each_point_is_put_in_order(approved, live):
    points, wrong, ends = 0, [], set()
    for n in each_crash(approved, live, apply):
        points += 1
        assert all(now in pair for now, *pair in zip(values(live), BEFORE, AFTER, strict=True))
        wrong += [(n, "not in the journal", name) for name in unrecorded(live)]
        wrong += [(n, "written without intent", name) for name in touched_without_intent(live, approved)]
        put_in_order(live)
        wrong += [(n, line) for line in damage(live)]
        ends.add(record(live)[0])

    assert wrong == []
    assert points > 30
    assert ends == {"pending", "reverted undone", "completed open"}


def test_undo_killed_at_each_point_is_finished(applied, live):
    points, wrong = 0, []
    for n in each_crash(applied, live, roll_back):
        points += 1
        assert all(now in pair for now, *pair in zip(values(live), BEFORE, AFTER, strict=True))
        put_in_order(live)
        wrong += [(n, line) for line in damage(live)]

    assert wrong == []
    assert points > 15


def test_rollback_finishes_what_a_killed_rollback_began(applied, live):
    wrong = []
    for n in each_crash(applied, live, roll_back):
        roll_back(live)
        wrong += [(n, line) for line in damage(live)] + [(n, v) for v in [values(live)] if v != BEFORE]

    assert wrong == []


def test_confirm_killed_at_each_point_is_open_or_confirmed(applied, live):
    ends = set()
    for _ in each_crash(applied, live, confirm):
        put_in_order(live)
        assert damage(live) == []
        ends.add(record(live)[0])

    assert ends == {"completed open", "completed confirmed"}


@pytest.mark.parametrize(
    ("cut", "every"),
    [
        ("written", False),
        ("undoing", False),
        pytest.param("written", True, marks=pytest.mark.slow),
        pytest.param("undoing", True, marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(600)
def test_recovery_killed_at_each_point_is_finished_by_the_next(approved, applied, live, place, cut, every):
    """Recovery of a group that was being written, and of an undo that was cut short.

    By default one first crash for each half-way state of the host; slow: each first crash.
    """
    original, act = (approved, apply) if cut == "written" else (applied, roll_back)
    halves = [AFTER[:n] + BEFORE[n:] for n in range(1, len(AFTER))]
    points, wrong, seen = 0, [], []
    for first in each_crash(original, live, act):
        if values(live) not in halves or (values(live) in seen and not every):
            continue
        seen.append(values(live))
        half = shutil.copytree(live, place / f"{cut}-{every}-{first}")
        for n in each_crash(half, live, put_in_order):
            points += 1
            put_in_order(live)
            wrong += [(first, n, line) for line in damage(live)]
            assert values(live) == BEFORE

    assert wrong == []
    assert len(seen) >= len(halves)
    assert points > 40


def write_before_intent(self, hold_s):
    """The engine with its two stages the wrong way round."""
    self._preflight()
    targets = self._write_all()
    deadline_ns = self._declare(hold_s)
    self._close(targets)
    return transaction.Applied(self.txn, deadline_ns, tuple(targets))


def test_an_engine_that_writes_before_the_intent_is_caught(approved, live, monkeypatch):
    monkeypatch.setattr(transaction._Group, "run", write_before_intent)
    unknown, wrong = 0, 0
    for _ in each_crash(approved, live, apply):
        unknown += bool(unrecorded(live))
        put_in_order(live)
        wrong += bool(damage(live))

    assert unknown > 0
    assert wrong > 0


FILES = {
    "/etc/sysctl.d/99-uncork.conf": "vm.swappiness = 1\n",
    "/etc/tmpfiles.d/uncork.conf": "w /x - - - - 1\n",
}


def persist_files(folder: Path) -> None:
    with Store(folder / "state") as store:
        persist.write(store, FILES, root=str(folder / "root"))


def unpersist_files(folder: Path) -> None:
    with Store(folder / "state") as store:
        persist.undo(store, root=str(folder / "root"))


def boot_files_of(folder: Path) -> list[str | None]:
    paths = [folder / "root" / path.lstrip("/") for path in FILES]
    return [path.read_text(encoding="utf-8") if path.exists() else None for path in paths]


@pytest.mark.parametrize("act", [persist_files, unpersist_files])
def test_persist_killed_at_each_point_leaves_whole_files_that_undo_takes_away(approved, live, place, act):
    restore(approved, live)
    if act is unpersist_files:
        persist_files(live)
    saved = shutil.copytree(live, place / act.__name__)
    points = 0
    for _ in each_crash(saved, live, act):
        points += 1
        assert all(now in (None, text) for now, text in zip(boot_files_of(live), FILES.values(), strict=True))
        unpersist_files(live)
        assert boot_files_of(live) == [None, None]
        assert record(live)[1] == []

    assert points > 15


class Refusing(Sysctl):
    """The kernel's sysctls, of which the last refuses its value."""

    def write(self, target, value):
        if target == KEYS[-1][0]:
            raise OSError(errno.EINVAL, "Invalid argument", target)
        super().write(target, value)


def apply_with(kernel: type[Sysctl], folder: Path) -> None:
    """Apply the group where the kernel's sysctls behave as `kernel` does."""
    with Store(folder / "state") as store:
        knobs = {"sysctl": kernel(str(folder / "root"))}
        transaction.apply_step(store, find(store.read(), STEP), knobs=knobs, guard=no_guard, hold_s=3600)


def apply_refused(folder: Path) -> None:
    with contextlib.suppress(BadValue):
        apply_with(Refusing, folder)


def test_a_group_that_fails_killed_at_each_point_ends_as_before(approved, live):
    """The undo inside an apply: its last target is refused, so the first two are put back."""
    points, wrong, ends = 0, [], set()
    for n in each_crash(approved, live, apply_refused):
        points += 1
        wrong += [(n, "not in the journal", name) for name in unrecorded(live)]
        put_in_order(live)
        says, chain = record(live)
        ends.add(says)
        wrong += [(n, line) for line in chain]
        if values(live) != BEFORE:
            wrong.append((n, values(live)))

    assert wrong == []
    assert points > 40
    assert ends == {"pending", "reverted undone", "failed undone"}


class Clamping(Sysctl):
    """The kernel's sysctls, of which the last takes another value than it was told."""

    def write(self, target, value):
        super().write(target, CLAMPED if target == KEYS[-1][0] else value)


CLAMPED = "4096 131072 16777216"


def drifted(folder: Path) -> list[str]:
    with Store(folder / "state") as store:
        rows = store.db.execute("SELECT body FROM journal WHERE kind = 'drift'").fetchall()
    return [json.loads(row["body"])["now"] for row in rows]


def apply_clamped(folder: Path) -> None:
    apply_with(Clamping, folder)


def test_a_best_effort_group_killed_at_each_point_keeps_all_that_the_record_says_or_nothing(place):
    """Its last target takes another value: that one is put back, the first two stay, and nothing else is left.

    Killed before it has read that value back, nobody knows whose it is: it is left alone, and the record says so.
    """
    live = place / "best-effort"
    approved = shutil.copytree(make(live, "best_effort"), place / "best-effort-approved")
    points, wrong, ends = 0, [], set()
    for n in each_crash(approved, live, apply_clamped):
        points += 1
        wrong += [(n, "not in the journal", name) for name in unrecorded(live)]
        put_in_order(live)
        says, chain = record(live)
        ends.add(says)
        wrong += [(n, line) for line in chain]
        expected = [*AFTER[:-1], BEFORE[-1]] if says == "completed open" else BEFORE
        if values(live) not in (expected, [*expected[:-1], *drifted(live)]):
            wrong.append((n, says, values(live)))

    assert wrong == []
    assert points > 35
    assert ends == {"pending", "reverted undone", "completed open"}


def test_the_copy_of_the_undo_is_whole_or_not_there(live, approved):
    """Killed at each point of its installation; the next one installs it, and it runs."""

    def install(folder: Path) -> None:
        guard.program(folder / "state")

    points = 0
    for _ in each_crash(approved, live, install):
        points += 1
        installed = list((live / "state/revert").glob("*[0-9a-f]/revert.py"))
        program = guard.program(live / "state")
        assert installed in ([], [program])
        assert len(list(program.parent.rglob("*.py"))) > 10
    done = subprocess.run(
        [guard.interpreter(), "-I", "-S", program, "--help"], capture_output=True, check=False
    )

    assert done.returncode == 0
    assert points > 5
