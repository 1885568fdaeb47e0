"""Every scored public case: what must be reported is, what must not be is not."""

import functools
from pathlib import Path

import pytest
from tests.cases.run_cases import all_cases, files, run

HELD_BACK = (Path(__file__).parents[2] / "docs" / "cases.md").read_text(encoding="utf-8")
answers_of = functools.cache(run)  # three tests look at the same answers
pytestmark = pytest.mark.skipif(not all_cases(), reason="the shared folder is absent")


@pytest.mark.parametrize("folder", all_cases(), ids=lambda folder: folder.name)
def test_a_case_is_answered_as_an_expert_would(folder):
    outcome = answers_of(folder)
    if outcome.weak:
        pytest.skip("a parser sample whose cause was never confirmed")

    assert (outcome.missing, outcome.forbidden, outcome.broken) == ({}, {}, {})


@pytest.mark.parametrize("folder", all_cases(), ids=lambda folder: folder.name)
def test_what_the_text_cannot_settle_says_what_would_and_is_in_the_docs(folder):
    outcome = answers_of(folder)

    undocumented = [id for id in outcome.unknown if f"`{folder.name[:3]}` | `{id}`" not in HELD_BACK]
    assert (undocumented, [id for id, reason in outcome.unknown.items() if len(reason) < 20]) == ([], [])


@pytest.mark.parametrize("folder", all_cases(), ids=lambda folder: folder.name)
def test_the_same_texts_as_one_paste_with_windows_line_ends_answer_the_same(tmp_path, folder):
    outcome = answers_of(folder)
    parts = [
        f"\x1b[1mThis is what {path.stem.replace('-', ' ')} says:\x1b[0m\n\n```\n"
        f"{path.read_text(encoding='utf-8', errors='replace')}\n```\n"
        for path in files(folder)
    ]
    (tmp_path / "issue.md").write_bytes("\n".join(parts).replace("\n", "\r\n").encode())

    pasted = run(folder, [tmp_path / "issue.md"])

    assert (pasted.failed, set(pasted.unknown), pasted.missing, pasted.forbidden, pasted.broken) == (
        outcome.failed,
        set(outcome.unknown),
        outcome.missing,
        outcome.forbidden,
        outcome.broken,
    )
