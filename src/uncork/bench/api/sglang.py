"""sglang's own /generate. Each event repeats the text so far and counts its tokens."""

from typing import Any

import msgspec

from uncork.bench.api import Api, Options, Reading, items, quoted
from uncork.bench.workload import Prompt


class _Meta(msgspec.Struct):
    id: str = ""
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: Any = None


class _Event(msgspec.Struct):
    text: str | None = None
    meta_info: _Meta | None = None
    error: Any = None


_EVENT = msgspec.json.Decoder(_Event)


def read(events: list[bytes]) -> Reading:
    """Read one stream of /generate. An event whose token count grew is a generation."""
    reading = Reading()
    known, text = 0, ""
    for index, item in items(reading, events, _EVENT):
        meta = item.meta_info or _Meta()
        total = meta.completion_tokens or 0
        if total > known:
            reading.generations.append(index)
            reading.totals.append(total)
            so_far = item.text or ""
            reading.texts.append(quoted(so_far[len(text) :] if so_far.startswith(text) else so_far))
            text, known = so_far, total
        _meta(reading, meta)
    reading.first_answer = 0 if reading.generations else -1
    return reading


def _meta(reading: Reading, meta: _Meta) -> None:
    reading.server_id = reading.server_id or meta.id
    if meta.prompt_tokens:
        reading.input_tokens = meta.prompt_tokens
    if meta.completion_tokens is not None:
        reading.output_tokens = meta.completion_tokens
    if meta.cached_tokens is not None:
        reading.cached_tokens = meta.cached_tokens
    if meta.finish_reason:
        reason = meta.finish_reason
        reading.finish = str(reason.get("type", "") if isinstance(reason, dict) else reason)


def body(prompt: Prompt, output_len: int, options: Options) -> dict[str, Any]:
    """A streaming /generate request; tokens are sent as `input_ids`."""
    source: dict[str, Any] = (
        {"input_ids": list(prompt.tokens)} if prompt.tokens else {"text": prompt.whole_text()}
    )
    sampling = {
        "max_new_tokens": output_len,
        "temperature": options.temperature,
        "ignore_eos": options.ignore_eos,
    }
    return {**source, "sampling_params": sampling, "stream": True, **options.extra}


GENERATE = Api("sglang", "/generate", "sse", body, read)
