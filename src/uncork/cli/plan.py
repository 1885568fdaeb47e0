"""uncork plan: show the plan of record, and say what should be different."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from uncork.model.plan import Plan
    from uncork.plan.store import Store

app = typer.Typer(rich_markup_mode=None, add_completion=False, invoke_without_command=True)

Json = Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")]
Why = Annotated[str, typer.Option("--why", help="Your words; they are kept as you say them.")]
Revision = Annotated[
    int | None, typer.Option("--revision", help="Refuse if the plan is newer than this revision.")
]
StepName = Annotated[str, typer.Argument(help="A step's name or number.", metavar="STEP")]


@app.callback()
def plan(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again whenever it changes.")] = False,
    as_json: Json = False,
    as_todo: Annotated[bool, typer.Option("--todo", help="The list that coding assistants show.")] = False,
    plan_id: Annotated[str | None, typer.Option("--id", help="An earlier plan.", metavar="PLAN")] = None,
) -> None:
    """Show the plan of record as it is now. Sub-verbs change it: pause, resume, abort, skip, cancel, ..."""
    if context.invoked_subcommand:
        return
    from uncork.cli.show import print_json
    from uncork.plan.store import Store

    with Store(create=False) as store:
        if watch:
            _watch(store, plan_id)
        elif as_todo:
            from uncork.plan.todo import todo

            print_json(todo(store.read(plan_id)))
        elif as_json:
            print_json(store.read(plan_id))
        else:
            _show(store.read(plan_id))


def _watch(store: "Store", plan_id: str | None) -> None:
    import time

    last: Any = None
    while True:
        now = store.read(plan_id)
        if (seen := _lines(now)) != last:
            _show(now)
            last = seen
        if now.state in ("closed", "aborted"):
            return
        time.sleep(0.5)


def _lines(plan: "Plan") -> list[tuple[str, str]]:
    # The seconds left of a hold are no change worth another screen.
    return [(step.name, step.shown) for step in plan.steps] + [("", f"{plan.revision} {plan.state}")]


MARKS = {
    "completed": "[x]",
    "in_progress": "[>]",
    "unconfirmed": "[?]",
    "failed": "[!]",
    "blocked": "[-]",
    "interrupted": "[!]",
    "drifted": "[!]",
    "ready": "[ ]",
    "pending": "[ ]",
    "skipped": "[~]",
    "cancelled": "[~]",
    "reverted": "[<]",
}


def _show(plan: "Plan") -> None:
    from uncork.cli.show import clean, console
    from uncork.plan.fold import fold

    out = console()
    out.print(f"Plan {plan.id} of {clean(plan.host)}, revision {plan.revision}, {plan.state}")
    for step in plan.steps:
        note = step.detail or step.reason or (step.evidence[-1].summary if step.evidence else "")
        line = f"{MARKS[step.shown]} {step.position:>2} {step.name}: {clean(step.title)}"
        out.print(line, overflow="ellipsis", no_wrap=True)
        if step.shown not in ("pending", "ready"):  # what a step waits for is the order itself
            out.print(f"       {step.shown}" + (f": {clean(note)}" if note else ""))
        for change in fold(step.changes) if step.status == "pending" else ():
            out.print(f"       {clean(change)}")
    if plan.deferred:
        out.print(f"Not in this plan ({len(plan.deferred)}):")
        for one in plan.deferred:
            out.print(
                f"  {one.priority} {clean(one.says)} ({clean(one.why)})", overflow="ellipsis", no_wrap=True
            )
    out.print(f"next: {_next(plan)}")


def _next(plan: "Plan") -> str:
    from uncork.model.plan import Shown

    shown = {step.shown for step in plan.steps}
    if plan.state in ("paused", "frozen"):
        return "uncork plan resume --why '...'"
    if plan.state in ("closed", "aborted"):
        in_force = any(hold.state in ("open", "confirmed") for hold in plan.holds)
        return "uncork rollback (puts everything back)" if in_force else "uncork run (looks again)"
    if Shown.INTERRUPTED in shown:
        return "uncork run --resume (puts in order what was interrupted)"
    if any(step.kind == "approve" and step.shown == Shown.READY for step in plan.steps):
        return f"uncork approve {plan.digest[:8]}"
    if Shown.UNCONFIRMED in shown:
        return "wait for the gate; uncork hold extend, or uncork rollback"
    return "uncork plan --watch"


def _by() -> str:
    from uncork.apply.chain import actor, who

    return who(actor())


def _direct(op: str, words: str, revision: int | None, as_json: bool, *args: Any, **more: Any) -> None:
    """Give one directive, then show the plan that it made."""
    from uncork.cli.show import print_json
    from uncork.plan import directives
    from uncork.plan.store import Store

    with Store(create=False) as store:
        verb = getattr(directives, op)
        more |= {"words": words, "by": _by(), "expected_revision": revision}
        made = verb(store, store.read(), *args, **more)
    print_json(made) if as_json else _show(made)


@app.command()
def pause(why: Why, revision: Revision = None, as_json: Json = False) -> None:
    """Start nothing more; what runs now ends first. An open hold keeps its deadline."""
    _direct("pause", why, revision, as_json)


@app.command()
def resume(why: Why, revision: Revision = None, as_json: Json = False) -> None:
    """Let a paused or frozen plan go on."""
    _direct("resume", why, revision, as_json)


@app.command()
def abort(why: Why, revision: Revision = None, as_json: Json = False) -> None:
    """End the plan; a group that is being written is put back."""
    _direct("abort", why, revision, as_json)


@app.command()
def skip(step: StepName, why: Why, revision: Revision = None, as_json: Json = False) -> None:
    """Leave a step out and go on without it (never a gate)."""
    _direct("skip", why, revision, as_json, step)


@app.command()
def cancel(step: StepName, why: Why, revision: Revision = None, as_json: Json = False) -> None:
    """End a step; what needs it is blocked."""
    _direct("cancel", why, revision, as_json, step)


@app.command()
def add(
    knob: Annotated[str, typer.Option("--knob", help="sysctl, sysfs, cpufreq_governor, ...")],
    target: Annotated[str, typer.Option("--target", help="Its target, or a pattern of targets.")],
    want: Annotated[str, typer.Option("--want", help="The wanted value.")],
    why: Why,
    name: Annotated[str, typer.Option("--name", help="The step's name.")] = "",
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Add a change of your own before the gate; it needs a new approval."""
    from uncork.plan.build import own_step

    _direct("add", why, revision, as_json, own_step(knob, target, want, name=name, why=why))


