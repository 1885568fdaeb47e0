"""What a client may attach to a conversation: plans, records, and the evidence behind an answer."""

from collections.abc import Callable
from pathlib import Path

from mcp.server import MCPServer

from uncork.agents.digest import digest, lines_of
from uncork.errors import NotFound
from uncork.loop.run import artefacts
from uncork.model.findings import Audit
from uncork.model.plan import Plan
from uncork.plan.store import Store
from uncork.plan.todo import todo
from uncork.record.markdown import one_line
from uncork.record.seal import NAME

CHARS = 60_000
EVIDENCE_LINES = 200
NO_RECORD = "There is no record yet."


def register(server: MCPServer, state: Path | None, audit_of: Callable[[Store], Audit]) -> None:
    """Add the resources."""

    @server.resource("uncork://plan/current", mime_type="text/plain")
    def current_plan() -> str:
        """The plan in five lines and its todo list."""
        with Store(state) as store:
            return _plan(store.read()) if store.plans() else digest(store)

    @server.resource("uncork://plan/{id}", mime_type="text/plain")
    def one_plan(id: str) -> str:
        """A plan of this host by its id."""
        with Store(state, create=False) as store:
            return _plan(store.read(_known(store, id)))

    @server.resource("uncork://record/current", mime_type="text/markdown")
    def current_record() -> str:
        """system-improve.md of the newest plan."""
        with Store(state, create=False) as store:
            return _record(store, store.read().id)

    @server.resource("uncork://record/{id}", mime_type="text/markdown")
    def one_record(id: str) -> str:
        """system-improve.md of a plan by its id."""
        with Store(state, create=False) as store:
            return _record(store, _known(store, id))

    @server.resource("uncork://evidence/{check}", mime_type="text/plain")
    def evidence(check: str) -> str:
        """All that the last audit read to answer a check: `answer subject: source: text`, one a line."""
        with Store(state) as store:
            results = [one for one in audit_of(store).results if one.id == check]
        if not results:
            raise NotFound(f"The audit has no answer to {one_line(check)}.", next="audit_findings")
        lines = [
            one_line(f"{one.answer} {one.subject}: {item.source}: {item.text}")
            for one in results
            for item in one.evidence
        ]
        more = [f"and {len(lines) - EVIDENCE_LINES} more"] if len(lines) > EVIDENCE_LINES else []
        return "\n".join([*lines[:EVIDENCE_LINES], *more]) or "It rests on no text of the host."


def _known(store: Store, plan_id: str) -> str:
    """The id itself where the store has it: a client's text never becomes a path."""
    if plan_id not in {known for known, _ in store.plans()}:
        raise NotFound(f"There is no plan {one_line(plan_id)} on this host.", next="plan_show")
    return plan_id


def _plan(plan: Plan) -> str:
    return "\n".join([lines_of(plan), *(f"[{one.status}] {one_line(one.content)}" for one in todo(plan))])


def _record(store: Store, plan_id: str) -> str:
    path = artefacts(store.folder, plan_id) / NAME
    return path.read_text(encoding="utf-8")[:CHARS] if path.exists() else NO_RECORD
