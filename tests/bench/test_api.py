"""Each dialect: what is asked, and which events are tokens."""

import msgspec
import pytest
from tests.bench.streams import DONE, FINISH, ROLE, answer, event, stamps, usage

from uncork.bench import api
from uncork.bench.api import Options
from uncork.bench.http1 import take_apart
from uncork.bench.records import Exchange, Reader, read_exchange
from uncork.bench.workload import Prompt

OPTIONS = Options(model="m")
PROMPT = Prompt("hello", 3, 7, history=({"role": "user", "content": "first"},))


def sse(*items):
    return [b"data: " + msgspec.json.encode(item) for item in items]


def delta(**fields):
    return {"id": "x", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def test_chat_counts_every_channel_and_no_frame():
    events = sse(
        delta(role="assistant", content=""),
        delta(reasoning_content="hm"),
        delta(reasoning="mm"),
        delta(content="a"),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}]),
        delta(content=""),
        delta(),
        {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"id": "x", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}},
    )
    reading = api.load("chat").read([*events, b": ping", b"data: [DONE]"])

    assert reading.generations == [1, 2, 3, 4, 5]
    assert reading.first_answer == 2
    assert (reading.finish, reading.done, reading.input_tokens, reading.output_tokens) == ("stop", True, 3, 5)
    assert reading.text() == "hmmma"
    assert reading.server_id == "x"


def test_tokens_that_show_no_text_count_where_usage_grows():
    def with_usage(n, **fields):
        return {**delta(**fields), "usage": {"prompt_tokens": 3, "completion_tokens": n}}

    reading = api.load("chat").read(
        sse(
            with_usage(0, role="assistant"),
            with_usage(1, content="a"),
            with_usage(3),
            with_usage(5, content="b"),
        )
    )

    assert (reading.generations, reading.totals) == ([1, 2, 3], [1, 3, 5])


def test_a_finish_that_carries_text_is_a_token_too():
    last = {"choices": [{"index": 0, "delta": {"content": "!"}, "finish_reason": "length"}]}
    reading = api.load("chat").read(sse(delta(content="a"), last))

    assert (reading.generations, reading.finish) == ([0, 1], "length")


@pytest.mark.parametrize(
    "item",
    [
        {"error": {"message": "out of memory"}},
        {"object": "error", "message": "out of memory", "code": 500},
    ],
)
def test_an_error_in_the_stream_is_an_error(item):
    reading = api.load("chat").read(sse(delta(content="a"), item))

    assert "out of memory" in reading.error


def test_text_completions():
    items = [
        {"id": "c", "choices": [{"index": 0, "text": t, "finish_reason": None}]} for t in (" a", " b", "")
    ]
    reading = api.load("completions").read(sse(*items))

    assert (reading.generations, reading.text()) == ([0, 1, 2], " a b")


def test_cached_tokens_are_kept():
    record = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}
    reading = api.load("chat").read(sse({"choices": [], "usage": record}))

    assert reading.cached_tokens == 8


def test_sglang_counts_by_its_own_numbers():
    items = [
        {
            "text": "a",
            "meta_info": {"id": "s", "completion_tokens": 1, "prompt_tokens": 4, "finish_reason": None},
        },
        {"text": "a b c", "meta_info": {"completion_tokens": 3, "finish_reason": None}},
        {"text": "a b c", "meta_info": {"completion_tokens": 3, "finish_reason": {"type": "length"}}},
    ]
    reading = api.load("sglang").read([*sse(*items), b"data: [DONE]"])

    assert (reading.generations, reading.totals, reading.text()) == ([0, 1], [1, 3], "a b c")
    assert (reading.finish, reading.done, reading.input_tokens, reading.output_tokens) == (
        "length",
        True,
        4,
        3,
    )


def test_tgi_counts_a_token_an_event():
    details = {"finish_reason": "length", "generated_tokens": 2, "input_length": 6}
    items = [
        {"index": 1, "token": {"id": 1, "text": " a", "special": False}, "generated_text": None},
        {"index": 2, "token": {"id": 2, "text": " b"}, "generated_text": " a b", "details": details},
    ]
    reading = api.load("tgi").read(sse(*items))

    assert (reading.totals, reading.text(), reading.done) == ([1, 2], " a b", True)
    assert (reading.input_tokens, reading.output_tokens, reading.finish) == (6, 2, "length")


def test_ollama_speaks_lines():
    lines = [
        {"response": " a", "done": False},
        {"response": "", "thinking": "hm", "done": False},
        {"response": "", "done": True, "done_reason": "length", "prompt_eval_count": 6, "eval_count": 2},
    ]
    body = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n" % len(body)
    response = take_apart([head + body[:30], body[30:]], "ndjson")
    reading = api.load("ollama").read(response.events)

    assert (reading.generations, reading.finish, reading.done) == ([0, 1], "length", True)
    assert (reading.input_tokens, reading.output_tokens) == (6, 2)
    assert response.reads == [1, 1, 1]


