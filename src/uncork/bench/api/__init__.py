"""How each kind of server is asked, and what its events mean. One file a dialect, one entry in `APIS`.

A dialect says where to post, how a body looks, how the stream is framed, and reads the events of one ended
response into a `Reading`. Event classes are those of docs/bench.md: an opener (role only), a finish, a usage
record and `[DONE]` never count as a token.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from uncork.bench.http1 import payload
from uncork.bench.workload import Prompt

DIALECTS = ("chat", "completions", "sglang", "tgi", "ollama")


class Reading(msgspec.Struct):
    """What the events of one response say. `generations` are indices into its events."""

    generations: list[int] = []
    totals: list[int] = []  # tokens so far at each generation, where the server says so
    first_answer: int = -1  # position in `generations` of the first that is not reasoning
    texts: list[bytes] = []  # of each generation, as it stands inside the quotes of a JSON string
    finish: str = ""
    done: bool = False  # the dialect's own end mark was there
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    server_id: str = ""
    error: str = ""
    garbage: str = ""

    def text(self) -> str:
        """The whole answer."""
        try:
            return str(msgspec.json.decode(b'"' + b"".join(self.texts) + b'"'))
        except msgspec.DecodeError:
            return b"".join(self.texts).decode(errors="replace")


class Item(Protocol):
    """An event of a dialect that says errors under `error`."""

    error: Any


ItemT = TypeVar("ItemT", bound=Item)


def items(
    reading: Reading,
    events: list[bytes],
    decoder: msgspec.json.Decoder[ItemT],
    unframe: Callable[[bytes], bytes] = payload,
) -> Iterator[tuple[int, ItemT]]:
    """What the events hold, each with its index; end marks, errors and garbage go into the reading."""
    for index, event in enumerate(events):
        data = unframe(event)
        if data == b"[DONE]":
            reading.done = True
            continue
        if not data:
            continue
        try:
            item = decoder.decode(data)
        except msgspec.MsgspecError:
            reading.garbage = reading.garbage or repr(data[:60])
            continue
        if item.error is not None:
            reading.error = str(item.error)[:200]
            continue
        yield index, item


def quoted(text: str) -> bytes:
    """Text as it stands inside the quotes of a JSON string."""
    return msgspec.json.encode(text)[1:-1]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What every body of a level has in common."""

    model: str
    temperature: float = 0.0
    ignore_eos: bool = True
    usage_per_chunk: bool = False
    extra: dict[str, Any] = {}


class Api(msgspec.Struct, frozen=True):
    """A dialect."""

    name: str
    path: str
    framing: Literal["sse", "ndjson"]
    body: Callable[[Prompt, int, Options], dict[str, Any]]
    read: Callable[[list[bytes]], Reading]
    # The bytes around the text of a plain token event, where the dialect has such events: see plain.py.
    shape: Callable[[bytes], tuple[bytes, bytes] | None] | None = None


def load(name: str) -> Api:
    """The dialect of that name (imports only its file). Raises KeyError."""
    if name in ("chat", "completions"):
        from uncork.bench.api import openai

        return openai.CHAT if name == "chat" else openai.COMPLETIONS
    if name == "sglang":
        from uncork.bench.api import sglang

        return sglang.GENERATE
    if name == "tgi":
        from uncork.bench.api import tgi

        return tgi.GENERATE_STREAM
    if name == "ollama":
        from uncork.bench.api import ollama

        return ollama.GENERATE
    raise KeyError(name)
