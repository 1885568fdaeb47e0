"""Attribution: a balanced plan, every toggle an ordinary change with its way back, and what each group was worth."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from tests.loop.program import OVERCOMMIT, SMALL, uncork

from uncork.loop.attribute import with_toggles
from uncork.model.plan import Kind, PlanDraft, PlannedChange, StepDraft
from uncork.plan.build import chain

ONCE = [*SMALL[:-6], "--repeats", "1", *SMALL[-4:]]


def _group(name: str, *, before: str | None = "0", risk: str = "low") -> StepDraft:
    change = PlannedChange("sysctl", f"vm.{name}", "1", before, risk, "runtime")
    return StepDraft(f"apply-{name}", Kind.APPLY, f"Set {name}", changes=(change,))


def _draft(*groups: StepDraft) -> PlanDraft:
    return PlanDraft("host", chain(groups))


def test_every_group_is_toggled_once_a_round_in_an_order_of_the_seed():
    groups = [_group(name) for name in "abcdef"]
    names = [s.name for s in with_toggles(_draft(*groups), blocks=3, seed=1).steps]
    toggles = [name for name in names if name.startswith("attribute-")]
    rounds = [toggles[at : at + 6] for at in (0, 6, 12)]

    assert len(toggles) == 18
    for number, one in enumerate(rounds, 1):
        assert sorted(one) == [f"attribute-{number}-{group.name}" for group in groups]
    assert len({tuple(name.split("-", 2)[2] for name in one) for one in rounds}) > 1
    assert names == [s.name for s in with_toggles(_draft(*groups), blocks=3, seed=1).steps]
    assert names.index("compare") < names.index(toggles[0]) < names.index("attribute") < names.index("decide")


def test_a_toggle_writes_the_former_value_over_the_new_one():
    plan = with_toggles(_draft(_group("a")), blocks=2, seed=1)
    toggle = next(step for step in plan.steps if step.name == "attribute-1-apply-a")

    assert [(c.before, c.want) for c in toggle.changes] == [("1", "0")]
    assert {need.step for need in toggle.needs} == {"confirm", "apply-a"}


def test_what_may_cut_off_the_host_or_has_no_way_back_is_not_toggled():
    draft = _draft(_group("a", risk="high"), _group("b", before=None))

    assert with_toggles(draft, blocks=2, seed=1) == draft
    assert with_toggles(_draft(_group("a")), blocks=0, seed=1) == _draft(_group("a"))


def _now() -> str:
    return OVERCOMMIT.read_text(encoding="ascii").strip()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("host")
def test_a_setting_that_does_nothing_for_the_server_is_not_said_to(tmp_path, strict_overcommit, endpoint):
    done = uncork(
        tmp_path, "run", "--yes", "--json", "--attribute", "--blocks", "2", "--endpoint", endpoint, *ONCE
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["attribution"]
    # A level that the client could not keep up with does not count: on a busy machine a block may be missing.
    assert all(one["blocks"] <= 2 for one in found["worth"])
    assert found["notes"] or {one["blocks"] for one in found["worth"]} == {2}
    assert _now() != strict_overcommit  # set again
    with sqlite3.connect(tmp_path / "state.db") as db:
        toggles = db.execute("SELECT status FROM step WHERE name LIKE 'attribute-%'").fetchall()
        held = dict(db.execute("SELECT state, COUNT(*) FROM hold GROUP BY state").fetchall())
        used = db.execute("SELECT COUNT(*) FROM approval_step WHERE used_attempt = 1").fetchone()[0]
        assert db.execute("SELECT COUNT(*) FROM approval").fetchone()[0] == 1
    groups = held["confirmed"]
    assert [row[0] for row in toggles] == ["reverted"] * 2 * groups
    assert held == {"confirmed": groups, "undone": 2 * groups}
    assert used == 3 * groups

    assert uncork(tmp_path, "rollback").returncode == 0
    assert _now() == strict_overcommit
    assert uncork(tmp_path, "journal", "verify").returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("host")
@pytest.mark.parametrize("afterwards", ["rollback", "resume"])
def test_killed_while_a_group_is_put_back(tmp_path, strict_overcommit, endpoint, afterwards):
    command = [sys.executable, "-m", "uncork.cli.main", "run", "--yes", "--attribute", "--blocks", "2"]
    running = subprocess.Popen(
        [*command, "--endpoint", endpoint, *ONCE],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"UNCORK_STATE": str(tmp_path)},
    )
    while running.poll() is None and not _toggled(tmp_path):
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()

    if afterwards == "resume":
        done = uncork(tmp_path, "run", "--resume", "--endpoint", endpoint)
        assert done.returncode == 0, done.stderr
        assert "Set again" in done.stderr
        assert _now() != strict_overcommit
    assert uncork(tmp_path, "rollback").returncode == 0
    assert _now() == strict_overcommit
    assert uncork(tmp_path, "journal", "verify").returncode == 0


def _toggled(state) -> bool:
    if not (state / "state.db").exists():
        return False
    try:
        with sqlite3.connect(f"file:{state / 'state.db'}?mode=ro", uri=True) as db:
            return bool(
                db.execute(
                    "SELECT 1 FROM hold h JOIN step s ON s.id = h.step"
                    " WHERE s.name LIKE 'attribute-%' AND h.state = 'open' AND s.status = 'completed'"
                ).fetchone()
            )
    except sqlite3.Error:
        return False
