"""Tools that can write to the host; they exist only where the server was started with --allow-apply.

Consent belongs to a person. It is asked for through the client (elicitation), bound to the digest of the exact
changes, and used once. A client relays the question and could answer by itself, so a change of high risk needs
`uncork approve` at a terminal. A client that cannot ask is refused by the protocol before anything runs.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field

from uncork.agents.digest import digest
from uncork.agents.mcp_server import WRITE, sentence
from uncork.agents.planning import who
from uncork.agents.replies import Done, Started
from uncork.apply import hold
from uncork.apply.chain import actor
from uncork.errors import IllegalMove, NotApproved, NotFound, StaleRevision
from uncork.loop.run import artefacts
from uncork.model.plan import Hold, Plan, Shown, Status
from uncork.plan.approvals import approve, approved
from uncork.plan.fold import fold
from uncork.plan.reading import to_approve
from uncork.plan.store import Store, find

POLL_AFTER_S = 2.0


class Consent(BaseModel):
    """A person's answer."""

    yes: bool = Field(description="True: do exactly this, once")


def register(server: MCPServer, state: Path | None) -> None:
    """Add the applying tools."""

    def ask_to_apply(step: str) -> Consent | Elicit[Consent]:
        """Ask before the approval; other steps are covered by it."""
        with Store(state, create=False) as store:
            plan = store.read()
            if step != "approve" or approved(plan) or not to_approve(plan.steps) or _risky(plan):
                return Consent(yes=True)
            lines = [f"  {line}" for one in to_approve(plan.steps) for line in fold(one.changes)]
            text = "\n".join(
                [f"uncork on {plan.host} asks to write (digest {plan.digest[:8]}):", *lines[:30]]
            )
            return Elicit(text, Consent)

    @server.tool(annotations=WRITE)
    @sentence
    def step_start(
        step: str,
        expected_revision: int,
        consent: Annotated[ElicitationResult[Consent], Resolve(ask_to_apply)],
        ctx: Context,
    ) -> Started:
        """Start the step that is ready, in a process of its own; plan_wait tells when it has ended.

        Starting `approve` asks the person for consent to the exact changes. A step that is not ready is refused.
        """
        with Store(state, create=False) as store:
            plan = _startable(store, step, expected_revision)
            if step == "approve" and to_approve(plan.steps) and not approved(plan):
                _consented(plan, consent)
                approve(store, plan, plan.digest, by=who(ctx), how="asked through the client")
            launch(store, plan, step, who(ctx))
            return Started(
                plan=digest(store),
                plan_id=plan.id,
                step=step,
                revision=store.read().revision,
                poll_after_s=POLL_AFTER_S,
            )

    def ask_to_revert(step: str) -> Consent | Elicit[Consent]:
        """Ask before values are put back."""
        with Store(state, create=False) as store:
            held = _hold_of(store.read(), step)
            lines = [f"  {line}" for line in fold(find(store.read(), step).changes)]
            return Elicit("\n".join([f"Put back what {step} wrote (hold {held.txn})?", *lines[:30]]), Consent)

    @server.tool(annotations=WRITE)
    @sentence
    def step_revert(
        step: str, consent: Annotated[ElicitationResult[Consent], Resolve(ask_to_revert)], ctx: Context
    ) -> Done:
        """Put back what an apply step wrote, where the values are still ours; asks the person."""
        if not _said_yes(consent):
            raise NotApproved("The person did not agree; nothing was changed.", next="plan_show")
        with Store(state, create=False) as store:
            held = _hold_of(store.read(), step)
            why, me = f"step_revert by {who(ctx)}", actor("assistant", who(ctx))
            outcomes = hold.undo(store, held.txn, why=why, actor=me) or []
            fresh = find(store.read(), step)
            if fresh.status in (Status.COMPLETED, Status.FAILED):
                store.revert(fresh, why)
            ends = ", ".join(f"{one['target']}: {one['end']}" for one in outcomes) or "nothing was in force"
            return Done(plan=digest(store), done=ends)

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
            return Done(plan=digest(store), done=f"{count} groups confirmed")

    @server.tool(annotations=WRITE)
    @sentence
    def hold_extend(step: str, seconds: float, ctx: Context) -> Done:
        """Move the deadline at which an unconfirmed step reverts by itself to this many seconds from now."""
        with Store(state, create=False) as store:
            me = actor("assistant", who(ctx))
            hold.extend(store, _hold_of(store.read(), step).txn, min(seconds, 3600.0), actor=me)
            return Done(
                plan=digest(store), done=f"{step} reverts in {min(seconds, 3600.0):g} s unless confirmed"
            )


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
            next=digest(store).splitlines()[-1].removeprefix("Next: ").rstrip("."),
        )
    return plan


def _risky(plan: Plan) -> bool:
    return any(change.risk == "high" for step in to_approve(plan.steps) for change in step.changes)


def _consented(plan: Plan, consent: ElicitationResult[Consent]) -> None:
    if _risky(plan):
        raise NotApproved(
            "A change of high risk is among them; a client's word is not enough, nothing was started.",
            next=f"a person runs `uncork approve {plan.digest[:8]}` at a terminal, then step_start(step='approve')",
        )
    if not _said_yes(consent):
        raise NotApproved(
            "The person did not agree; nothing was started.", next="plan_redirect, or ask again"
        )


def _said_yes(consent: ElicitationResult[Consent]) -> bool:
    return isinstance(consent, AcceptedElicitation) and consent.data.yes


def _hold_of(plan: Plan, step: str) -> Hold:
    wanted = find(plan, step)
    held = [one for one in plan.holds if one.step == wanted.id and one.state in ("open", "confirmed")]
    if not held:
        raise NotFound(f"Step {step} has nothing in force; nothing was changed.", next="plan_show")
    return held[-1]
