"""The whole loop in the guest: found, recorded, applied, gated, measured, compared, rolled back."""

import pytest
from tests.vm import story

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def told(bootable):
    machine = story.boot()
    try:
        yield story.tell(machine)
    finally:
        machine.close()


def output(told: story.Story, command: str) -> str:
    return next(text for line, text in told.lines if line.startswith(command))


def test_the_loop_ends_well(told):
    assert told.run_rc == 0, output(told, "uncork run")


@pytest.mark.parametrize(
    "planted",
    [
        "pcie.acs-redirect",
        "pcie.max-read-request",
        "kernel.numa-balancing",
        "power.governor",
    ],
)
def test_what_was_planted_stands_in_the_record(told, planted):
    assert planted in told.record


def test_the_registers_moved_while_the_changes_were_in_force(told):
    before, during = told.before.splitlines(), told.during.splitlines()
    moved = {b.split("  ")[0] for b, d in zip(before, during, strict=True) if b != d}

    assert moved >= {"numa_balancing", "governor", "ACS control", "MaxReadReq"}


def test_rollback_leaves_the_guest_as_it_was(told):
    assert (told.rollback_rc, told.after) == (0, told.before)


def test_the_journal_is_intact(told):
    assert "chain intact" in output(told, "uncork journal verify")
