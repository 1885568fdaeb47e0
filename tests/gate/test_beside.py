"""What stands beside the verdict: servers' P2P caches, other tools' figures, baselines on disk."""

import json
import os
import stat

import pytest

from uncork.errors import StateUnwritable
from uncork.gate import baseline, caches, crosscheck, verify
from uncork.gate.simulated import HOSTS, SimulatedFabric
from uncork.model.gate import Cell
from uncork.model.unknown import is_unknown

NVBANDWIDTH = """CUDA Runtime Version: 12080
{"nvbandwidth": {"testcases": [
 {"name": "device_to_device_memcpy_read_ce", "status": "Passed",
  "bandwidth_matrix": [["N/A", "53.11"], ["52.90", "N/A"]], "sum": 106.01},
 {"name": "device_to_device_memcpy_write_ce", "status": "Waived"}]}}
"""
NCCL_TESTS = json.dumps(
    {
        "results": [
            {"size": 8, "out_of_place": {"time": 17.2, "alg_bw": 0.0, "bus_bw": 0.0, "nwrong": 0}},
            {
                "size": 64,
                "out_of_place": None,
                "in_place": {"time": 18.5, "alg_bw": 0.0, "bus_bw": 0.0, "nwrong": 0},
            },
        ]
    }
)


def program(folder, name, text):
    """A program on PATH that prints `text`, or writes it where -J says."""
    path = folder / name
    path.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -J ] && exec cp "$0.txt" "$2"; shift; done\ncat "$0.txt"\n'
    )
    path.chmod(0o755)
    (folder / f"{name}.txt").write_text(text)


def test_the_figures_of_other_tools_stand_beside_ours(tmp_path, monkeypatch):
    program(tmp_path, "nvbandwidth", NVBANDWIDTH)
    program(tmp_path, "all_reduce_perf", NCCL_TESTS)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    matrices, figures, notes = crosscheck.cross_check(2)

    assert [matrix.name for matrix in matrices] == ["nvbandwidth device_to_device_memcpy_read_ce"]
    assert matrices[0].cells == (Cell(0, 1, 53.11), Cell(1, 0, 52.90))
    assert [(figure.name, figure.value) for figure in figures] == [
        ("nccl-tests all-reduce 8 B", 17.2),
        ("nccl-tests all-reduce 64 B", 18.5),
    ]
    assert notes == ()


def test_a_tool_that_is_not_there_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert crosscheck.cross_check(2) == ((), (), ())


@pytest.mark.parametrize("text", ["", "{", '{"nvbandwidth": {}}', '{"other": 1}'])
def test_output_that_is_not_what_it_should_be_is_unknown(text):
    assert is_unknown(crosscheck.nvbandwidth_matrices(text))
    assert is_unknown(crosscheck.nccl_tests_figures(text))


def test_a_tool_that_fails_is_a_note(tmp_path, monkeypatch):
    path = tmp_path / "nvbandwidth"
    path.write_text("#!/bin/sh\necho 'CUDA error' >&2; exit 1\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    _, _, notes = crosscheck.cross_check(2)

    assert notes == ("nvbandwidth ended with 1: CUDA error",)


def test_a_p2p_answer_older_than_the_last_change_is_noticed(tmp_path):
    folder = tmp_path / ".cache/vllm"
    folder.mkdir(parents=True)
    cache = folder / "gpu_p2p_access_cache_for_0,1.json"
    cache.write_text('{"0->1": false, "1->0": true}')
    os.utime(cache, (1000.0, 1000.0))

    found = caches.find({}, tmp_path)

    assert [(one.server, one.denied) for one in found] == [("vLLM", ("0->1",))]
    assert "1 pairs denied" in caches.warnings(found, 2000.0)[0]
    assert caches.warnings(found, 500.0) == ()
    assert caches.warnings(found, None) == ()


def test_a_cache_that_is_no_json_is_left_alone(tmp_path):
    folder = tmp_path / "v"
    folder.mkdir()
    (folder / "gpu_p2p_access_cache_for_0.json").write_text("what")

    assert caches.find({"VLLM_CACHE_ROOT": str(folder)}, tmp_path) == ()


def test_the_boot_time_is_in_the_past():
    assert 0 < caches.boot_s() < 4e9


def test_a_baseline_comes_back_as_it_was_stored(tmp_path):
    result = verify(SimulatedFabric(HOSTS["h200-8x"]))

    baseline.save(result, tmp_path)

    assert baseline.load("simulated", tmp_path) == baseline.of(result)


def test_no_baseline_and_a_broken_one_are_unknown(tmp_path):
    none = baseline.load("host", tmp_path)
    baseline.path("host", tmp_path).parent.mkdir()
    baseline.path("host", tmp_path).write_text("{}")
    broken = baseline.load("host", tmp_path)

    assert is_unknown(none) and none.absent
    assert is_unknown(broken) and not broken.absent


def test_a_baseline_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "gate").write_text("in the way")

    with pytest.raises(StateUnwritable):
        baseline.save(verify(SimulatedFabric(HOSTS["h200-8x"]), "quick"), tmp_path)
