"""OpenAI chat and text completions, as vLLM, sglang, llama.cpp, TensorRT-LLM and many others serve them."""

from typing import Any

import msgspec

from uncork.bench.api import Api, Options, Reading
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


_ONE = msgspec.json.Decoder(_Chunk)
_MANY = msgspec.json.Decoder(list[_Chunk])


def _decode(payloads: list[bytes], reading: Reading) -> list[_Chunk | None]:
    """All payloads in one call, the usual case; one by one where any of them is not what it should be."""
    try:
        return list(_MANY.decode(b"[" + b",".join(payloads) + b"]"))
    except msgspec.MsgspecError:
        pass
    chunks: list[_Chunk | None] = []
    for text in payloads:
        try:
            chunks.append(_ONE.decode(text))
        except msgspec.MsgspecError:
            chunks.append(None)
            reading.garbage = reading.garbage or repr(text[:60])
    return chunks


def read(events: list[bytes]) -> Reading:
    """Read one stream of chat or text completion chunks."""
    reading = Reading()
    payloads, where = [], []
    for index, event in enumerate(events):
        text = payload(event)
        if text == b"[DONE]":
            reading.done = True
        elif text:
            payloads.append(text)
            where.append(index)
    totals: list[int] = []
    known = 0
    for index, chunk in zip(where, _decode(payloads, reading), strict=True):
        if chunk is None:
            continue
        if chunk.usage is not None:
            grew = (chunk.usage.completion_tokens or 0) > known
            known = max(known, chunk.usage.completion_tokens or 0)
            _usage(reading, chunk.usage)
        else:
            grew = False
        if chunk.choices:
            _choice(reading, chunk.choices[0], index, grew)
            if grew and len(totals) < len(reading.generations):
                totals.append(known)
        elif chunk.error is not None or chunk.object == "error":
            reading.error = reading.error or str(chunk.error or chunk.message)[:200]
        if not reading.server_id and chunk.id:
            reading.server_id = chunk.id
    if len(totals) == len(reading.generations):
        reading.totals = totals
    return reading


def _choice(reading: Reading, choice: _Choice, index: int, grew: bool) -> None:
    delta = choice.delta
    if delta is not None:
        text = delta.content
        answer = text or delta.tool_calls or delta.function_call or delta.refusal or delta.audio
        thought = delta.reasoning_content or delta.reasoning
        silent = text == "" and delta.role is None and choice.finish_reason is None
    else:
        text = answer = choice.text
        thought = None
        silent = text == "" and choice.finish_reason is None
    if answer or thought or silent or grew:
        if answer and reading.first_answer < 0:
            reading.first_answer = len(reading.generations)
        reading.generations.append(index)
        reading.texts.append(text if isinstance(text, str) and text else thought or "")
    if choice.finish_reason:
        reading.finish = choice.finish_reason


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


CHAT = Api("chat", "/v1/chat/completions", "sse", chat_body, read)
COMPLETIONS = Api("completions", "/v1/completions", "sse", completions_body, read)
