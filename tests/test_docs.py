"""The documents say what the program does."""

import inspect
import re
from pathlib import Path

import pytest

import uncork.errors
from uncork.cli import VERBS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


def test_the_readme_lists_every_verb_with_its_help():
    rows = dict(re.findall(r"^\| `uncork ([a-z-]+)` \| (.+) \|$", README, re.MULTILINE))

    assert rows == VERBS


def test_every_exit_status_is_in_the_readme():
    kinds = [kind for _, kind in inspect.getmembers(uncork.errors, inspect.isclass)]
    statuses = {kind.exit for kind in kinds if issubclass(kind, uncork.errors.UncorkError)} - {70}
    spans = [
        tuple(map(int, re.findall(r"\d+", cell)))
        for cell in re.findall(r"^\| ([\d–]+) \|", README, re.MULTILINE)
    ]

    assert all(any(span[0] <= status <= span[-1] for span in spans) for status in statuses)


def test_every_error_code_is_used_once():
    kinds = [kind for _, kind in inspect.getmembers(uncork.errors, inspect.isclass)]
    codes = [kind.code for kind in kinds if issubclass(kind, uncork.errors.UncorkError)]

    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]

    assert [link for link in links if link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_names_only_verbs_that_exist(page):
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`uncork ([a-z]+)[ `]", text)) | set(
        re.findall(r"^(?:sudo )?uncork ([a-z]+)", text, re.MULTILINE)
    )

    assert named <= set(VERBS)


def test_every_next_call_names_a_verb_that_exists():
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    calls = " ".join(re.findall(r"next=\s*f?\"([^\"]*)\"", source))
    named = set(re.findall(r"\buncork ([a-z]+)", calls))

    assert named - {"that", "uncork"} <= set(VERBS)
