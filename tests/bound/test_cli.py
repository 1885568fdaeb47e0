"""`uncork bound` answers without a host: table, picture, waterfall, JSON, refusals."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODELS = Path(__file__).parent / "models"
GLM = str(MODELS / "GLM-5-NVFP4")
ON_CARDS = ["--gpu", "rtx_pro_6000_ws", "--count", "8", "--tp", "8"]


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    code = "from uncork.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "bound", *argv], capture_output=True, text=True, check=False
    )


def run_json(*argv: str) -> Any:
    done = run(*argv, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_number_stands_with_its_assumptions() -> None:
    done = run(GLM, *ON_CARDS, "--context", "0", "--concurrency", "1")

    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("     1 "))
    assert row.split()[:4] == ["1", "325.4", "194.9", "107.2"]
    for said in ("44.06 GB", "replicated on every rank", "FOREIGN", "1792 GB/s", "KV cache in fp8"):
        assert said in done.stdout


def test_everything_fits_80_columns_and_ends_with_what_to_do_next() -> None:
    done = run(GLM, *ON_CARDS, "--concurrency", "1", "--measured", "10.36")

    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert done.stdout.rstrip().splitlines()[-1].startswith("Next: ")


def test_the_picture_has_a_line_for_each_concurrency() -> None:
    done = run(GLM, *ON_CARDS, "--concurrency", "1,8,64")

    drawn = [line for line in done.stdout.splitlines() if " users  " in line and "S" in line]
    assert [line.split()[0] for line in drawn] == ["1", "8", "64"]
    assert all(line.index("E") < line.index("F") < line.index("S") for line in (d[14:] for d in drawn))


def test_json_holds_tiers_assumptions_and_an_exact_waterfall() -> None:
    found = run_json(GLM, *ON_CARDS, "--context", "0", "--concurrency", "1", "--measured", "10.36")

    (bound,) = found["bounds"]
    assert bound["silicon"]["tok_s"] == pytest.approx(195, abs=0.5)
    assert bound["fabric"]["tok_s"] == pytest.approx(107, abs=0.5)
    assert bound["assumptions"]
    assert sum(bar["ns"] for bar in found["waterfall"]["bars"]) == found["waterfall"]["measured_ns"]
    assert found["efficiency"]["silicon"][0] == pytest.approx(0.053, abs=0.001)


def test_a_measured_curve_replaces_the_foreign_one(tmp_path: Path) -> None:
    curve = tmp_path / "curve.txt"
    curve.write_text("8192 9.2\n16384 9.2\n", encoding="utf-8")

    found = run_json(GLM, *ON_CARDS, "--context", "0", "--concurrency", "1", "--allreduce-us", str(curve))

    assumed = " ".join(found["bounds"][0]["assumptions"])
    assert "FOREIGN" not in assumed
    assert "measured: file curve.txt" in assumed
    assert found["bounds"][0]["fabric"]["tok_s"] == pytest.approx(152, abs=1)  # one-shot kernel over PCIe


def test_a_measured_copy_sets_the_bandwidth_of_the_engine_tier() -> None:
    found = run_json(GLM, *ON_CARDS, "--context", "0", "--concurrency", "1", "--copy", "1433.6")

    step = found["bounds"][0]["best"]
    memory = step["ideal_ms"] + step["replication_ms"]
    assert step["bandwidth_loss_ms"] == pytest.approx(memory / 0.8 - memory)
    assert any("bandwidth measured on this host" in line for line in found["bounds"][0]["assumptions"])


def test_drafts_cost_the_mtp_layer_unless_they_are_free() -> None:
    drafts = ["--concurrency", "1", "--draft", "3", "--accept", "2.8"]
    paid = run_json(GLM, *ON_CARDS, *drafts)["bounds"][0]
    free = run_json(GLM, *ON_CARDS, *drafts, "--free-draft")["bounds"][0]

    assert paid["best"]["draft_ms"] > free["best"]["draft_ms"] == 0
    assert paid["silicon"]["tok_s"] < free["silicon"]["tok_s"]


def test_prompts_and_answers_give_a_steady_throughput() -> None:
    found = run_json(GLM, *ON_CARDS, "--concurrency", "8", "--prompt", "1024", "--answer", "1024")

    (bound,), (steady,) = found["bounds"], found["steady"]
    serial = 8e3 / (bound["fabric"]["ms_per_token_uniform"] + 8 / 1024 * found["prefill"]["fabric_ms"])
    assert steady["fabric_tok_s"] == pytest.approx(serial)
    assert serial < steady["silicon_tok_s"] <= bound["silicon"]["tok_s"] * 1.001


def test_a_bandwidth_alone_is_enough() -> None:
    found = run_json(
        GLM, "--bandwidth", "1597", "--count", "8", "--tp", "8", "--context", "0", "--concurrency", "1"
    )

    assert found["bounds"][0]["silicon"]["tok_s"] == pytest.approx(174, abs=0.5)
    assert found["bounds"][0]["kv_tokens"] is None


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        ([GLM, "--gpu", "rtx_pro_6000_ws", "--count", "8", "--tp", "4"], 10, "weights do not fit"),
        ([GLM, "--gpu", "nothing", "--tp", "8"], 2, "--gpu"),
        ([GLM, "--tp", "8"], 2, "neither --gpu nor --bandwidth"),
        ([GLM, *ON_CARDS, "--concurrency", "1,x"], 2, "--concurrency"),
        ([GLM, *ON_CARDS, "--measured", "10"], 2, "--measured"),
        ([GLM, *ON_CARDS, "--concurrency", "1", "--measured", "0"], 2, "not a speed"),
        ([GLM, "--gpu", "rtx_pro_6000_ws", "--count", "4", "--tp", "8"], 2, "--count 4"),
        ([GLM, *ON_CARDS, "--draft", "2", "--accept", "9"], 2, "--accept"),
        ([GLM, *ON_CARDS, "--kv-dtype", "fp3"], 2, "--kv-dtype"),
        ([GLM, *ON_CARDS, "--memory-share", "2"], 2, "--memory-share"),
        ([GLM, *ON_CARDS, "--before", GLM], 2, "--before"),
        (["nowhere", *ON_CARDS], 2, "does not exist"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(argv: list[str], status: int, said: str) -> None:
    done = run(*argv)

    assert done.returncode == status
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_host_without_gpus_says_why_its_own_cannot_be_used() -> None:
    done = run(GLM, "--this-host", "--tp", "8")

    if done.returncode == 0 or "--this-host" not in done.stderr:
        pytest.skip("this host has GPUs")
    assert done.returncode == 2
    assert "--cpu" in done.stderr
