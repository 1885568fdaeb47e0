"""uncork compare: a verdict and its exit status from two folders of results."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.bench.runs import run

FAST, SLOW = {"c1": [100.0, 101.0, 99.0, 100.5]}, {"c1": [80.0, 80.5, 79.5, 80.2]}


def stored(folder: Path, levels, *, at_s: float = 0.0, **more) -> str:
    folder.mkdir()
    made = run(levels, run_id=folder.name, **more)
    timed = [msgspec.structs.replace(one, started_unix_s=at_s + i) for i, one in enumerate(made.levels)]
    made = msgspec.structs.replace(made, levels=tuple(timed))
    (folder / "summary.json").write_bytes(msgspec.json.encode(made))
    return str(folder)


def compare(*argv: str):
    command = [sys.executable, "-m", "uncork.cli.main", "compare", *argv]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(("after", "verdict", "status"), [(FAST, "improved", 0), (SLOW, "worse", 1)])
def test_the_exit_status_says_whether_it_is_worse(tmp_path, after, verdict, status):
    before = SLOW if after is FAST else FAST

    done = compare(stored(tmp_path / "a", before), stored(tmp_path / "b", after, at_s=60.0), "--json")

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


def in_turns(tmp_path) -> list[str]:
    """Before, after, before, after …: a host that gets slower all the time, and a change that is worth a tenth."""
    sides: list[list[str]] = [[], []]
    for turn in range(8):
        speed = (100.0 + 10.0 * (turn % 2)) * 0.97**turn
        made = stored(tmp_path / f"run{turn}", {"c1": [speed]}, at_s=10.0 * turn)
        sides[turn % 2].append(made)
    return [",".join(side) for side in sides]


def test_runs_in_turns_count_as_one_and_see_through_a_drift(tmp_path):
    said = json.loads(compare(*in_turns(tmp_path), "--json").stdout)

    assert said["judgement"] == "improved"
    assert 1.05 < said["overall"][0]["ratio"] < 1.15
    assert said["overall"][0]["n_before"] == 4
    assert any(note.startswith("measured in turns") for note in said["notes"])


def test_runs_that_count_as_one_must_be_alike(tmp_path):
    before, after = in_turns(tmp_path)
    odd = stored(tmp_path / "odd", FAST, fingerprint={"kernel": "6.18"})

    done = compare(f"{before},{odd}", after)

    assert done.returncode == 53
    assert "are to count as one, and differ in kernel: (absent) → 6.18" in done.stderr


def test_a_run_is_named_once(tmp_path):
    one = stored(tmp_path / "a", FAST)

    assert compare(f"{one},{one}", one).returncode == 2


def test_what_neither_run_could_read_is_named_and_not_taken_for_equal(tmp_path):
    unread = {"sysctl:vm.swappiness": {"unknown": "permission denied"}}
    one, other = (stored(tmp_path / name, FAST, fingerprint=unread) for name in "ab")
    known = stored(tmp_path / "c", FAST, fingerprint={"sysctl:vm.swappiness": "60"})

    done = compare(one, other)

    assert "not known whether equal: sysctl:vm.swappiness" in " ".join(done.stdout.split())
    assert "unknown: sysctl:vm.swappiness: neither run could read it" in done.stdout
    refused = compare(one, known)
    assert refused.returncode == 53
    assert "sysctl:vm.swappiness: unknown (permission denied) → 60" in refused.stderr


def test_a_pattern_names_what_was_changed(tmp_path):
    one = stored(
        tmp_path / "a", FAST, fingerprint={"sysctl:vm.swappiness": "60", "sysctl:vm.dirty_ratio": "20"}
    )
    other = stored(
        tmp_path / "b", FAST, fingerprint={"sysctl:vm.swappiness": "1", "sysctl:vm.dirty_ratio": "5"}
    )

    assert compare(one, other, "--tested", "sysctl:vm.swappiness").returncode == 53
    assert compare(one, other, "--tested", "sysctl:*").returncode == 0
