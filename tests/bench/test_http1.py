"""A response is taken apart the same however the network cut it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bench.streams import DONE, END, FINISH, HEAD, ROLE, answer, chunk, event, usage

from uncork.bench.http1 import ended, parse_head, payload, take_apart
from uncork.bench.plain import SIZE_LINES, Plain, latest_events

RAW = b"".join(answer([" a", " bb", ' "q"', " \\n", " é"]))


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    marks = [0, *sorted({place % len(raw) for place in places} - {0}), len(raw)]
    return [raw[a:b] for a, b in pairwise(marks)]


@given(st.lists(st.integers(0, len(RAW) - 1), max_size=40))
def test_events_do_not_depend_on_how_reads_were_cut(places):
    parts = cut(RAW, places)
    whole = take_apart([RAW], "sse")
    response = take_apart(parts, "sse")

    assert response.events == whole.events
    assert response.complete


@given(st.lists(st.integers(0, len(RAW) - 1), max_size=40))
def test_an_event_belongs_to_the_read_that_brought_its_last_byte(places):
    parts = cut(RAW, places)
    response = take_apart(parts, "sse")
    ends = [sum(map(len, parts[: i + 1])) for i in range(len(parts))]
    at, expected = 0, []
    for text in response.events:
        at = RAW.index(text + b"\n\n", at) + len(text) + 2
        expected.append(next(i for i, end in enumerate(ends) if end >= at))

    assert response.reads == expected


@given(st.integers(1, len(RAW) - 1))
def test_a_response_that_broke_off_is_not_complete(length):
    assert not take_apart([RAW[:length]], "sse").complete


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_no_bytes_whatever_make_it_raise(parts):
    take_apart([HEAD, *parts], "sse")
    take_apart(parts or [b""], "ndjson")


@given(st.lists(st.integers(0, len(RAW) - 1), max_size=40))
def test_the_end_is_seen_exactly_once(places):
    parts = cut(RAW, places)
    head = parse_head(RAW)
    seen = [
        ended(parts[: i + 1], head)
        for i in range(len(parts))
        if sum(map(len, parts[: i + 1])) > head.length and (parts[i][-4:] == b"\r\n\r\n" or len(parts[i]) < 5)
    ]

    assert seen.count(True) == 1
    assert seen[-1] is True


def test_a_payload_that_looks_like_an_end_is_not_one():
    raw = HEAD + chunk(b"data: 0\r\n\r\n")
    head = parse_head(raw)

    assert not ended([raw], head)


def test_trailers_after_the_last_chunk_end_the_body():
    raw = HEAD + chunk(event(" a")) + b"0\r\nX-Time: 3\r\n\r\n"

    assert ended([raw], parse_head(raw))
    assert take_apart([raw], "sse").complete


def test_carriage_returns_separate_events_too():
    raw = HEAD + chunk(b"data: 1\r\n\r\n") + chunk(b"data: 2\r\n\r\n") + END

    assert [payload(e) for e in take_apart([raw], "sse").events] == [b"1", b"2"]


def test_comments_and_named_events():
    assert payload(b": ping") == b""
    assert payload(b"event: error\ndata: {}") == b"{}"
    assert payload(b"data:x") == b"x"
    assert payload(b"data: a\ndata: b") == b"a\nb"


@pytest.mark.parametrize("size", [b"zz", b"-5", b"1" * 70])
def test_a_bad_chunk_size_is_garbage(size):
    assert take_apart([HEAD, size + b"\r\nx\r\n"], "sse").garbage


def test_a_body_with_a_length():
    raw = b"HTTP/1.1 429 Busy\r\nContent-Length: 4\r\nConnection: close\r\n\r\nwait"
    response = take_apart([raw[:30], raw[30:]], "sse")

    assert (response.status, response.body, response.complete, response.keep_alive) == (
        429,
        b"wait",
        True,
        False,
    )
    assert ended([raw], parse_head(raw))
    assert not ended([raw[:-1]], parse_head(raw))


def test_what_is_not_http():
    assert take_apart([b"SSH-2.0-OpenSSH_9.2\r\n"], "sse").garbage
    with pytest.raises(ValueError, match="not HTTP"):
        parse_head(b"220 mail ready\r\n")


@given(st.text(max_size=20), st.integers(0, 3))
def test_a_plain_event_is_recognised_by_its_bytes_alone(text, kind):
    import msgspec

    from uncork.bench.api.openai import shape

    plain = Plain(*shape(next(latest_events(chunk(event(" first"))))))
    quoted = msgspec.json.encode(text)[1:-1].decode()
    data = [
        chunk(event(quoted)),
        chunk(event(quoted)) + chunk(event(quoted)),
        chunk(event(quoted, finish='"stop"')),
        chunk(usage(3, 4)),
    ][kind]
    events = (1, 2, 0, 0)[kind] if '"' not in text else 0

    assert plain.cut(data) == ((b"", events, b"") if events else (data, 0, b""))


PLAIN = Plain(*event("@").split(b"@"))


def test_a_run_of_plain_events_is_cut_out_of_a_read():
    first, token, finish = chunk(ROLE), chunk(event(" a")), chunk(FINISH) + chunk(DONE) + END

    assert PLAIN.cut(HEAD + first + token * 5 + finish) == (HEAD + first + token, 4, finish)
    assert PLAIN.cut(first + token * 5 + finish, keep=1) == (first + token * 2, 3, finish)
    assert PLAIN.cut(token * 5, keep=1) == (token, 4, b"")
    assert PLAIN.cut(token, keep=1) == (token, 0, b"")
    assert PLAIN.cut(token * 2 + token[:9]) == (b"", 2, token[:9])
    assert PLAIN.cut(token[9:] + token) == (token[9:], 1, b"")


@given(st.binary(max_size=200), st.integers(0, 4), st.binary(max_size=200), st.integers(0, 2))
def test_what_is_cut_out_is_all_that_is_missing(before, tokens, behind, keep):
    data = before + chunk(event(" a")) * tokens + behind
    first, events, rest = PLAIN.cut(data, keep)

    assert first + chunk(event(" a")) * events + rest == data
    assert events == max(0, tokens - bool(before) - keep)  # bytes glued to the first token hide it


def test_the_latest_events_of_a_read():
    one, two = chunk(event(" a")), chunk(event(" b") + event(" c"))

    assert list(latest_events(HEAD + one + two + one[:20])) == [event(" c"), event(" a")]
    assert list(latest_events(one * 9)) == [event(" a")] * 6
    assert list(latest_events(b"12\r\n")) == []


@given(st.integers(0, 5000))
def test_the_first_line_of_a_chunk_follows_from_its_length(payload):
    data = chunk(b"x" * payload)
    line, rest = SIZE_LINES[len(data)]

    assert (data.startswith(line), rest) == (True, payload + 2)


def test_no_shape_is_learnt_from_what_is_not_a_plain_token():
    from uncork.bench.api.openai import shape

    assert [shape(e) for e in (ROLE, FINISH, usage(1, 2), DONE, event(""), b"data: {garbage\n\n")] == [
        None
    ] * 6
    assert shape(event("ref-7", ident="ref-7")) is None  # the text stands twice: which one is it?
