"""The official client drives the plan; what an assistant must not do is refused with the call that it may make."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from mcp import MCPError
from mcp.client.client import Client
from mcp_types import ElicitResult

from uncork.agents.mcp_server import build

# One worker for all that changes this host or takes the server it finds on it.
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("host")]

OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
DRAFT = {"concurrency": "1,2", "repeats": 2, "requests": 3, "input_len": 16, "output_len": 8}
READING = {
    *(
        "audit_start",
        "audit_findings",
        "finding_explain",
        "plan_show",
        "plan_wait",
        "todo_read",
        "record_read",
    ),
    *("journal_tail", "compare_show", "plan_draft", "plan_redirect", "todo_write"),
}
WRITING = {"step_start", "step_revert", "hold_confirm", "hold_extend"}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("UNCORK_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def with_client(
    talk: Callable[[Client], Awaitable[None]],
    *,
    allow_apply: bool = True,
    answer: bool | None = None,
    mode: str = "auto",
) -> list[str]:
    """Run a conversation; the questions that the client was asked. `answer` None: a client that cannot ask."""
    asked: list[str] = []

    async def elicit(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"yes": bool(answer)})

    async def main() -> None:
        callback = None if answer is None else elicit
        async with Client(build(allow_apply=allow_apply), elicitation_callback=callback, mode=mode) as client:
            await talk(client)

    anyio.run(main)
    return asked


async def ok(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    assert result.structured_content
    assert len(result.structured_content["plan"].splitlines()) in (1, 5)
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return result.content[0].text


async def run_step(client: Client, step: str, *ends: str) -> None:
    plan = await ok(client, "plan_show")
    which = {"digest": plan["digest"][:8]} if step == "approve" else {}
    await ok(client, "step_start", step=step, expected_revision=plan["revision"], **which)
    for _ in range(60):
        statuses = (await ok(client, "plan_wait", revision=plan["revision"], seconds=2))["statuses"]
        if statuses[step] in ("completed", "unconfirmed", *ends):
            return
        assert statuses[step] in ("ready", "pending", "in_progress"), f"{step}: {statuses[step]}"
    raise AssertionError(f"{step} did not end: {statuses}")


@pytest.mark.parametrize(("allow_apply", "names"), [(False, READING), (True, READING | WRITING)])
def test_tools_that_write_to_the_host_exist_only_where_allowed(allow_apply, names):
    async def talk(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == names
        assert len(tools) <= 16
        assert all(tool.output_schema and tool.description and tool.annotations for tool in tools)
        assert {tool.name for tool in tools if tool.annotations.destructive_hint} == names & WRITING

    with_client(talk, allow_apply=allow_apply)


def test_the_audit_is_read_page_by_page_and_explained():
    async def talk(client: Client) -> None:
        found = await ok(client, "audit_start")
        assert found["counts"]["pass"] > 0
        passed = await ok(client, "audit_findings", answer="pass")
        assert len(passed["findings"]) <= 25
        said = await ok(client, "finding_explain", id="kernel.overcommit")
        assert "overcommit" in said["source"]
        assert "audit_findings" in await refused(client, "finding_explain", id="no.such")

    with_client(talk, allow_apply=False)


def test_a_stale_revision_and_an_early_gate_are_refused_with_the_call_to_make():
    async def talk(client: Client) -> None:
        plan = await ok(client, "plan_draft", **DRAFT)
        stale = await refused(
            client, "step_start", step="gate-before", expected_revision=plan["revision"] + 1
        )
        assert "stale-revision: " in stale and "plan_show" in stale
        early = await refused(client, "step_start", step="gate", expected_revision=plan["revision"])
        assert "illegal-move: " in early and "step_start(step='gate-before'" in early
        again = await refused(client, "plan_draft", **DRAFT)
        assert "abort" in again

    with_client(talk)


def test_a_todo_list_never_takes_a_status_and_cannot_skip_the_gate():
    async def talk(client: Client) -> None:
        plan = await ok(client, "plan_draft", **DRAFT)
        todos = (await ok(client, "todo_read"))["todos"]
        for item in todos:
            item["status"] = "completed"
        said = await ok(client, "todo_write", todos=todos, expected_revision=plan["revision"])
        assert said["accepted"] == []
        assert all("only the engine writes a status" in line for line in said["refused"])
        noted = [*said["todos"], {"content": "tell Ada", "status": "pending", "priority": "low"}]
        said = await ok(client, "todo_write", todos=noted, expected_revision=plan["revision"])
        assert (said["accepted"], said["notes"]) == (["note tell Ada"], ["tell Ada"])
        plan = await ok(client, "plan_show")
        again = await ok(client, "todo_write", todos=noted, expected_revision=plan["revision"])
        assert (again["accepted"], again["refused"], again["notes"]) == ([], [], ["tell Ada"])
        assert {item["status"] for item in said["todos"]} == {"completed", "pending"}
        skipped = await refused(
            client, "plan_redirect", op="skip", step="gate", words="hurry", expected_revision=plan["revision"]
        )
        assert "cancel" in skipped

    with_client(talk)


def test_words_of_a_person_are_kept_with_who_passed_them_on(state):
    from uncork.plan.store import Store

    async def talk(client: Client) -> None:
        plan = await ok(client, "plan_draft", **DRAFT)
        await ok(
            client, "plan_redirect", op="pause", words="wait for Ada", expected_revision=plan["revision"]
        )

    with_client(talk)

    with Store(state) as store:
        said = store.read().directives[-1]
    assert (said.op, said.words) == ("pause", "wait for Ada")
    assert said.by.startswith("assistant: ")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_assistant_drives_the_whole_loop(strict_overcommit, endpoint, mode):
    async def talk(client: Client) -> None:
        plan = await ok(client, "plan_draft", endpoint=endpoint, **DRAFT)
        writes = [step["name"] for step in plan["steps"] if step["changes"]]
        assert "apply-kernel-sysctl" in writes
        for step in ("gate-before", "benchmark-before", "document", "approve"):
            await run_step(client, step)
        shown = (await ok(client, "plan_show"))["steps"]
        # Another server on this host may have a limit that root here cannot raise: the approval skips that.
        skipped = {one["name"] for one in shown if one["status"] == "skipped"} - {"apply-kernel-sysctl"}
        for step in (name for name in writes if name not in skipped):
            await run_step(client, step, *(() if step == "apply-kernel-sysctl" else ("failed", "skipped")))
        for step in ("gate", "confirm"):
            await run_step(client, step)
        assert OVERCOMMIT.read_text(encoding="ascii").strip() != strict_overcommit
        for step in ("benchmark", "compare"):
            await run_step(client, step)
        assert (await ok(client, "compare_show"))["judgement"]
        assert "before" in (await ok(client, "record_read"))["text"]
        assert (await ok(client, "journal_tail"))["intact"]
        await ok(client, "step_revert", step="apply-kernel-sysctl")
        assert OVERCOMMIT.read_text(encoding="ascii").strip() == strict_overcommit

    asked = with_client(talk, answer=True, mode=mode)

    assert "vm.overcommit_memory: 2 -> " in asked[0]
    assert f"vm.overcommit_memory: 0 -> {strict_overcommit}" in asked[-1]


@pytest.mark.slow
@pytest.mark.parametrize("answer", [False, None])
def test_without_a_yes_nothing_is_written(strict_overcommit, endpoint, answer):
    async def talk(client: Client) -> None:
        await ok(client, "plan_draft", endpoint=endpoint, **DRAFT)
        for step in ("gate-before", "benchmark-before", "document"):
            await run_step(client, step)
        plan = await ok(client, "plan_show")
        which = {"expected_revision": plan["revision"], "digest": plan["digest"][:8]}
        said = await refused(client, "step_start", step="approve", **which)
        assert "nothing was started" in said
        assert OVERCOMMIT.read_text(encoding="ascii").strip() == strict_overcommit

    with_client(talk, answer=answer)


def test_nothing_of_the_environment_reaches_a_reply(monkeypatch):
    monkeypatch.setitem(os.environ, "HF_TOKEN", "hf_thisisasecretvalue1234567890")

    async def talk(client: Client) -> None:
        for answer in ("fail", "pass", "unknown"):
            assert "hf_thisisasecret" not in str(await ok(client, "audit_findings", answer=answer))

    async def first(client: Client) -> None:
        await ok(client, "audit_start")
        await talk(client)

    with_client(first, allow_apply=False)


def test_resources_are_the_plan_the_record_and_the_evidence_and_no_path():
    async def talk(client: Client) -> None:
        await ok(client, "audit_start")
        plan = await ok(client, "plan_draft", **DRAFT)
        current = (await client.read_resource("uncork://plan/current")).contents[0].text
        assert current == (await client.read_resource(f"uncork://plan/{plan['id']}")).contents[0].text
        assert len(current.splitlines()) == 5 + len(plan["steps"])
        seen = (await client.read_resource("uncork://evidence/kernel.overcommit")).contents[0].text
        assert "/proc/sys/vm/overcommit_memory" in seen
        for uri in ("uncork://record/..%2f..%2fetc", "uncork://plan/no-such", "uncork://evidence/no.such"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)

    with_client(talk, allow_apply=False)


@pytest.mark.parametrize("seconds", [0, 0.5, -1])
def test_a_wait_that_sees_nothing_new_says_so(seconds):
    async def talk(client: Client) -> None:
        plan = await ok(client, "plan_draft", **DRAFT)
        waited = await ok(client, "plan_wait", revision=plan["revision"], seconds=seconds)
        assert (waited["changed"], waited["revision"]) == (False, plan["revision"])

    with_client(talk, allow_apply=False)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1e300])
def test_a_wait_is_never_longer_than_twenty_seconds(seconds):
    async def talk(client: Client) -> None:
        plan = await ok(client, "plan_draft", **DRAFT)
        with anyio.fail_after(120):  # far above 20 s on any machine, far below what was asked for
            assert not (await ok(client, "plan_wait", revision=plan["revision"], seconds=seconds))["changed"]

    with_client(talk, allow_apply=False)
