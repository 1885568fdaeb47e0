"""Tools that can write to the host; they exist only where the server was started with --allow-apply.

Consent belongs to a person. It is asked for through the client (elicitation), bound to the digest of the exact
changes that the call names, and used once. A client relays the question and could answer by itself, so a change of
high risk, or a list too long for one question, needs `uncork approve` at a terminal. A client that cannot ask is told
of that call too. A file that only root can write may stand for the question (`policy.py`).
"""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated

import msgspec
from mcp.server import MCPServer
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import Field

from uncork.agents.consent import Consent, beforehand, can_ask, given, question, said_yes, waits
from uncork.agents.digest import ASKED_LINES, at_terminal, names, next_calls
from uncork.agents.digest import digest as five_lines
from uncork.agents.mcp_server import WRITE, telling
from uncork.agents.planning import who
from uncork.agents.replies import Done, Started
from uncork.apply import hold
from uncork.apply.chain import actor
from uncork.errors import IllegalMove, NotApproved, NotFound, StaleRevision
from uncork.loop.run import artefacts
from uncork.model.plan import Hold, Plan, Shown, Status
from uncork.plan.approvals import approve
from uncork.plan.fold import fold
from uncork.plan.store import Store, find
from uncork.record.markdown import one_line

POLL_AFTER_S = 2.0
HOLD_S = 3600.0


def register(server: MCPServer, state: Path | None, allowed: Path | None) -> None:
    """Add the applying tools; `allowed` is the file of what a person agreed to beforehand."""
    _starting(server, state, allowed)
    _reverting(server, state)
    _holding(server, state)


def _starting(server: MCPServer, state: Path | None, allowed: Path | None) -> None:
    sentence = telling(state)

    @sentence
    def ask_to_apply(
        step: str, expected_revision: int, digest: str, ctx: Context
    ) -> Consent | Elicit[Consent]:
        """Ask before the approval, where an answer could count; other steps are covered by it."""
        with Store(state, create=False) as store:
            plan = store.read()
            now = plan.revision == expected_revision and names(plan, digest)
            if not now or not waits(plan, step) or at_terminal(plan) or not can_ask(ctx):
                return Consent(yes=False)
            return (
                Consent(yes=False)
                if beforehand(store, plan, allowed)
                else Elicit(question(store, plan), Consent)
            )

    @server.tool(annotations=WRITE)
    @sentence
    def step_start(
        step: str,
        expected_revision: int,
        consent: Annotated[ElicitationResult[Consent], Resolve(ask_to_apply)],
        ctx: Context,
        digest: Annotated[str, Field(description="For `approve`: first 8 digits of the plan's digest")] = "",
    ) -> Started:
        """Start the step that is ready, in a process of its own; plan_wait tells when it has ended.

        Starting `approve` asks the person for consent to the changes that `digest` names. A step that is not ready
        is refused.
        """
        with Store(state, create=False) as store:
            plan = _startable(store, step, expected_revision)
            if waits(plan, step):
                how = given(store, plan, digest, consent, can_ask(ctx), allowed)
                approve(store, plan, plan.digest, by=who(ctx), how=how)
            return _started(store, plan, step, who(ctx))


def _reverting(server: MCPServer, state: Path | None) -> None:
    sentence = telling(state)

    @sentence
    def ask_to_revert(step: str, ctx: Context) -> Consent | Elicit[Consent]:
        """Ask before values are put back."""
        with Store(state, create=False) as store:
            plan = store.read()
            held = _hold_of(plan, step)
            return Elicit(_ask_back(plan, step, held), Consent) if can_ask(ctx) else Consent(yes=False)

    @server.tool(annotations=WRITE)
    @sentence
    def step_revert(
        step: str, consent: Annotated[ElicitationResult[Consent], Resolve(ask_to_revert)], ctx: Context
    ) -> Done:
        """Put back what an apply step wrote, where the values are still ours; asks the person."""
        if not said_yes(consent):
            raise NotApproved(
                "The person did not agree, or could not be asked; nothing was changed.",
                next="plan_show, or a person runs `uncork rollback` at a terminal",
            )
        with Store(state, create=False) as store:
            held = _hold_of(store.read(), step)
            why, me = f"step_revert by {who(ctx)}", actor("assistant", who(ctx))
            outcomes = hold.undo(store, held.txn, why=why, actor=me) or []
            fresh = find(store.read(), step)
            if fresh.status in (Status.COMPLETED, Status.FAILED):
                store.revert(fresh, why)
            ends = ", ".join(f"{one['target']}: {one['end']}" for one in outcomes) or "nothing was in force"
            return Done(plan=five_lines(store), done=one_line(ends))


