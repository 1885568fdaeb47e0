"""From the bytes of one ended exchange to one record: times, counts, outcome."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import pairwise
from typing import Any

import msgspec

from uncork.bench.api import Api, Reading
from uncork.bench.clock import to_monotonic
from uncork.bench.http1 import Response, take_apart


class Exchange:
    """One request on the wire, as the loop leaves it: raw pieces and their stamps."""

    __slots__ = (
        "asked",
        "detail",
        "endpoint",
        "first_connect",
        "index",
        "intended_ns",
        "numbers",
        "outcome",
        "parts",
        "reconnected",
        "sent_ns",
        "stamps",
        "target",
        "wire",
    )

    def __init__(self, index: int, target: int, asked: int, intended_ns: int) -> None:
        self.index = index
        self.target = target  # output tokens asked for
        self.asked = asked  # input tokens aimed at
        self.intended_ns = intended_ns
        self.endpoint = 0
        self.sent_ns = 0
        self.parts: list[bytes] = []
        self.numbers: list[
            int
        ] = []  # of each part among the reads; a read without one was a plain token event
        self.stamps = bytearray()  # 16 bytes a part: struct timespec
        self.outcome = ""  # set by the loop where the exchange did not end by itself
        self.detail = ""
        self.reconnected = False
        self.first_connect = False
        self.wire = b""  # kept until the exchange is over, for one more try

    def keep(self, data: bytes) -> None:
        """Keep the bytes of the read that was stamped last."""
        self.parts.append(data)
        self.numbers.append(len(self.stamps) // 16 - 1)


class Record(msgspec.Struct, omit_defaults=True):
    """One request as it stands in requests.jsonl; every `_ns` counts from the run's start."""

    level: str
    repeat: int
    index: int
    endpoint: int
    intended_ns: int
    sent_ns: int
    stamp: str  # kernel or user
    outcome: str
    first_byte_ns: int | None = None
    event_ns: Any = ()  # one a generation event
    event_tokens: Any = ()  # tokens of each, empty where unknown
    first_answer: int | None = None  # index of the first event that is not reasoning
    end_ns: int | None = None  # last byte
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    asked_input: int = 0
    asked_output: int = 0
    token_source: str = ""
    finish: str = ""
    status: int = 0
    detail: str = ""
    flags: tuple[str, ...] = ()
    server_id: str = ""
    merged: int = 0  # generation events that were not the first of their read
    merged_late: int = 0
    text: str | None = None


def encode_array(value: Any) -> Any:
    """For encoders: an array of times as a list."""
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"cannot be stored: {type(value).__name__}")


def decode_array(kind: Any, value: Any) -> Any:
    """For decoders: a list as an array of times."""
    if kind is array:
        return array("q", value)
    raise TypeError(f"cannot be read: {kind}")


class Reader(msgspec.Struct, frozen=True):
    """What reading an exchange needs to know of its level."""

    api: Api
    level: str
    repeat: int
    origin_ns: int
    save_text: bool
    full_length: bool  # an answer shorter than asked for is flagged short


def read_exchange(exchange: Exchange, reader: Reader, offset_ns: int, blind: list[tuple[int, int]]) -> Record:
    """Turn an ended exchange into its record; drops nothing silently.

    `blind` lists the times during which the loop could not look at its sockets for more than its limit:
    events merged into one read then have no time of their own.
    """
    response = take_apart(exchange.parts, reader.api.framing)
    reading = reader.api.read(response.events)
    stamps, kernel = to_monotonic(exchange.stamps, offset_ns, reader.origin_ns)
    kept = [exchange.numbers[response.reads[i]] for i in reading.generations]
    reads = sorted(kept + _plain_reads(exchange)) if len(exchange.numbers) < len(stamps) else kept
    record = _begin_record(exchange, reader, reading)
    record.stamp = "kernel" if kernel else "user"
    record.status = response.status
    record.event_ns = _at(stamps, reads)
    if stamps:
        record.first_byte_ns, record.end_ns = stamps[0], stamps[-1]
    if reading.first_answer > 0:
        first = kept[reading.first_answer]
        record.first_answer = bisect_left(reads, first) + reading.first_answer - bisect_left(kept, first)
    _judge(record, exchange, response, reading)
    _count_tokens(record, reading, len(reads))
    _flag(record, exchange, reading, reader)
    if len(set(record.event_ns)) < len(reads):  # events of one read share its stamp
        _count_merged(record, reads, reader.origin_ns, blind)
    if reader.save_text:
        record.text = reading.text()
    return record