@app.command()
def edit(
    step: StepName,
    why: Why,
    title: Annotated[str | None, typer.Option("--title", help="Another title.")] = None,
    want: Annotated[
        list[str] | None, typer.Option("--want", help="TARGET=VALUE, once for each target.")
    ] = None,
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Change a pending step's title or wanted values; new values need a new approval."""
    pairs = dict(one.rsplit("=", 1) for one in want or () if "=" in one)
    if len(pairs) != len(want or ()):
        from uncork.errors import BadInput

        raise BadInput("--want takes TARGET=VALUE.", next="uncork plan edit STEP --want vm.swappiness=10")
    _direct("edit", why, revision, as_json, step, title=title, want=pairs)


@app.command()
def move(
    step: StepName,
    before: Annotated[str, typer.Option("--before", help="The step that it should come before.")],
    why: Why,
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Put a pending step before another."""
    _direct("move", why, revision, as_json, step, before=before)


@app.command()
def replan(
    why: Why,
    keep: Annotated[list[str] | None, typer.Option("--keep", help="An open step to keep.")] = None,
    cancel: Annotated[list[str] | None, typer.Option("--cancel", help="An open step to cancel.")] = None,
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Say of every open step whether it stays; finished steps and their evidence always do."""
    dispose = dict.fromkeys(keep or (), "keep") | dict.fromkeys(cancel or (), "cancel")
    _direct("replan", why, revision, as_json, (), dispose)
