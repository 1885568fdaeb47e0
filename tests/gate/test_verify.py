"""uncork verify, as people call it."""

import json
import os
import subprocess
import sys

import pytest


def verify(*arguments, **environ):
    code = "import sys; from uncork.cli.main import main; sys.argv = ['uncork', *sys.argv[1:]]; main()"
    command = [sys.executable, "-c", code, "verify", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environ}, timeout=100)


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        ((), 0, "PASS"),
        (("--fault", "zeros@0-3"), 1, "FAIL"),
        (("--fault", "counter-unreadable@gpu3 rx"), 2, "INCONCLUSIVE"),
    ],
)
def test_exit_status_and_first_word_agree(arguments, status, word, tmp_path):
    done = verify("--fabric", "simulated", *arguments, UNCORK_STATE=str(tmp_path))

    assert done.returncode == status
    assert done.stdout.startswith(word)


def test_json_holds_every_sample_and_nothing_else(tmp_path):
    done = verify("--fabric", "simulated", "--json", UNCORK_STATE=str(tmp_path))

    result = json.loads(done.stdout)
    assert result["verdict"] == "pass"
    assert all(len(cell["samples"]) >= 1 for matrix in result["matrices"] for cell in matrix["cells"])


def test_a_simulation_is_never_kept_as_a_baseline(tmp_path):
    verify("--fabric", "simulated", "--new-baseline", UNCORK_STATE=str(tmp_path))

    assert not (tmp_path / "gate").exists()


def test_this_machine_is_verified_and_kept_as_the_baseline(tmp_path):
    done = verify("--new-baseline", "--quick", UNCORK_STATE=str(tmp_path))

    assert "No GPU was tested" in done.stdout
    assert (tmp_path / "gate/baseline-host.json").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("--fabric", "what"), 2, "There is no fabric"),
        (("--quick", "--soak"), 2, "exclude each other"),
        (("--fabric", "simulated", "--fault", "what@0"), 2, "is no fault"),
        (("--fabric", "simulated", "--simulate", "what"), 2, "There is no simulated host"),
        (("--fabric", "hip"), 50, "cannot be tested yet"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_to_do(arguments, status, says, tmp_path):
    done = verify(*arguments, UNCORK_STATE=str(tmp_path))

    assert done.returncode == status
    assert says in done.stderr
    assert "next: " in done.stderr
    assert "Traceback" not in done.stderr


def test_it_runs_on_eight_gpus_of_the_stand_in_driver(libcuda, tmp_path):
    pytest.importorskip("cuda.bindings.driver")
    (tmp_path / "state").write_text("devices 8\n")
    environ = {
        "LD_LIBRARY_PATH": str(libcuda),
        "UNCORK_FAKE_CUDA": str(tmp_path),
        "UNCORK_STATE": str(tmp_path / "s"),
    }

    done = verify("--fabric", "cuda", "--quick", "--json", **environ)

    result = json.loads(done.stdout)
    failed = [one["criterion"] for one in result["criteria"] if one["verdict"] == "fail"]
    assert result["devices"] == [f"gpu{at}" for at in range(8)]
    assert failed == []
