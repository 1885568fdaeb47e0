"""Tools that only read: the audit, the plan, the record, the journal, the comparison."""

import time
from collections.abc import Sequence
from pathlib import Path

from mcp.server import MCPServer

from uncork.agents import resources
from uncork.agents.digest import digest, notes, runs
from uncork.agents.mcp_server import READ, telling
from uncork.agents.replies import (
    Compared,
    Explanation,
    Finding,
    Findings,
    PlanShown,
    Rows,
    StepShown,
    Text,
    TodoItem,
    Todos,
    Waited,
    safe,
)
from uncork.apply import chain
from uncork.audit import audit
from uncork.checks import Check, load
from uncork.errors import NotFound
from uncork.host.live import LiveHost
from uncork.host.recording import RecordingHost
from uncork.loop.run import artefacts, load_audit, load_comparison
from uncork.model.findings import Audit, Result
from uncork.model.plan import Plan, Step
from uncork.plan.fold import fold
from uncork.plan.store import Store
from uncork.plan.todo import todo
from uncork.record.markdown import one_line
from uncork.record.seal import NAME

PAGE = 25
TEXT_CHARS = 12_000
WAIT_S = 20.0
POLL_S = 0.25


def register(server: MCPServer, state: Path | None) -> None:
    """Add the reading tools and the resources."""
    last: dict[str, Audit] = {}
    _audit_tools(server, state, last)
    _plan_tools(server, state)
    _result_tools(server, state)
    resources.register(server, state, lambda store: _audit(store, last))


def _audit_tools(server: MCPServer, state: Path | None, last: dict[str, Audit]) -> None:
    sentence = telling(state)

    @server.tool(annotations=READ)
    @sentence
    def audit_start() -> Findings:
        """Look at this host with every explorer and check (about a second, changes nothing); the failures, ranked."""
        last["audit"] = audit(RecordingHost(LiveHost()))
        with Store(state) as store:
            return _findings(store, last["audit"], "fail", "", 0)

    @server.tool(annotations=READ)
    @sentence
    def audit_findings(answer: str = "fail", dimension: str = "", offset: int = 0) -> Findings:
        """Answers of the last audit by answer (fail, unknown, pass, not-applicable) and dimension, 25 at a time."""
        with Store(state) as store:
            return _findings(store, _audit(store, last), answer, dimension, offset)

    @server.tool(annotations=READ)
    @sentence
    def finding_explain(id: str) -> Explanation:
        """What a check asks, why it matters, its cure and undo, its source, and what it answered on this host."""
        checks = load()
        if id not in checks:
            raise NotFound(f"There is no check {id!r}.", next="audit_findings")
        with Store(state) as store:
            return _explanation(store, checks[id], _audit(store, last))


def _plan_tools(server: MCPServer, state: Path | None) -> None:
    sentence = telling(state)

    @server.tool(annotations=READ)
    @sentence
    def plan_show(step: str = "") -> PlanShown:
        """The plan of record: every step with its status, needs, exact changes and evidence (or one step)."""
        with Store(state, create=False) as store:
            return shown(store, store.read(), step)

    @server.tool(annotations=READ)
    @sentence
    def plan_wait(revision: int, seconds: float = WAIT_S) -> Waited:
        """Wait up to 20 seconds for a step to begin or end; `revision` is the last one you saw."""
        with Store(state, create=False) as store:
            return _wait(store, revision, min(seconds, WAIT_S))

    @server.tool(annotations=READ)
    @sentence
    def todo_read() -> Todos:
        """The plan as a todo list: content, status, priority. Statuses are the engine's; nobody else writes them."""
        with Store(state, create=False) as store:
            return todos_of(store)


def _result_tools(server: MCPServer, state: Path | None) -> None:
    sentence = telling(state)

    @server.tool(annotations=READ)
    @sentence
    def record_read(offset: int = 0) -> Text:
        """system-improve.md of the plan, 12,000 characters at a time."""
        with Store(state, create=False) as store:
            plan = store.read()
            return _text(store, artefacts(store.folder, plan.id) / NAME, offset)

    @server.tool(annotations=READ)
    @sentence
    def journal_tail(rows: int = 20) -> Rows:
        """The newest rows of the journal of writes, and whether its hash chain is intact."""
        with Store(state, create=False) as store:
            return _rows(store, max(1, min(rows, 100)))

    @server.tool(annotations=READ)
    @sentence
    def compare_show() -> Compared:
        """What the benchmark before and the one after support, and no more."""
        with Store(state, create=False) as store:
            return _compared(store)


def shown(store: Store, plan: Plan, only: str = "") -> PlanShown:
    """The plan as a reply."""
    steps = [_step(step) for step in plan.steps if only in ("", step.name)]
    if only and not steps:
        raise NotFound(f"The plan has no step {only!r}.", next="plan_show")
    return PlanShown(
        plan=digest(store),
        id=plan.id,
        revision=plan.revision,
        state=plan.state,
        digest=plan.digest,
        steps=steps,
        left_alone=[f"{one.finding}: {safe(one.says)} ({safe(one.why)})" for one in plan.deferred],
    )


