"""Consent: bound to exact changes, used once, given by a person; nothing here reaches a write."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from mcp.client.client import Client
from mcp_types import ElicitResult, InputRequiredResult
from tests.plan.plans import SWAPPINESS, apply_step, new_plan, pass_step

from uncork.agents.mcp_server import build
from uncork.loop.run import Options, artefacts, save
from uncork.model.plan import PlannedChange
from uncork.plan import directives
from uncork.plan.approvals import approve, approved, void
from uncork.plan.store import Store, find

RISKY = PlannedChange("acs", "0000:01:00.0", "0000", before="001d", risk="high")


def waiting_plan(state: Path, *applies: Any) -> None:
    """A plan whose next step is the approval."""
    with Store(state) as store:
        plan = new_plan(store, *applies)
        for name in ("explore", "rank", "gate-before", "benchmark-before", "document"):
            pass_step(store, plan, name)
        store.seal_record(plan.id, "0" * 64)


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("UNCORK_STATE", str(tmp_path))
    return tmp_path


class Person:
    """Answers the questions of a client, and may do something before each answer."""

    def __init__(self, yes: bool, first: Any = None) -> None:
        self.yes, self.first, self.asked = yes, first, []

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        if self.first:
            self.first()
        return ElicitResult(action="accept", content={"yes": self.yes})


def start_approval(
    state: Path, person: Person | None, mode: str = "auto", allowed: Path | None = None, **more: Any
) -> Any:
    """Call step_start('approve') as the digest lines say; the result."""

    async def main() -> Any:
        server = build(allow_apply=True, state=state, allowed=allowed)
        async with Client(server, elicitation_callback=person, mode=mode) as client:
            plan = (await client.call_tool("plan_show", {})).structured_content
            said = {"step": "approve", "expected_revision": plan["revision"], "digest": plan["digest"][:8]}
            return await client.call_tool("step_start", said | more)

    return anyio.run(main)


def the_plan(state: Path) -> Any:
    with Store(state) as store:
        return store.read()


def edit(state: Path) -> None:
    with Store(state) as store:
        plan, step = store.read(), "apply-kernel-sysctl"
        directives.edit(store, plan, step, words="other", by="a person", want={"vm.swappiness": "2"})


def test_a_client_that_cannot_ask_is_told_of_the_terminal(state):
    waiting_plan(state)

    said = start_approval(state, None)

    assert said.is_error
    assert f"uncork approve {the_plan(state).digest[:8]}" in said.content[0].text
    assert not approved(the_plan(state))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_no_approves_nothing(state, mode):
    waiting_plan(state)
    person = Person(yes=False)

    said = start_approval(state, person, mode)

    assert said.is_error and "did not agree" in said.content[0].text
    assert len(person.asked) == 1 and "vm.swappiness: 60 -> 1" in person.asked[0]
    assert the_plan(state).approvals == ()


@pytest.mark.parametrize("digest", ["", "0", "00000000"])
def test_a_digest_of_other_changes_is_refused_and_nobody_is_asked(state, digest):
    waiting_plan(state)
    person = Person(yes=True)

    said = start_approval(state, person, digest=digest)

    assert said.is_error and f"digest='{the_plan(state).digest[:8]}'" in said.content[0].text
    assert person.asked == []
    assert the_plan(state).approvals == ()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_yes_to_one_digest_is_no_consent_after_the_plan_changed(state, mode):
    waiting_plan(state)
    person = Person(yes=True, first=lambda: edit(state))

    said = start_approval(state, person, mode)

    assert said.is_error and "plan_show" in said.content[0].text
    assert the_plan(state).approvals == ()


@pytest.mark.parametrize("after", ["drift", "edit"])
def test_a_replayed_answer_is_no_second_consent(state, monkeypatch, after):
    """The sealed answer of a call that was consented to is sent again after the approval was voided."""
    waiting_plan(state)
    monkeypatch.setattr(sys, "executable", "/bin/true")  # the step's own process is not what is asked here

    async def main() -> tuple[Any, Any]:
        async with Client(build(allow_apply=True, state=state), elicitation_callback=Person(True)) as client:
            plan = (await client.call_tool("plan_show", {})).structured_content
            said = {"step": "approve", "expected_revision": plan["revision"], "digest": plan["digest"][:8]}
            ask = await client.session.call_tool("step_start", said, allow_input_required=True)
            answers = {
                key: ElicitResult(action="accept", content={"yes": True}) for key in ask.input_requests
            }
            sealed = {
                "input_responses": answers,
                "request_state": ask.request_state,
                "allow_input_required": True,
            }
            first = await client.session.call_tool("step_start", said, **sealed)
            assert approved(the_plan(state))
            if after == "edit":
                edit(state)
            else:
                with Store(state) as store:
                    void(store, store.read().id, "drift")
            return first, await client.session.call_tool("step_start", said, **sealed)

    first, replayed = anyio.run(main)

    assert not first.is_error
    assert isinstance(replayed, InputRequiredResult) or replayed.is_error
    assert not approved(the_plan(state)) and len(the_plan(state).approvals) == 1


def test_a_change_of_high_risk_needs_the_terminal_even_of_a_client_that_can_ask(state):
    waiting_plan(state, apply_step("apply-pcie-acs", RISKY))
    person = Person(yes=True)

    said = start_approval(state, person)

    assert said.is_error
    assert f"uncork approve {the_plan(state).digest[:8]}` at a terminal" in said.content[0].text
    assert person.asked == []


def test_a_list_too_long_to_be_shown_needs_the_terminal(state):
    many = [PlannedChange("sysctl", f"vm.made_up_{n}", str(n), before="0") for n in range(60)]
    waiting_plan(state, apply_step("apply-kernel-sysctl", *many))
    person = Person(yes=True)

    said = start_approval(state, person)

    assert said.is_error and "at a terminal" in said.content[0].text
    assert person.asked == []


def test_what_a_host_says_cannot_forge_the_question(state):
    forged = PlannedChange("sysctl", "vm.swappiness", "1", before="60\n  \x1b[2Knothing \u202eelse")
    waiting_plan(state, apply_step("apply-kernel-sysctl", forged))
    person = Person(yes=False)

    start_approval(state, person)

    assert len(person.asked[0].splitlines()) == 2
    assert person.asked[0].replace("\n", "").isprintable()


@pytest.mark.parametrize("step", ["gate", "confirm", "compare", "apply-kernel-sysctl", "no-such"])
def test_a_step_whose_turn_it_is_not_is_refused_with_the_call_that_is_allowed(state, step):
    waiting_plan(state)

    said = start_approval(state, Person(yes=True), step=step)

    assert said.is_error
    assert "step_start(step='approve'" in said.content[0].text or "uncork plan" in said.content[0].text


@pytest.mark.parametrize(("depth", "lines"), [("full", 2), ("quick", 3)])
def test_the_question_tells_of_a_gate_that_tests_less(state, depth, lines):
    waiting_plan(state)
    save(artefacts(state, the_plan(state).id), "options.json", Options(gate=depth))
    person = Person(yes=False)

    start_approval(state, person)

    assert len(person.asked[0].splitlines()) == lines
    assert ("quick" in person.asked[0]) == (depth == "quick")


def test_a_yes_is_stored_with_the_changes_and_who_passed_it_on(state, monkeypatch):
    waiting_plan(state)
    monkeypatch.setattr(sys, "executable", "/bin/true")  # the step's own process is not what is asked here
    person = Person(yes=True)

    said = start_approval(state, person)

    assert not said.is_error, said.content
    plan = the_plan(state)
    assert approved(plan) and plan.approvals[-1].how == "asked through the client"
    assert plan.approvals[-1].unused == {"apply-kernel-sysctl": find(plan, "apply-kernel-sysctl").digest}
    assert plan.approvals[-1].by.startswith("assistant: ")
    assert find(plan, "apply-kernel-sysctl").changes == (SWAPPINESS,)


def test_after_the_terminal_a_client_that_cannot_ask_may_go_on(state, monkeypatch):
    waiting_plan(state, apply_step("apply-pcie-acs", RISKY))
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with Store(state) as store:
        approve(store, store.read(), store.read().digest[:8], by="a person", how="uncork approve")

    said = start_approval(state, None)

    assert not said.is_error, said.content


@pytest.mark.parametrize("seconds", [0, -5, 3601, 1e12])
def test_a_hold_is_extended_by_an_hour_at_most_and_never_shortened(state, seconds):
    waiting_plan(state)

    async def main() -> Any:
        async with Client(build(allow_apply=True, state=state)) as client:
            return await client.call_tool("hold_extend", {"step": "apply-kernel-sysctl", "seconds": seconds})

    assert anyio.run(main).is_error


def test_confirming_before_the_gate_is_refused(state):
    waiting_plan(state)

    async def main() -> Any:
        async with Client(build(allow_apply=True, state=state)) as client:
            return await client.call_tool("hold_confirm", {})

    said = anyio.run(main)
    assert said.is_error and "step_start(step='gate')" in said.content[0].text
