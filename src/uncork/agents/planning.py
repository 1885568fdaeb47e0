"""Tools that write the plan, never the host: a draft, directives, and the todo list an assistant knows."""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import Field

from uncork.agents.digest import notes
from uncork.agents.mcp_server import DRAFT, PLAN, telling
from uncork.agents.reading import shown, todos_of
from uncork.agents.replies import PlanShown, TodoItem, Todos
from uncork.errors import BadInput, UncorkError
from uncork.loop.drive import begin
from uncork.loop.run import Options
from uncork.loop.say import Silent
from uncork.loop.server import named_server
from uncork.model.plan import Plan, Shown, Status, Step
from uncork.plan import directives
from uncork.plan.store import Store
from uncork.plan.todo import todo
from uncork.record.markdown import one_line

Op = Literal["pause", "resume", "abort", "skip", "cancel", "move"]
NOTES = 20
NOT_YOURS = "only the engine writes a status; call step_start and plan_wait"


def register(server: MCPServer, state: Path | None) -> None:
    """Add the planning tools."""
    _drafting(server, state)
    _directing(server, state)


def _drafting(server: MCPServer, state: Path | None) -> None:
    sentence = telling(state)

    @server.tool(annotations=DRAFT)
    @sentence
    def plan_draft(
        endpoint: str = "",
        model: str = "",
        model_path: str = "",
        demo: bool = False,
        concurrency: str = "1,8",
        repeats: int = 3,
        requests: int = 0,
        input_len: int = 128,
        output_len: int = 64,
        gate: Literal["full", "quick"] = "full",
    ) -> PlanShown:
        """Look at the host and store the plan that follows: what will be changed, in which steps, what is left alone.

        `endpoint` names the inference server; without one a running server is found when a benchmark starts, and
        with `demo` a small real one is started. Nothing is changed on the host. A `quick` gate tests five criteria
        only; the person who is asked for consent is told so.
        """
        options = Options(
            endpoint=endpoint,
            model=model,
            model_path=model_path,
            demo=demo,
            concurrency=concurrency,
            repeats=repeats,
            requests=requests,
            input_len=input_len,
            output_len=output_len,
            gate=gate,
        )
        found = named_server(endpoint, model, model_path) if endpoint else None
        run = begin(options, Silent(), found)
        with run.store as store:
            return shown(store, run.plan())


def _directing(server: MCPServer, state: Path | None) -> None:
    sentence = telling(state)

    @server.tool(annotations=PLAN)
    @sentence
    def plan_redirect(
        op: Op,
        words: Annotated[str, Field(description="What the person asked for, in their own words")],
        expected_revision: int,
        ctx: Context,
        step: str = "",
        before: str = "",
    ) -> PlanShown:
        """Change the plan at a safe point: pause, resume, abort, skip or cancel a step, move it before another."""
        with Store(state, create=False) as store:
            plan = redirect(store, op, words, expected_revision, who(ctx), step, before)
            return shown(store, plan)

    @server.tool(annotations=PLAN)
    @sentence
    def todo_write(todos: list[TodoItem], expected_revision: int, ctx: Context) -> Todos:
        """Write the todo list. What it may change becomes directives; a status is never taken.

        Accepted: cancelled for a step, another order, and new pending lines, which are kept as notes.
        """
        with Store(state, create=False) as store:
            accepted, refused = reconcile(store, todos, expected_revision, who(ctx))
            return todos_of(store, accepted, refused)


def who(ctx: Context) -> str:
    """The assistant behind a call, as its client names itself: recorded, never trusted."""
    info = getattr(ctx.session, "client_info", None)
    name = f"{info.name} {info.version}" if info else "unnamed client"
    return "assistant: " + "".join(c for c in name if c.isprintable())[:80]


def redirect(
    store: Store, op: Op, words: str, expected_revision: int, by: str, step: str = "", before: str = ""
) -> Plan:
    """Give one directive. Raises `StaleRevision`, `IllegalMove`, `NotFound`, `BadInput`."""
    plan = store.read()
    said: dict[str, Any] = {"words": words, "by": by, "expected_revision": expected_revision}
    if op in ("skip", "cancel", "move") and not step:
        raise BadInput(f"{op} needs the name of a step; nothing was changed.", next="plan_show")
    match op:
        case "pause":
            return directives.pause(store, plan, **said)
        case "resume":
            return directives.resume(store, plan, **said)
        case "abort":
            return directives.abort(store, plan, **said)
        case "skip":
            return directives.skip(store, plan, step, **said)
        case "cancel":
            return directives.cancel(store, plan, step, **said)
        case "move":
            return directives.move(store, plan, step, before=before, **said)


def reconcile(
    store: Store, wanted: list[TodoItem], expected_revision: int, by: str
) -> tuple[list[str], list[str]]:
    """Turn a written todo list into directives; what was accepted, and what was refused with what to do instead."""
    accepted: list[str] = []
    refused: list[str] = []
    plan = store.read()
    if plan.revision != expected_revision:
        return [], [
            f"the plan is at revision {plan.revision}, you saw {expected_revision}: todo_read, then again"
        ]
    listed = zip(plan.steps, todo(plan), strict=True)
    current = {one_line(line.content): (step, line.status) for step, line in listed}
    for item in wanted:
        if item.content not in current:
            _note(store, accepted, refused, item, by)
            continue
        step, status = current[item.content]
        if item.status == status:
            continue
        if item.status != "cancelled":
            refused.append(f"{item.content}: {status} stays; {NOT_YOURS}")
            continue
        _try(store, accepted, refused, "cancel", step, by)
    _reorder(
        store, [current[item.content][0] for item in wanted if item.content in current], accepted, refused, by
    )
    return accepted, refused


def _reorder(store: Store, order: list[Step], accepted: list[str], refused: list[str], by: str) -> None:
    """Move pending steps that the list shows in another order."""
    pending = [step for step in order if step.status is Status.PENDING and step.shown is not Shown.BLOCKED]
    for earlier, later in pairwise(pending):
        if earlier.position > later.position:
            _try(store, accepted, refused, "move", earlier, by, before=later.name)


def _note(store: Store, accepted: list[str], refused: list[str], item: TodoItem, by: str) -> None:
    """Keep a new pending line as a note: nothing runs it, and it is no step of the plan."""
    text, plan = one_line(item.content), store.read()
    if text in notes(plan):
        return
    if item.status != "pending" or not text:
        refused.append(
            f"{text}: not a step of the plan, so it has no status; write it as pending to keep a note"
        )
    elif len(notes(plan)) >= NOTES:
        refused.append(f"{text}: {NOTES} notes are kept already; nothing was added")
    else:
        said: dict[str, Any] = {"words": text, "by": by, "expected_revision": plan.revision}
        directives.give(store, plan, "note", lambda now: "kept; no step runs it", **said)
        accepted.append(f"note {text}")


def _try(
    store: Store, accepted: list[str], refused: list[str], op: Op, step: Step, by: str, before: str = ""
) -> None:
    try:
        redirect(store, op, "written in the todo list", store.read().revision, by, step.name, before)
        accepted.append(f"{op} {step.name}" + (f" before {before}" if before else ""))
    except UncorkError as error:
        refused.append(f"{op} {step.name}: {error.says}" + (f" Next: {error.next}" if error.next else ""))
