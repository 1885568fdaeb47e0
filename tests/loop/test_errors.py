"""What can go wrong around a run ends as a sentence, its own exit status, and nothing lost."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from tests.loop.program import SMALL, uncork
from tests.wrong_host import OVERCOMMIT

from uncork.bench.reference_server import reference_server

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("host")]
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare"
)


def begin(state, endpoint, *argv, stop_after="Verify that the GPUs"):
    """Start a run and return when that step has ended."""
    command = [
        sys.executable,
        "-m",
        "uncork.cli.main",
        "run",
        "--dry-run",
        "--endpoint",
        endpoint,
        *SMALL,
        *argv,
    ]
    running = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"UNCORK_STATE": str(state)}
    )
    assert running.stderr
    for line in running.stderr:
        if stop_after in line:
            break
    return running


def test_a_second_uncork_is_told_about_the_first(tmp_path):
    with reference_server(ttft_us=5_000, itl_us=200_000) as server:
        first = begin(tmp_path, server.url, "--gate", "quick")
        try:
            again = uncork(tmp_path, "run", "--endpoint", server.url)
            meanwhile = uncork(tmp_path, "run", "--resume")
            shown = uncork(tmp_path, "plan", "--json")
        finally:
            first.send_signal(signal.SIGINT)
            first.communicate(timeout=60)

    assert again.returncode == 10 and "uncork run --resume" in again.stderr
    assert meanwhile.returncode == 16 and "Another uncork runs" in meanwhile.stderr
    assert json.loads(shown.stdout)["state"] == "active"
    assert first.returncode == 130
    (gate,) = tmp_path.rglob("gate-before.json")
    assert json.loads(gate.read_text(encoding="utf-8"))["depth"] == "quick"


def test_a_depth_that_the_gate_does_not_know_is_refused_before_anything(tmp_path):
    done = uncork(tmp_path, "run", "--gate", "deep")

    assert (done.returncode, "quick, full, soak" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_dies_is_said_and_resume_goes_on_with_another(tmp_path):
    with reference_server(ttft_us=5_000, itl_us=100_000) as server:
        running = begin(tmp_path, server.url, "--output-len", "64")
    said = running.communicate(timeout=120)[1]  # the server is gone

    assert running.returncode in (51, 52), said
    assert "Traceback" not in said

    with reference_server(ttft_us=1_000, itl_us=1_000) as again:
        done = uncork(tmp_path, "run", "--resume", "--endpoint", again.url, "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["comparison"]


@needs_root
def test_a_full_disk_is_said_before_anything_is_changed(tmp_path, strict_overcommit, endpoint):
    state = tmp_path / "small"
    state.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120k", "tmpfs", state], check=False).returncode:
        pytest.skip("a small tmpfs cannot be mounted here")
    try:
        done = uncork(state, "run", "--yes", "--endpoint", endpoint, *SMALL)
    finally:
        subprocess.run(["umount", state], check=True)

    assert done.returncode == 17, done.stderr
    assert "No space left" in done.stderr or "full" in done.stderr
    assert "Traceback" not in done.stderr
    assert OVERCOMMIT.read_text(encoding="ascii").strip() == strict_overcommit


@needs_root
def test_on_a_read_only_proc_sys_the_plan_is_whole_and_the_write_is_skipped(
    tmp_path, strict_overcommit, endpoint
):
    inner = 'mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec "$@"'
    command = [
        *("unshare", "-m", "--propagation", "private", "sh", "-c", inner, "sh"),
        *(sys.executable, "-m", "uncork.cli.main", "run", "--yes", "--json", "--endpoint", endpoint, *SMALL),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"UNCORK_STATE": str(tmp_path)}, timeout=300
    )

    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["changed"] == 0
    assert "skipped" in outcome["skipped"] and "read-only here" in outcome["skipped"]
    assert OVERCOMMIT.read_text(encoding="ascii").strip() == strict_overcommit
