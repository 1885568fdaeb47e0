"""Every part that a reader of system-improve.md looks for is there, and hostile text stays text."""

import re

import msgspec
from tests.record import largest

from uncork.record.finished import After, finished_text
from uncork.record.sealed import Before, sealed_text

SEALED = (
    *("Verdict", "The host", "Findings, ranked", "Confirmed right", "What could not be read"),
    *("Planned changes", "Found and deliberately left alone", "What will happen", "Gate"),
    *("If something goes wrong", "Baseline"),
)
FINISHED = (
    *("Decision", "Log", "Who approved what", "Gate afterwards", "Before and after"),
    *("What lasts, and what a reboot loses", "What people asked for meanwhile", "How to check this record"),
)


def before(story) -> Before:
    return Before(
        plan=story.plan,
        audit=story.audit,
        server=story.host,
        host_lines={"boot": "b-1", "machine": "5e5e", "kernel": story.host},
        gate=story.gate_before,
        bench=story.before,
        bound=("Bound at one stream: 200 tokens/s",),
        efficiency=0.28,
        hold_s=300.0,
        undo={},
        written_at="2026-09-21 12:00:00 +0000",
        explain={},
    )


def headings(text: str) -> tuple[str, ...]:
    return tuple(line[3:] for line in text.splitlines() if line.startswith("## "))


def test_the_sealed_part_has_every_section():
    text = sealed_text(before(largest.story()))

    assert headings(text) == SEALED
    assert text.startswith("---\nplan: 20260921-120000-abcd\n")
    assert "boot: b-1\nwritten: 2026-09-21 12:00:00 +0000\nstatus: sealed before any change\n---" in text
    assert "uncork approve cdcdcdcd" in text
    assert re.search(r"- bandwidth, copy push: 56 pairs, each at least [\d.]+ to [\d.]+ GB/s", text)


def test_the_verdict_is_five_lines():
    text = sealed_text(before(largest.story()))
    lines = text[text.index("## Verdict") : text.index("## The host")].splitlines()

    assert [line[:2] for line in lines if line and not line.startswith("#")] == ["1.", "2.", "3.", "4.", "5."]


def test_an_attribution_changes_no_more_values_than_the_groups_that_it_toggles():
    story = largest.story()
    toggles = [
        msgspec.structs.replace(step, name=f"attribute-1-{step.name}")
        for step in story.plan.steps
        if step.changes
    ]
    assert toggles
    plan = msgspec.structs.replace(story.plan, steps=(*story.plan.steps, *toggles))
    more = msgspec.structs.replace(before(story), plan=plan)

    def planned(known):
        return re.search(r"Will be changed while the server runs: (\d+)", sealed_text(known)).group(1)

    assert planned(more) == planned(before(story)) == str(sum(len(step.changes) for step in story.plan.steps))


def test_the_finished_part_has_every_section():
    story = largest.story()
    text = finished_text(After(story.plan, story.gate_after, story.comparison, story.written_at))

    assert headings(text) == FINISHED
    assert "| alice | `cdcdcdcdcdcdcdcd` | uncork run --yes | stands |" in text
    assert "uncork record verify 20260921-120000-abcd" in text


def test_hostile_text_stays_text():
    story = largest.hostile()
    text = sealed_text(before(story)) + finished_text(After(story.plan, story.gate_after, None, ""))
    outside_code = re.sub(r"`[^`\n]*`", "", text)

    assert re.findall(r"<(?!/?(?:details|summary)>)[a-z!/]", outside_code) == []
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text) == []
    assert max(map(len, text.splitlines())) < 10_000