def todos_of(store: Store, accepted: Sequence[str] = (), refused: Sequence[str] = ()) -> Todos:
    """The list as it stands, the newest notes, and what became of a write."""
    plan = store.read()
    items = [
        TodoItem(content=one_line(one.content), status=one.status, priority=one.priority)
        for one in todo(plan)
    ]
    kept = [one_line(words) for words in notes(plan)]
    return Todos(plan=digest(store), todos=items, notes=kept, accepted=list(accepted), refused=list(refused))


def _step(step: Step) -> StepShown:
    return StepShown(
        name=step.name,
        title=safe(step.title),
        status=step.status.value,
        shown=step.shown.value,
        detail=safe(step.detail),
        needs=[need.step for need in step.needs],
        changes=[one_line(line) for line in fold(step.changes)],
        evidence=[f"{one.verdict}: {safe(one.summary)}" for one in step.evidence],
    )


def _statuses(plan: Plan) -> dict[str, str]:
    return {step.name: "in_progress" if runs(step) else step.shown.value for step in plan.steps}


def _wait(store: Store, revision: int, seconds: float) -> Waited:
    """Look at the plan until it changes or the time is over."""
    plan = store.read()
    before, end_s = _statuses(plan), time.monotonic() + seconds
    while plan.revision == revision and _statuses(plan) == before:
        if (left_s := end_s - time.monotonic()) <= 0:
            break
        time.sleep(min(POLL_S, left_s))
        plan = store.read()
    now = _statuses(plan)
    changed = plan.revision != revision or now != before
    return Waited(plan=digest(store), changed=changed, revision=plan.revision, statuses=now)


def _audit(store: Store, last: dict[str, Audit]) -> Audit:
    """The audit of this session, or the one the plan was made from."""
    if "audit" in last:
        return last["audit"]
    plans = store.plans()
    if not plans:
        raise NotFound("Nothing has been looked at yet.", next="audit_start")
    return load_audit(artefacts(store.folder, plans[0][0]))


def _explanation(store: Store, one: Check, found: Audit) -> Explanation:
    return Explanation(
        plan=digest(store),
        id=one.id,
        title=one.title,
        priority=one.priority.value,
        change_class=one.change_class.value,
        effect=one.effect,
        confidence=one.confidence.value,
        fix=one.fix,
        undo=one.undo,
        wrong_when=one.wrong_when,
        folklore=one.folklore,
        source=one.source,
        answers=[_finding(result) for result in found.results if result.id == one.id],
    )


def _findings(store: Store, found: Audit, answer: str, dimension: str, offset: int) -> Findings:
    counts: dict[str, int] = {}
    for result in found.results:
        counts[result.answer.value] = counts.get(result.answer.value, 0) + 1
    chosen = [
        result
        for result in found.results
        if result.answer.value == answer and dimension in ("", result.dimension)
    ]
    page = chosen[offset : offset + PAGE]
    return Findings(
        plan=digest(store),
        host=safe(found.host),
        counts=counts,
        findings=[_finding(result) for result in page],
        more=max(0, len(chosen) - offset - len(page)),
        right={name: safe(text) for name, text in found.right.items()},
        blind={name: safe(why) for name, why in found.explorers.items() if why != "ok"},
    )


def _finding(result: Result) -> Finding:
    return Finding(
        id=result.id,
        answer=result.answer.value,
        priority=result.priority.value,
        change_class=result.change_class.value,
        subject=safe(result.subject),
        says=safe(result.says),
        reason=safe(result.reason),
        evidence=[f"{safe(item.source)}: {safe(item.text)}" for item in result.evidence[:4]],
    )


def _text(store: Store, path: Path, offset: int) -> Text:
    if not path.exists():
        raise NotFound("There is no record yet.", next="step_start(step='document')")
    text = path.read_text(encoding="utf-8")
    return Text(
        plan=digest(store), text=text[offset : offset + TEXT_CHARS], source=str(path), total_chars=len(text)
    )


def _rows(store: Store, count: int) -> Rows:
    """The last rows, oldest first."""
    found = store.db.execute(
        "SELECT seq, txn, kind, body FROM journal ORDER BY seq DESC LIMIT ?", (count,)
    ).fetchall()
    rows = [dict(row) | {"body": one_line(row["body"], 600)} for row in reversed(found)]
    return Rows(plan=digest(store), rows=rows, intact=not chain.broken(store.db))


def _compared(store: Store) -> Compared:
    result = load_comparison(artefacts(store.folder, store.read().id))
    if result is None:
        raise NotFound("Nothing has been compared yet.", next="plan_show (what is left to do)")
    table = [
        {
            "level": one.level or "all",
            "metric": one.metric,
            "ratio": round(one.ratio, 4),
            "judgement": one.judgement.value,
        }
        for one in (*result.overall, *result.levels)
    ]
    return Compared(
        plan=digest(store),
        judgement=result.judgement.value,
        says=result.says,
        table=table,
        differs=list(result.differs),
    )
