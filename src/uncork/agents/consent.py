"""Whether a person agrees to the exact changes of a plan: asked through the client, at a terminal, or beforehand."""

from datetime import date
from pathlib import Path

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context
from pydantic import BaseModel, Field

from uncork.agents import policy
from uncork.agents.digest import asked, at_terminal, names
from uncork.errors import NotApproved, NotFound
from uncork.loop.run import artefacts, load_options
from uncork.model.plan import Plan
from uncork.plan.approvals import approved
from uncork.plan.reading import to_approve
from uncork.plan.store import Store
from uncork.record.markdown import one_line

THROUGH_CLIENT = "asked through the client"


class Consent(BaseModel):
    """A person's answer."""

    yes: bool = Field(description="True: do exactly this, once")


def question(store: Store, plan: Plan) -> str:
    """What the person is asked: every change, the digest over them, and a number that makes an answer good once."""
    first = f"uncork on {one_line(plan.host)} asks to write (digest {plan.digest[:8]}, plan {plan.id},"
    lines = [f"{first} consent {len(plan.approvals) + 1}):", *asked(plan)]
    depth = _gate_depth(store, plan)
    weaker = [] if depth == "full" else [f"  Afterwards the gate tests less than it could: {one_line(depth)}"]
    return "\n".join([*lines, *weaker])


def _gate_depth(store: Store, plan: Plan) -> str:
    try:
        return load_options(artefacts(store.folder, plan.id)).gate
    except NotFound:
        return "full"


def waits(plan: Plan, step: str) -> bool:
    """Whether starting this step needs a consent that is not there yet."""
    return step == "approve" and bool(to_approve(plan.steps)) and not approved(plan)


def can_ask(ctx: Context) -> bool:
    """Whether the client says that it can put a form before a person; an older one says no more than `{}`."""
    able = ctx.client_capabilities.elicitation if ctx.client_capabilities else None
    return able is not None and (able.form is not None or able.url is None)


def said_yes(consent: ElicitationResult[Consent]) -> bool:
    """Whether the person was asked and agreed."""
    return isinstance(consent, AcceptedElicitation) and consent.data.yes


def beforehand(store: Store, plan: Plan, file: Path | None) -> str:
    """How the file allows what the plan would write; empty without a file, or where it does not cover all of it.

    A plan whose gate tests less than it could is covered by none: its writer was not told of that.

    Raises `NotApproved` where a file was named that cannot be trusted.
    """
    if file is None:
        return ""
    found = policy.read(file)
    covered = not policy.uncovered(found, plan, date.today()) and _gate_depth(store, plan) == "full"
    return f"allowed beforehand by {file} until {found.until}" if covered else ""


def given(
    store: Store, plan: Plan, digest: str, consent: ElicitationResult[Consent], asks: bool, file: Path | None
) -> str:
    """How a person agreed to these changes. Raises `NotApproved`, with the call that would be accepted."""
    call = f"step_start(step='approve', expected_revision={plan.revision}, digest='{plan.digest[:8]}')"
    terminal = f"a person runs `uncork approve {plan.digest[:8]}` at a terminal, then {call}"
    if not names(plan, digest):
        says, following = "The digest is not that of the changes as they stand now", f"plan_show, then {call}"
    elif at_terminal(plan):
        says, following = "These changes need a person at a terminal; a client's word is not enough", terminal
    elif how := beforehand(store, plan, file):
        return how
    elif not asks:
        says, following = "This client cannot ask a person", terminal
    elif not said_yes(consent):
        says, following = "The person did not agree", f"plan_redirect, or ask again: {call}"
    else:
        return THROUGH_CLIENT
    raise NotApproved(f"{says}; nothing was started.", next=following)
