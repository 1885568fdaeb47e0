"""Text Generation Inference's /generate_stream: one event a token, counts in the last."""

from typing import Any

import msgspec

from uncork.bench.api import Api, Options, Reading, items, quoted
from uncork.bench.workload import Prompt


class _Token(msgspec.Struct):
    text: str = ""
    special: bool = False


class _Details(msgspec.Struct):
    finish_reason: str | None = None
    generated_tokens: int | None = None
    input_length: int | None = None


class _Event(msgspec.Struct):
    token: _Token | None = None
    generated_text: str | None = None
    details: _Details | None = None
    error: Any = None


_EVENT = msgspec.json.Decoder(_Event)


def read(events: list[bytes]) -> Reading:
    """Read one stream of /generate_stream; special tokens are tokens too."""
    reading = Reading()
    for index, item in items(reading, events, _EVENT):
        if item.token is not None:
            reading.generations.append(index)
            reading.totals.append(len(reading.generations))
            reading.texts.append(quoted(item.token.text))
        if item.details is not None:
            reading.finish = item.details.finish_reason or ""
            reading.output_tokens = item.details.generated_tokens
            reading.input_tokens = item.details.input_length
            reading.done = True
        elif item.generated_text is not None:
            reading.done = True
    reading.first_answer = 0 if reading.generations else -1
    return reading


def body(prompt: Prompt, output_len: int, options: Options) -> dict[str, Any]:
    """A streaming request that asks for details. TGI refuses temperature 0, so greedy is `do_sample: false`."""
    parameters: dict[str, Any] = {"max_new_tokens": output_len, "details": True, "do_sample": False}
    if options.temperature > 0:
        parameters |= {"do_sample": True, "temperature": options.temperature}
    if options.ignore_eos:
        parameters["ignore_eos_token"] = True
    return {"inputs": prompt.whole_text(), "parameters": parameters, **options.extra}


GENERATE_STREAM = Api("tgi", "/generate_stream", "sse", body, read)
