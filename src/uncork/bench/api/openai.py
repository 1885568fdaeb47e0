"""OpenAI chat and text completions, as vLLM, sglang, llama.cpp, TensorRT-LLM and many others serve them."""

from typing import Any

import msgspec

from uncork.bench.api import Api, Options, Reading, quoted
from uncork.bench.http1 import payload
from uncork.bench.workload import Prompt


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None
    refusal: str | None = None
    audio: Any = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: _PromptDetails | None = None


class _Chunk(msgspec.Struct):
    id: str | None = ""
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None
    object: Any = None
    message: Any = None


_CHUNK = msgspec.json.Decoder(_Chunk)


def read(events: list[bytes]) -> Reading:
    """Read one stream of chat or text completion chunks."""
    reading = Reading()
    totals: list[int] = []
    for index, event in enumerate(events):
        _one(reading, event, index, totals)
    if len(totals) == len(reading.generations):
        reading.totals = totals
    return reading


def shape(event: bytes) -> tuple[bytes, bytes] | None:
    """The bytes before and after the text of an event that is a plain token and nothing else."""
    reading = Reading()
    chunk = _one(reading, event, 0, [])
    if (
        chunk is None
        or chunk.usage is not None
        or not reading.texts
        or reading.finish
        or len(chunk.choices) != 1
    ):
        return None
    delta = chunk.choices[0].delta
    if delta is not None and (delta.role or delta.tool_calls or delta.function_call or delta.audio):
        return None
    text = b'"' + reading.texts[0] + b'"'
    at = event.find(text)
    if len(text) == 2 or at < 0 or event.find(text, at + 1) >= 0:
        return None
    return event[: at + 1], event[at + len(text) - 1 :]


def _one(reading: Reading, event: bytes, index: int, totals: list[int]) -> _Chunk | None:
    """Decode one event into the reading."""
    data = payload(event)
    if data == b"[DONE]":
        reading.done = True
        return None
    if not data:
        return None
    try:
        chunk = _CHUNK.decode(data)
    except msgspec.MsgspecError:
        reading.garbage = reading.garbage or repr(data[:60])
        return None
    if not reading.server_id and chunk.id:
        reading.server_id = chunk.id
    grew, known = False, 0
    if chunk.usage is not None:
        known = chunk.usage.completion_tokens or 0
        grew = known > (totals[-1] if totals else 0)
        _usage(reading, chunk.usage)
    if chunk.choices:
        had = len(reading.generations)
        _choice(reading, chunk.choices[0], index, grew)
        if grew and len(reading.generations) > had:
            totals.append(known)
    elif chunk.error is not None or chunk.object == "error":
        reading.error = reading.error or str(chunk.error or chunk.message)[:200]
    return chunk


def _choice(reading: Reading, choice: _Choice, index: int, grew: bool) -> None:
    """Class of one choice: a generation where any channel holds something, or tokens grew unseen."""
    delta = choice.delta
    if delta is not None:
        content = delta.content
        other = delta.tool_calls or delta.function_call or delta.refusal or delta.audio
        thought = delta.reasoning_content or delta.reasoning or ""
        silent = content == "" and delta.role is None and choice.finish_reason is None
    else:
        content, other, thought = choice.text, None, ""
        silent = content == "" and choice.finish_reason is None
    if choice.finish_reason:
        reading.finish = choice.finish_reason
    if not (content or other or thought or silent or grew):
        return
    if (content or other) and reading.first_answer < 0:
        reading.first_answer = len(reading.generations)
    reading.generations.append(index)
    text = content if isinstance(content, str) else ""
    reading.texts.append(quoted(text or thought))


def _usage(reading: Reading, usage: _Usage) -> None:
    if usage.prompt_tokens:
        reading.input_tokens = usage.prompt_tokens
    if usage.completion_tokens is not None:
        reading.output_tokens = usage.completion_tokens
    if usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens is not None:
        reading.cached_tokens = usage.prompt_tokens_details.cached_tokens


def _common(prompt: Prompt, output_len: int, options: Options) -> dict[str, Any]:
    stream_options: dict[str, Any] = {"include_usage": True}
    if options.usage_per_chunk:
        stream_options["continuous_usage_stats"] = True
    body: dict[str, Any] = {
        "model": options.model,
        "max_tokens": output_len,
        "temperature": options.temperature,
        "stream": True,
        "stream_options": stream_options,
    }
    if options.ignore_eos:
        body["ignore_eos"] = True
    return body


def chat_body(prompt: Prompt, output_len: int, options: Options) -> dict[str, Any]:
    """A streaming chat completion that asks for the usage record."""
    messages = [*prompt.history, {"role": "user", "content": prompt.text}]
    return {"messages": messages, **_common(prompt, output_len, options), **options.extra}


def completions_body(prompt: Prompt, output_len: int, options: Options) -> dict[str, Any]:
    """A streaming text completion; a prompt that is known as tokens is sent as tokens."""
    text = list(prompt.tokens) if prompt.tokens else prompt.whole_text()
    return {"prompt": text, **_common(prompt, output_len, options), **options.extra}


CHAT = Api("chat", "/v1/chat/completions", "sse", chat_body, read, shape)
COMPLETIONS = Api("completions", "/v1/completions", "sse", completions_body, read, shape)
