"""On the real kernel of this machine, through the command line: swappiness changes, and comes back."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plans import apply_step as draft_step
from plans import new_plan, until_approved
from tests.wrong_host import LOCK

from uncork.apply import chain, hold
from uncork.apply.transaction import apply_step
from uncork.knobs import KNOBS
from uncork.model.plan import PlannedChange
from uncork.plan.store import Store, find

FILE = Path("/proc/sys/vm/swappiness")


def writable() -> bool:
    try:
        now = FILE.read_text(encoding="ascii")
        with FILE.open("w", encoding="ascii") as file:
            file.write(now)
    except OSError:
        return False
    return os.geteuid() == 0


# One worker for all tests that change this host.
pytestmark = [
    pytest.mark.skipif(not writable(), reason="/proc/sys/vm/swappiness is not ours to write here"),
    pytest.mark.xdist_group("host"),
]


@pytest.fixture
def store(tmp_path):
    with LOCK.open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other tests that change this host wait here
        yield from _planned(tmp_path)


def _planned(tmp_path):
    before = FILE.read_text(encoding="ascii").strip()
    (tmp_path / "state").mkdir()
    with Store(tmp_path / "state") as opened:
        want = "1" if before != "1" else "2"
        change = PlannedChange("sysctl", "vm.swappiness", want, before=before)
        until_approved(opened, new_plan(opened, draft_step("apply-kernel-sysctl", change)))
        yield opened
    FILE.write_text(before + "\n", encoding="ascii")


def uncork(store, *words):
    return subprocess.run(
        [sys.executable, "-c", "from uncork.cli.main import main; main()", *words],
        env=os.environ | {"UNCORK_STATE": str(store.folder), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_change_of_the_running_kernel_is_made_held_confirmed_and_rolled_back(store):
    step = find(store.read(), "apply-kernel-sysctl")
    (change,) = step.changes
    applied = apply_step(store, step, knobs=KNOBS, hold_s=600)
    assert FILE.read_text(encoding="ascii").strip() == change.want

    assert "unconfirmed: reverts in" in uncork(store, "plan").stdout
    assert uncork(store, "hold", "confirm").returncode == 15  # the gate has not passed
    hold.confirm(store, applied.txn)
    done = uncork(store, "rollback")

    assert (done.returncode, done.stderr) == (0, "")
    assert FILE.read_text(encoding="ascii").strip() == change.before
    assert uncork(store, "rollback").stdout == "Nothing to undo: nothing that uncork set is in force.\n"
    assert chain.broken(store.db) == []


def test_rollback_leaves_what_someone_else_set_and_prints_the_command(store):
    step = find(store.read(), "apply-kernel-sysctl")
    apply_step(store, step, knobs=KNOBS, hold_s=600)
    FILE.write_text("77\n", encoding="ascii")
    done = uncork(store, "rollback")

    assert done.returncode == 30
    assert f"sysctl -w vm.swappiness={step.changes[0].before}" in done.stderr
    assert FILE.read_text(encoding="ascii").strip() == "77"
