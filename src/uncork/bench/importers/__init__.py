"""Result files of other tools → `Imported`. Which tool wrote a file is told from its content.

vLLM bench serve, sglang bench_serving, InferenceX    serving.py
the console output of the first two                   console.py
aiperf, GenAI-Perf                                    aiperf.py
guidellm                                              guidellm.py
inference-perf                                        inference_perf.py
"""

import json
from pathlib import Path
from typing import Any

from uncork.errors import BadInput
from uncork.model.imported import Imported

LIMIT_BYTES = 256 << 20


def read_results(path: Path) -> tuple[Imported, ...]:
    """Every level in a result file. Raises `BadInput` where the file is none that is known."""
    try:
        if path.stat().st_size > LIMIT_BYTES:
            raise BadInput(f"{path} is larger than {LIMIT_BYTES >> 20} MiB; nothing was read.")
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}).") from error
    found = parse_results(text)
    if not found:
        raise BadInput(
            f"{path} is no result of vllm, sglang, aiperf, GenAI-Perf, guidellm, inference-perf or InferenceX.",
            next="uncork bench --endpoint URL (measures by itself)",
        )
    return found


def parse_results(text: str) -> tuple[Imported, ...]:
    """Every level in a result's text; none where it is no result."""
    from uncork.bench.importers import aiperf, console, guidellm, inference_perf, serving

    documents = _documents(text)
    if not documents:
        return console.read(text)
    found: list[Imported] = []
    for document in documents:
        for reader in (serving, aiperf, guidellm, inference_perf):
            if levels := reader.read(document):
                found += levels
                break
    return tuple(found)


def _documents(text: str) -> list[dict[str, Any]]:
    """The JSON objects in the text: one, a list of them, or one a line. Infinity and NaN are accepted."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return [one for line in text.splitlines() if (one := _object(line))]
    many = whole if isinstance(whole, list) else [whole]
    return [one for one in many if isinstance(one, dict)]


def _object(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
