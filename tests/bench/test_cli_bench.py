"""uncork bench, as a person or a program calls it."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from uncork.bench.reference_server import reference_server
from uncork.cli.bench import app
from uncork.errors import UncorkError

FAST = {"ttft_us": 2_000, "itl_us": 1_000}
SMALL = ["--requests", "6", "--input-len", "8", "--output-len", "8", "--repeats", "2"]


def uncork(*words, cwd=None):
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
    program = "import sys; from uncork.cli.main import main; sys.argv[0] = 'uncork'; main()"
    command = [sys.executable, "-c", program, "bench", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def url():
    with reference_server(**FAST) as server:
        yield server.url


def test_a_table_of_eighty_columns_that_says_what_next(url, tmp_path):
    done = uncork("--endpoint", url, "--concurrency", "1,4", *SMALL, "--out", tmp_path / "run")
    lines = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (0, "")
    assert all(len(line) <= 80 for line in lines if not line.startswith(("kept", "void", "disturbed")))
    assert [line.split()[0] for line in lines[1:3]] == ["c1", "c4"]
    assert any(line.startswith("client: kernel receive stamps") for line in lines)
    assert lines[-1].startswith("  next: ")
    assert (tmp_path / "run" / "summary.json").exists()


def test_json_is_the_stored_run(url, tmp_path):
    done = uncork("--endpoint", url, "--concurrency", "2", *SMALL, "--out", tmp_path, "--json")
    stored = json.loads((tmp_path / "summary.json").read_text("utf-8"))

    assert json.loads(done.stdout) == stored
    assert [level["concurrency"] for level in stored["levels"]] == [2, 2]


def test_a_grid_of_lengths(url, tmp_path):
    done = uncork(
        *("--endpoint", url, "--concurrency", "1,2", "--requests", "3", "--input-len", "8,16"),
        *("--output-len", "4", "--repeats", "1", "--out", tmp_path, "--json"),
    )

    assert [level["level"] for level in json.loads(done.stdout)["levels"]] == [
        *("c1-i8", "c1-i16", "c2-i8", "c2-i16")
    ]


def test_no_server_is_a_sentence_and_its_exit_status(tmp_path):
    done = uncork("--endpoint", "127.0.0.1:1", "--out", tmp_path / "run")

    assert done.returncode == 51
    assert done.stderr.startswith("uncork: No inference server answers at http://127.0.0.1:1")
    assert "next: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "requests.jsonl").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--endpoint", ""],
        ["--endpoint", "x", "--concurrency", "many"],
        ["--endpoint", "x", "--suite", "huge"],
        ["--endpoint", "x", "--api", "smoke-signals"],
        ["--endpoint", "x", "--header", "no colon"],
        ["--endpoint", "x", "--input-len", "0"],
        ["--endpoint", "x", "--rate", "1", "--arrival", "sometimes"],
        ["--endpoint", "x", "--workload", "jsonl", "--data", "/nowhere.jsonl"],
    ],
)
def test_what_cannot_be_used_is_said_before_anything_is_sent(words, tmp_path):
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])

    assert isinstance(done.exception, UncorkError)
    assert done.exception.exit in (2, 51)
    assert "nothing was" in done.exception.says


@pytest.mark.slow
def test_the_self_test_prints_errors_and_faults():
    done = uncork("--self-test", "--concurrency", "2", "--json")
    found = json.loads(done.stdout)

    assert found["exactness"][0]["streams"] == 2
    assert found["exactness"][0]["unmatched"] == 0
    assert found["exactness"][0]["ttft_error_ms"]["n"] > 0
    assert [check["fault"] for check in found["faults"] if not check["right"]] == []