def _begin_record(exchange: Exchange, reader: Reader, reading: Reading) -> Record:
    return Record(
        level=reader.level,
        repeat=reader.repeat,
        index=exchange.index,
        endpoint=exchange.endpoint,
        intended_ns=exchange.intended_ns - reader.origin_ns,
        sent_ns=exchange.sent_ns - reader.origin_ns if exchange.sent_ns else 0,
        stamp="",
        outcome="",
        asked_input=exchange.asked,
        asked_output=exchange.target,
        finish=reading.finish,
        server_id=reading.server_id,
        input_tokens=reading.input_tokens,
        cached_tokens=reading.cached_tokens,
    )


def _plain_reads(exchange: Exchange) -> list[int]:
    """The numbers of the reads of which only the stamp was kept."""
    found: list[int] = []
    for before, after in pairwise([*exchange.numbers, len(exchange.stamps) // 16]):
        found += range(before + 1, after)
    return found


def _judge(record: Record, exchange: Exchange, response: Response, reading: Reading) -> None:
    outcome, detail = "ok", ""
    if exchange.outcome and not (exchange.outcome == "truncated" and response.garbage):
        outcome, detail = exchange.outcome, exchange.detail
    elif response.garbage or (not response.status and exchange.parts):
        outcome, detail = "garbage", response.garbage or "the answer has no head"
    elif response.status != 200:
        outcome = "http-status" if response.status else "reset"
        detail = response.body[:200].decode(errors="replace") if response.status else exchange.detail
    elif reading.error:
        outcome, detail = "in-band-error", reading.error
    elif reading.garbage:
        outcome, detail = "garbage", reading.garbage
    elif not response.complete or not (reading.finish or reading.done):
        outcome, detail = "truncated", "the stream ended before its finish reason"
    elif not reading.generations:
        outcome, detail = "empty", "the answer holds no token"
    record.outcome, record.detail = outcome, detail


def _count_tokens(record: Record, reading: Reading, events: int) -> None:
    """Attribute tokens to events and name the source; see docs/bench.md, *Tokens*."""
    total = reading.output_tokens
    if reading.totals and len(reading.totals) == events:
        steps = [reading.totals[0]]
        steps += [now - before for before, now in zip(reading.totals, reading.totals[1:], strict=False)]
        record.event_tokens, record.token_source = steps, "per-event"
        record.output_tokens = max(total or 0, reading.totals[-1])
    elif total is not None and total == events:
        record.event_tokens, record.token_source = [1] * events, "usage"
        record.output_tokens = total
    elif total:
        record.output_tokens, record.token_source = total, "usage-unattributed"
    else:
        record.output_tokens, record.token_source = events, "events"


def _flag(record: Record, exchange: Exchange, reading: Reading, reader: Reader) -> None:
    flags = []
    if record.outcome == "ok":
        tokens = record.output_tokens or 0
        if reader.full_length and tokens < exchange.target:
            flags.append("short")
        if tokens > exchange.target:
            flags.append("long")
        if reading.output_tokens is None:
            flags.append("no-usage")
        if record.input_tokens and abs(record.input_tokens - exchange.asked) > max(1, 0.02 * exchange.asked):
            flags.append("off-length")
        if (
            reader.full_length
            and reading.finish not in ("length", "max_tokens", "")
            and tokens >= exchange.target
        ):
            flags.append("wrong-finish")
    if exchange.reconnected:
        flags.append("reconnected")
    if exchange.first_connect:
        flags.append("connected-inline")
    record.flags = tuple(flags)


def _count_merged(record: Record, reads: list[int], origin_ns: int, blind: list[tuple[int, int]]) -> None:
    """Events that came in the same read as the one before, and those of them that had to wait for the loop."""
    looked_up, late = None, False
    for (before, read), (earlier, at) in zip(pairwise(reads), pairwise(record.event_ns), strict=True):
        if read == before or at == earlier:
            if at != looked_up:
                looked_up, stamp = at, at + origin_ns
                near = bisect_left(blind, (stamp, 0))
                late = any(start <= stamp <= end for start, end in blind[max(0, near - 1) : near + 1])
            record.merged += 1
            record.merged_late += late


def _at(stamps: array[int], reads: list[int]) -> array[int]:
    """The stamps of those reads, in their order."""
    if reads and reads == list(range(reads[0], reads[0] + len(reads))):
        return stamps[reads[0] : reads[-1] + 1]  # the usual case: an event a read
    return array("q", map(stamps.__getitem__, reads))