def _holding(server: MCPServer, state: Path | None) -> None:
    sentence = telling(state)

    @server.tool(annotations=WRITE)
    @sentence
    def hold_confirm(ctx: Context) -> Done:
        """Keep the held changes past their deadline; refused unless the gate has passed with them in force."""
        with Store(state, create=False) as store:
            plan = store.read()
            if find(plan, "gate").status is not Status.COMPLETED:
                raise IllegalMove(
                    "The gate has not passed with the changes in force; nothing was confirmed.",
                    next="step_start(step='gate')",
                )
            count = hold.confirm_all(store, plan, actor=actor("assistant", who(ctx)))
            return Done(plan=five_lines(store), done=f"{count} groups confirmed")

    @server.tool(annotations=WRITE)
    @sentence
    def hold_extend(step: str, seconds: Annotated[float, Field(gt=0, le=HOLD_S)], ctx: Context) -> Done:
        """Move the deadline at which an unconfirmed step reverts by itself to this many seconds from now."""
        with Store(state, create=False) as store:
            me = actor("assistant", who(ctx))
            hold.extend(store, _hold_of(store.read(), step).txn, seconds, actor=me)
            return Done(plan=five_lines(store), done=f"{step} reverts in {seconds:g} s unless confirmed")


def launch(store: Store, plan: Plan, step: str, by: str) -> int:
    """Run one step of the plan in a process that outlives this one; its pid. Its words go to runner.log."""
    folder = artefacts(store.folder, plan.id)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "uncork.cli.main", "run", "--resume", "--until", step]
    with (folder / "runner.log").open("ab") as log:
        runner = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=_env(store, by),
        )
    threading.Thread(target=runner.wait, daemon=True).start()  # no zombie stays while this server lives
    return runner.pid


def _started(store: Store, plan: Plan, step: str, by: str) -> Started:
    launch(store, plan, step, by)
    return Started(
        plan=five_lines(store),
        plan_id=plan.id,
        step=step,
        revision=store.read().revision,
        poll_after_s=POLL_AFTER_S,
    )


def _env(store: Store, by: str) -> dict[str, str]:
    return {**os.environ, "UNCORK_STATE": str(store.folder), "UNCORK_ASSISTANT": by}


def _startable(store: Store, step: str, expected_revision: int) -> Plan:
    plan = store.read()
    if plan.revision != expected_revision:
        raise StaleRevision(
            f"The plan is at revision {plan.revision}, you saw {expected_revision}; nothing was started.",
            next="plan_show, then step_start again",
        )
    one = find(plan, step)
    if one.shown is not Shown.READY:
        raise IllegalMove(
            f"Step {step} is {one.shown.value}{f' ({one.detail})' if one.detail else ''}; nothing was started.",
            next="; ".join(next_calls(plan)),
        )
    return plan


def _ask_back(plan: Plan, step: str, held: Hold) -> str:
    """The question before values are put back: each with the value that it would have again."""
    back = [
        msgspec.structs.replace(one, before=one.want, want="?" if one.before is None else one.before)
        for one in find(plan, step).changes
    ]
    lines = [f"  {one_line(line)}" for line in fold(back)]
    more = [f"  and {len(lines) - ASKED_LINES} more"] if len(lines) > ASKED_LINES else []
    first = f"Put back what {one_line(step)} wrote (hold {held.txn})?"
    return "\n".join([first, *lines[:ASKED_LINES], *more])


def _hold_of(plan: Plan, step: str) -> Hold:
    wanted = find(plan, step)
    held = [one for one in plan.holds if one.step == wanted.id and one.state in ("open", "confirmed")]
    if not held:
        raise NotFound(f"Step {step} has nothing in force; nothing was changed.", next="plan_show")
    return held[-1]
