"""Command lines of engines: which one, which flags, and no secret."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork.explorers import engine_argv, engine_environ

LINES = [
    ("/opt/venv/bin/python3 /opt/venv/bin/vllm serve org/model --port 9000", "vllm"),
    ("python3 -m vllm.entrypoints.openai.api_server --model org/model", "vllm"),
    ("python -u -X dev -m sglang.launch_server --model-path m --tp 8", "sglang"),
    ("/usr/bin/python3 /usr/local/bin/trtllm-serve m --tp_size 4", "tensorrt-llm"),
    ("text-generation-launcher --model-id m --num-shard 2", "tgi"),
    ("/app/llama-server -m /m.gguf -c 8192 -np 4", "llama.cpp"),
    ("python -m uncork.loop.demo_server /m.gguf 4 2048", "llama.cpp"),
    ("python3 /opt/bin/transformers serve --force-model m", "transformers"),
    ("lmdeploy serve api_server m --tp 2", "lmdeploy"),
    ("ollama serve", "ollama"),
]
OTHERS = [
    "grep sglang.launch_server",
    "bash -c vllm serve org/model",
    "docker run vllm/vllm-openai --model m",
    "vllm bench serve",
    "python3 -m http.server",
    "python3",
    "vim vllm.entrypoints",
]


@pytest.mark.parametrize(("line", "kind"), LINES)
def test_an_engine_is_recognised(line, kind):
    found = engine_argv.kind_and_arguments(line.split())

    assert found is not None
    assert found[0] == kind


@pytest.mark.parametrize("line", OTHERS)
def test_a_program_that_only_names_one_is_not(line):
    assert (
        engine_argv.kind_and_arguments(line.split(" ", 2) if line.startswith("bash") else line.split())
        is None
    )


def test_flags_get_one_name_and_switches_a_value():
    words = "--tp 4 --enforce-eager org/model --gpu_memory_utilization=0.8 --max-num-seqs 64 --api-key s3cret"

    flags, loose = engine_argv.parse_flags("vllm", words.split())

    assert flags == {
        "tensor-parallel-size": "4",
        "enforce-eager": "true",
        "gpu-memory-utilization": "0.8",
        "max-num-seqs": "64",
        "api-key": engine_argv.MASK,
    }
    assert loose == ("org/model",)


def test_short_names_of_llama_cpp():
    flags, _ = engine_argv.parse_flags("llama.cpp", ["-m", "/m.gguf", "-ngl", "99", "-fa", "on", "-np", "4"])

    assert flags == {"model": "/m.gguf", "n-gpu-layers": "99", "flash-attn": "on", "parallel": "4"}


@pytest.mark.parametrize(
    ("kind", "flags", "environ", "expected"),
    [
        ("vllm", {}, {}, ("127.0.0.1", 8000)),
        ("sglang", {"host": "0.0.0.0", "port": "30001"}, {}, ("127.0.0.1", 30001)),
        ("tgi", {}, {"PORT": "80"}, ("127.0.0.1", 80)),
        ("llama.cpp", {}, {"LLAMA_ARG_PORT": "9"}, ("127.0.0.1", 9)),
        ("ollama", {}, {"OLLAMA_HOST": "http://10.0.0.1:1234"}, ("10.0.0.1", 1234)),
    ],
)
def test_the_address_is_what_was_asked_for(kind, flags, environ, expected):
    assert engine_argv.address_of(kind, flags, environ) == expected


SECRETS = [
    "hf_abcdefghijklmnopqrstuvwx",
    "sk-abcdefghijklmnopqrstuvwxyz012345",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.sig-nature",
    "https://user:password@proxy.example:3128/",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_what_looks_like_a_secret_is_masked_wherever_it_stands(secret):
    shown = " ".join(engine_argv.redact(["vllm", "serve", "m", f"--header={secret}", secret]))
    kept = engine_environ.kept(f"VLLM_NOTE=x {secret}\0HF_TOKEN={secret}\0VLLM_API_KEY={secret}\0")

    assert secret not in shown
    assert list(kept) == ["VLLM_NOTE"]
    assert secret not in kept["VLLM_NOTE"]


def test_values_of_secret_flags_are_masked_and_counts_are_not():
    line = "vllm serve m --api-key abc --max-tokens 5 --tokenizer t --hf-token=x"

    shown = engine_argv.redact(shlex.split(line))

    assert shown == (
        *("vllm", "serve", "m", "--api-key", engine_argv.MASK),
        *("--max-tokens", "5", "--tokenizer", "t", f"--hf-token={engine_argv.MASK}"),
    )


@given(st.lists(st.text(st.characters(exclude_characters="\0"), min_size=1), min_size=1, max_size=12))
def test_any_command_line_is_read(words):
    found = engine_argv.kind_and_arguments(words)
    for kind in engine_argv.DEFAULT_PORT:
        engine_argv.parse_flags(kind, words)

    assert found is None or found[0] in engine_argv.DEFAULT_PORT


@given(st.text(st.characters(codec="ascii", categories=("Lu", "Nd", "Pc")), min_size=1, max_size=30))
def test_no_variable_with_a_secret_name_is_kept(name):
    assert not engine_environ.allowed(f"VLLM_{name}_API_KEY")
    assert not engine_environ.allowed(f"SGLANG_{name}_TOKEN")
