"""CPU lists: what render writes parse reads, and nothing that is not one is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork.parsers import cpulist


@given(st.sets(st.integers(0, 4096), max_size=200))
def test_what_is_rendered_is_parsed_again(numbers: set[int]):
    assert cpulist.parse(cpulist.render(numbers)) == tuple(sorted(numbers))


@given(st.text(max_size=60))
def test_any_text_is_a_list_or_none(text: str):
    found = cpulist.parse(text)

    assert found is None or all(isinstance(number, int) for number in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-3,8\n", (0, 1, 2, 3, 8)),
        ("", ()),
        ("0-7:2", (0, 2, 4, 6)),
        ("0-7:1/4", (0, 4)),
        ("0-238,240-241", (*range(239), 240, 241)),
        ("0-99999999999", None),
        ("cpu0", None),
    ],
)
def test_the_kernels_notations(text: str, expected: tuple[int, ...] | None):
    assert cpulist.parse(text) == expected
