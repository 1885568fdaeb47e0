"""A text twice as long costs about twice the work: steps of the interpreter are counted, not seconds."""

import sys

import pytest
from tests.parsers.test_fuzz import LINES, PARSERS


def _work(parse, text):
    """Lines of Python that ran, past any cache."""
    parse = getattr(parse, "__wrapped__", parse)
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        parse(text)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: f"{parse.__module__}.{parse.__qualname__}")
def test_work_grows_with_the_text_and_no_faster(parse):
    once = "\n".join(LINES * 4)
    parse(once)  # first use compiles and imports

    assert _work(parse, once + "\n" + once) <= 2.5 * _work(parse, once) + 2000


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: f"{parse.__module__}.{parse.__qualname__}")
@pytest.mark.parametrize(
    "piece",
    [
        "a" * 50_000,
        " " * 50_000,
        "- " * 25_000,
        "0:" * 25_000,
        "x=1 " * 12_000,
        "[" * 50_000,
        "GPU0 " * 10_000,
        "=" * 50_000,
    ],
)
def test_a_line_without_end_is_no_trap(parse, piece):
    parse(piece)
    parse("\t" + piece + ": 1\n" + piece)
