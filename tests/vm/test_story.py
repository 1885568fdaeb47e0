"""The whole loop in the guest: found, recorded, applied, gated, measured, compared, rolled back."""

import os
from pathlib import Path

import pytest
from tests.vm import story

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def told(bootable):
    machine = story.boot()
    try:
        happened = story.tell(machine)
        if file := os.environ.get("UNCORK_VM_STORY"):
            Path(file).write_text(story.page(happened, machine.boot_s[0]), encoding="utf-8")
        yield happened
    finally:
        machine.close()


def output(told: story.Story, command: str) -> str:
    return next(text for line, text in told.lines if line.startswith(command))


def test_the_loop_ends_well(told):
    said = output(told, "uncork run")
    ended = {step["name"]: step["status"] for step in told.plan["steps"]}

    assert (told.run_rc, "pass: 8 GPUs" in said) == (0, True), said
    assert {name for name, status in ended.items() if status != "completed"} == set(), said


@pytest.mark.parametrize("planted", story.PLANTED, ids=lambda planted: planted.check)
def test_what_was_planted_is_found_changed_and_put_back(told, planted):
    before, during, after = (story.line_of(s, planted.line) for s in (told.before, told.during, told.after))

    assert (planted.check in told.record, planted.check in told.cured) == (True, True)
    assert (during != before, after) == (True, before)


def test_rollback_leaves_the_guest_as_it_was(told):
    assert (told.rollback_rc, told.after) == (0, told.before)


def test_the_journal_is_intact(told):
    assert "chain intact" in output(told, "uncork journal verify")