@pytest.mark.parametrize("name", ["chat", "completions", "sglang", "tgi", "ollama"])
def test_garbage_is_named_not_raised(name):
    reading = api.load(name).read([b"data: {nonsense" if name != "ollama" else b"{nonsense"])

    assert reading.garbage


def test_bodies_ask_for_the_same():
    bodies = {name: api.load(name).body(PROMPT, 7, OPTIONS) for name in api.DIALECTS}

    assert bodies["chat"]["messages"][-1] == {"role": "user", "content": "hello"}
    assert bodies["chat"]["stream_options"] == {"include_usage": True}
    assert bodies["completions"]["prompt"] == "first\nhello"
    assert bodies["sglang"]["sampling_params"] == {
        "max_new_tokens": 7,
        "temperature": 0.0,
        "ignore_eos": True,
    }
    assert bodies["tgi"]["parameters"]["max_new_tokens"] == 7
    assert bodies["ollama"]["options"]["num_predict"] == 7
    assert all(body.get("stream", True) for body in bodies.values())
    tokens = Prompt("", 3, 7, tokens=(5, 6, 7))
    assert api.load("completions").body(tokens, 7, OPTIONS)["prompt"] == [5, 6, 7]
    assert api.load("sglang").body(tokens, 7, OPTIONS)["input_ids"] == [5, 6, 7]


def record_of(parts, **exchange_fields):
    exchange = Exchange(0, 3, 5, 0)
    exchange.parts = parts
    exchange.stamps = stamps(len(parts))
    exchange.numbers = list(range(len(parts)))
    for name, value in exchange_fields.items():
        setattr(exchange, name, value)
    return read_exchange(exchange, Reader(api.load("chat"), "c1", 0, 0, True, True), 0, [])


def whole(*events):
    from tests.bench.streams import END, HEAD, chunk

    return [HEAD, *(chunk(one) for one in events), END]


def test_tokens_are_attributed_only_where_the_counts_agree():
    agree = record_of(whole(ROLE, event(" a"), event(" b"), event(" c"), FINISH, usage(5, 3), DONE))
    differ = record_of(whole(ROLE, event(" a"), event(" b"), FINISH, usage(5, 3), DONE))
    none = record_of(whole(ROLE, event(" a"), event(" b"), event(" c"), FINISH, DONE))

    assert (agree.token_source, list(agree.event_tokens), agree.output_tokens) == ("usage", [1, 1, 1], 3)
    assert (differ.token_source, list(differ.event_tokens), differ.output_tokens) == (
        "usage-unattributed",
        [],
        3,
    )
    assert (none.token_source, none.output_tokens, none.flags) == ("events", 3, ("no-usage",))


def test_the_requested_length_is_never_taken_for_the_answer_s():
    record = record_of(whole(ROLE, event(" a"), FINISH, DONE))

    assert (record.asked_output, record.output_tokens) == (3, 1)
    assert "short" in record.flags


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ((ROLE, FINISH, DONE), "empty"),
        ((ROLE, event(" a")), "truncated"),
        ((ROLE, event(" a"), b'data: {"error": "boom"}\n\n'), "in-band-error"),
        ((ROLE, event(" a"), b"data: {garb\n\n", FINISH, DONE), "garbage"),
    ],
)
def test_outcomes(events, outcome):
    assert record_of(whole(*events)).outcome == outcome


def test_text_survives_escapes():
    record = record_of(whole(ROLE, event("\\u00e9"), event('\\"'), event("\\n"), FINISH, usage(5, 3), DONE))

    assert record.text == 'é"\n'


@pytest.mark.parametrize("plain", [set(), {3}, set(range(3, 12)), {3, 4, 7, 8, 9}])
def test_reads_of_which_only_the_stamp_was_kept_are_tokens_like_others(plain):
    parts = answer([f" tok{i}" for i in range(12)])
    full = record_of(parts)
    exchange = Exchange(0, 3, 5, 0)
    for number, part in enumerate(parts):
        exchange.stamps += stamps(len(parts))[16 * number : 16 * number + 16]
        if number not in plain:
            exchange.keep(part)
    record = read_exchange(exchange, Reader(api.load("chat"), "c1", 0, 0, True, True), 0, [])
    record.text = full.text  # what was not kept cannot be told

    assert record == full


def test_the_first_answer_is_found_behind_thoughts_of_which_only_stamps_were_kept():
    thought = event("hm").replace(b'"content"', b'"reasoning_content"')
    parts = whole(ROLE, thought, thought, thought, event(" a"), event(" b"), FINISH, usage(5, 5), DONE)
    exchange = Exchange(0, 5, 5, 0)
    for number, part in enumerate(parts):
        exchange.stamps += stamps(len(parts))[16 * number : 16 * number + 16]
        if number not in (3, 4):
            exchange.keep(part)
    record = read_exchange(exchange, Reader(api.load("chat"), "c1", 0, 0, False, True), 0, [])

    assert (len(record.event_ns), record.first_answer, record.output_tokens) == (5, 3, 5)
