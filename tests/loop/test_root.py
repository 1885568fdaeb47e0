"""On a host where a P1 setting is wrong: changed, verified, undone; and nothing lost by kill -9."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.loop.program import OVERCOMMIT, SMALL, uncork

# One worker for all that changes this host or takes the server it finds on it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("host")]


def now() -> str:
    return OVERCOMMIT.read_text(encoding="ascii").strip()


def test_a_wrong_sysctl_is_changed_verified_and_put_back(tmp_path, strict_overcommit, endpoint):
    done = uncork(tmp_path, "run", "--yes", "--json", "--endpoint", endpoint, *SMALL)

    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    record = Path(outcome["record"]).read_text(encoding="utf-8")
    sealed, _, finished = record.partition("<!-- uncork: end of the sealed part")
    assert outcome["changed"] >= 1
    assert now() in ("0", "1")
    assert "`vm.overcommit_memory` | `2` |" in sealed
    assert "In force until the next reboot" in finished

    back = uncork(tmp_path, "rollback")

    assert back.returncode == 0, back.stderr
    assert now() == strict_overcommit
    assert uncork(tmp_path, "journal", "verify").returncode == 0


def test_without_an_answer_nothing_is_written(tmp_path, strict_overcommit, endpoint):
    done = uncork(tmp_path, "run", "--endpoint", endpoint, *SMALL)

    assert done.returncode == 11
    assert "uncork approve" in done.stderr
    assert now() == strict_overcommit

    digest = done.stderr.rpartition("uncork approve ")[2].split(",")[0]
    assert uncork(tmp_path, "approve", digest).returncode == 0
    assert uncork(tmp_path, "run", "--resume", "--endpoint", endpoint).returncode == 0
    assert now() != strict_overcommit
    assert uncork(tmp_path, "rollback").returncode == 0
    assert now() == strict_overcommit


def test_kill_9_at_ten_moments_then_rollback(tmp_path, strict_overcommit, endpoint):
    dice = random.Random(20261201)
    command = [sys.executable, "-m", "uncork.cli.main", "run", "--yes", "--endpoint", endpoint, *SMALL]
    began_s = time.monotonic()
    assert uncork(tmp_path / "whole", "run", "--yes", "--endpoint", endpoint, *SMALL).returncode == 0
    whole_s = time.monotonic() - began_s
    assert uncork(tmp_path / "whole", "rollback").returncode == 0

    for moment in range(10):
        state = tmp_path / str(moment)
        running = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"UNCORK_STATE": str(state)},
        )
        try:
            running.wait(whole_s * dice.uniform(0.1, 1.0))
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.wait()

        back = uncork(state, "rollback")

        assert back.returncode in (0, 18), back.stderr  # 18: killed before there was a plan
        assert now() == strict_overcommit
        if (state / "state.db").exists():
            assert uncork(state, "journal", "verify").returncode == 0
            with sqlite3.connect(state / "state.db") as db:
                holds = {row[0] for row in db.execute("SELECT state FROM hold")}
            assert holds <= {"undone"}
