"""uncork compare: a verdict and its exit status from two folders of results."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.bench.runs import run

FAST, SLOW = {"c1": [100.0, 101.0, 99.0, 100.5]}, {"c1": [80.0, 80.5, 79.5, 80.2]}


def stored(folder: Path, levels, **more) -> str:
    folder.mkdir()
    (folder / "summary.json").write_bytes(msgspec.json.encode(run(levels, **more)))
    return str(folder)


def compare(*argv: str):
    command = [sys.executable, "-m", "uncork.cli.main", "compare", *argv]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(("after", "verdict", "status"), [(FAST, "improved", 0), (SLOW, "worse", 1)])
def test_the_exit_status_says_whether_it_is_worse(tmp_path, after, verdict, status):
    before = SLOW if after is FAST else FAST

    done = compare(stored(tmp_path / "a", before), stored(tmp_path / "b", after), "--json")

    assert (json.loads(done.stdout)["judgement"], done.returncode) == (verdict, status)


def test_runs_of_different_hosts_are_refused_with_the_difference(tmp_path):
    one = stored(tmp_path / "a", FAST, fingerprint={"kernel": "6.1"})
    other = stored(tmp_path / "b", FAST, fingerprint={"kernel": "6.18"})

    done = compare(one, other)

    assert done.returncode == 53
    assert "kernel: 6.1 → 6.18" in done.stderr
    assert compare(one, other, "--tested", "kernel").returncode == 0


def test_a_folder_without_a_run_is_a_sentence(tmp_path):
    done = compare(str(tmp_path), str(tmp_path))

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
