"""The real vLLM (on CPU) and `transformers serve`, where a folder with either is named; docs/bench.md says how.

UNCORK_VLLM and UNCORK_TRANSFORMERS name virtual environments of their own: neither server is a dependency of ours.
"""

import os
import re
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from uncork.bench.lengths import WORDS
from uncork.bench.spec import SuiteSpec, parse_levels
from uncork.bench.suite import run_suite

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600), pytest.mark.xdist_group("host")]

CONCURRENCY, REQUESTS, TOKENS = "1,2,4,8,16", 32, 24
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": "2"}
VLLM_CPU = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


def programs(variable, name):
    """The bin folder of the environment that a variable names; skips where it holds no such program."""
    folder = Path(os.environ.get(variable) or "/nonexistent") / "bin"
    if not (folder / name).exists():
        pytest.skip(f"{variable} names no virtual environment with {name}")
    return folder


@contextmanager
def running(bin_folder, folder, *, args, port, environment):
    """A server on a random model, ready to answer; ended with all its processes."""
    model = folder / "model"
    subprocess.run(
        [bin_folder / "python", Path(__file__).with_name("hf_model.py"), model, *WORDS],
        check=True,
        capture_output=True,
        env={**os.environ, **OFFLINE},
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [bin_folder / args[0], *args[1:], "--host", "127.0.0.1", "--port", str(port)],
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, **OFFLINE, **environment},
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_it_answers(process, url, folder / "log")
        yield url
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_it_answers(process, url, log):
    for _ in range(600):
        try:
            with urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            assert process.poll() is None, log.read_text("utf-8", errors="replace")[-3000:]
            time.sleep(0.5)
    raise AssertionError(log.read_text("utf-8", errors="replace")[-3000:])


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def measure(url, out, **fields):
    spec = SuiteSpec(
        endpoint=url,
        levels=parse_levels(CONCURRENCY),
        requests=REQUESTS,
        input_len=32,
        output_len=TOKENS,
        repeats=1,
        cooldown_s=0.0,
        **fields,
    )
    return run_suite(spec, out=out)


def show(name, run):
    """The figures for docs/bench.md (`pytest -s`)."""
    for level in run.levels:
        print(
            f"{name} c{level.concurrency}: {level.output_tok_s:.0f} tok/s, TTFT p50 {level.ttft_ms.p50:.1f} ms, "
            f"TPOT p50 {level.tpot_ms.p50:.2f} ms, {level.client.stamp_source} {level.invalid_reason}"
        )


def test_vllm(tmp_path):
    """No failure, and as many tokens as its own counter adds up."""
    bin_folder = programs("UNCORK_VLLM", "vllm")
    limits = ("--max-model-len", "512", "--max-num-seqs", "16", "--enforce-eager", "--dtype", "bfloat16")
    args = ("vllm", "serve", tmp_path / "model", "--served-model-name", "tiny", *limits)
    with running(bin_folder, tmp_path, args=args, port=free_port(), environment=VLLM_CPU) as url:
        measure(url, tmp_path / "first", warmup=False)
        before = vllm_tokens(url)
        run = measure(url, tmp_path / "run", warmup=False)
        counted = vllm_tokens(url) - before
    show("vLLM", run)

    assert [level.failed for level in run.levels] == [{}] * 5
    assert [level.output_tokens for level in run.levels] == [REQUESTS * TOKENS] * 5
    assert counted == 5 * REQUESTS * TOKENS
    assert {level.input_tokens for level in run.levels} == {REQUESTS * 32}
    assert {level.client.stamp_source for level in run.levels} == {"kernel"}


def vllm_tokens(url):
    with urlopen(f"{url}/metrics", timeout=10) as page:
        return float(
            re.search(r"^vllm:generation_tokens_total\S* (\S+)", page.read().decode(), re.M).group(1)
        )


def test_transformers_serve(tmp_path):
    """No failure, and as many tokens as its usage records say; it has no other counter."""
    bin_folder = programs("UNCORK_TRANSFORMERS", "transformers")
    args = ("transformers", "serve", tmp_path / "model", "--device", "cpu")
    with running(bin_folder, tmp_path, args=args, port=free_port(), environment={}) as url:
        run = measure(url, tmp_path / "run", ignore_eos=False)
    show("transformers", run)

    assert [level.failed for level in run.levels] == [{}] * 5
    assert [level.output_tokens for level in run.levels] == [REQUESTS * TOKENS] * 5
    assert [level.flags.get("no-usage", 0) for level in run.levels] == [0] * 5
    assert {level.client.stamp_source for level in run.levels} == {"kernel"}
