"""Ollama's /api/generate: newline-delimited JSON, counts in the last line."""

from typing import Any

import msgspec

from uncork.bench.api import Api, Options, Reading, items, quoted
from uncork.bench.workload import Prompt


class _Line(msgspec.Struct):
    response: str = ""
    thinking: str | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


_LINE = msgspec.json.Decoder(_Line)


def read(events: list[bytes]) -> Reading:
    """Read one stream of /api/generate."""
    reading = Reading()
    for index, line in items(reading, events, _LINE, bytes.strip):
        if line.response or line.thinking or not line.done:
            if line.response and reading.first_answer < 0:
                reading.first_answer = len(reading.generations)
            reading.generations.append(index)
            reading.texts.append(quoted(line.response or line.thinking or ""))
        if line.done:
            reading.done = True
            reading.finish = line.done_reason or "stop"
            reading.input_tokens = line.prompt_eval_count
            reading.output_tokens = line.eval_count
    return reading


def body(prompt: Prompt, output_len: int, options: Options) -> dict[str, Any]:
    """A streaming request. Ollama cannot ignore the end token: answers may be short, and are counted so."""
    settings = {"num_predict": output_len, "temperature": options.temperature}
    return {
        "model": options.model,
        "prompt": prompt.whole_text(),
        "raw": True,
        "stream": True,
        "options": settings,
        **options.extra,
    }


GENERATE = Api("ollama", "/api/generate", "ndjson", body, read)
