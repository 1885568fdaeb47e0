"""A real inference server (llama.cpp) measured from end to end; its own counters are the judge."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from uncork.bench.spec import SuiteSpec, Workload, parse_levels
from uncork.bench.suite import run_suite
from uncork.errors import ServerDied

pytest.importorskip("xllamacpp", reason="the small real server is not installed")
# The loop's own tests take the server that they find in the process table: never beside this one.
pytestmark = pytest.mark.xdist_group("host")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from tests.bench.tiny_model import write_tiny_model

    folder = tmp_path_factory.mktemp("model")
    model = write_tiny_model(folder / "tiny.gguf")
    program = Path(__file__).with_name("llama_server.py")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, program, model, "16"], stdout=subprocess.PIPE, stderr=log, text=True
        )
        url = process.stdout.readline().strip()
        assert url, (folder / "log").read_text("utf-8", errors="replace")[-2000:]
        yield url, process
        process.kill()
        process.wait()
        process.stdout.close()


def counter(url, name):
    text = urlopen(f"{url}/metrics", timeout=10).read().decode()
    return float(re.search(rf"^llamacpp:{name} (\S+)", text, re.M).group(1))


def spec_for(url, **fields):
    fields = {
        "levels": parse_levels("1,4,16"),
        "requests": 16,
        "input_len": 40,
        "output_len": 24,
        "repeats": 1,
        "cooldown_s": 0.0,
        "warmup": False,
        "processes": 1,
        **fields,
    }
    return SuiteSpec(endpoint=url, **fields)


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_no_failure_and_the_server_s_own_counts(server, tmp_path, api):
    url, _ = server
    calibration = counter(url, "tokens_predicted_total")
    run_suite(
        spec_for(url, levels=parse_levels("1"), requests=1, output_len=1, api=api), out=tmp_path / "first"
    )
    before = counter(url, "tokens_predicted_total")
    run = run_suite(spec_for(url, api=api), out=tmp_path / "run")
    after = counter(url, "tokens_predicted_total")

    assert [level.failed for level in run.levels] == [{}] * 3
    assert [level.output_tokens for level in run.levels] == [16 * 24] * 3
    assert [level.flags.get("short", 0) for level in run.levels] == [0] * 3
    # prepare() may ask for a token or two to find lengths: what the first, smallest run added, less its token
    assert after - before == 3 * 16 * 24 + (before - calibration - 1)
    assert {level.input_tokens for level in run.levels} == {16 * 40}
    assert all(level.client.stamp_source == "kernel" for level in run.levels)


def test_lengths_are_exact_by_the_server_s_own_tokenizer(server, tmp_path):
    url, _ = server
    run = run_suite(spec_for(url, levels=parse_levels("4"), input_len=100, warmup=True), out=tmp_path)

    assert run.warmup["lengths"]["source"].startswith("exact")
    assert run.levels[0].input_tokens == 16 * 100
    assert run.levels[0].flags.get("off-length", 0) == 0


def test_turns_of_a_conversation_find_their_prefix_in_the_cache(server, tmp_path):
    url, _ = server
    turns = Workload(kind="multi-turn", turns=3)
    run = run_suite(
        spec_for(url, levels=parse_levels("2"), workload=turns, requests=12, input_len=30), out=tmp_path
    )

    assert run.levels[0].completed == 12
    assert run.levels[0].cached_tokens > 0


def test_a_real_server_killed_in_the_middle(server, tmp_path):
    url, process = server

    def kill_in_second_level(state):
        if state.done == 1 and state.requests_done:
            process.kill()

    with pytest.raises(ServerDied, match="1 of 2 levels are kept"):
        run_suite(
            spec_for(url, levels=parse_levels("2,4"), requests=400, output_len=4, order="given"),
            out=tmp_path,
            progress=kill_in_second_level,
        )
