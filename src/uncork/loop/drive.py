"""The driver: begin a plan, then do its next ready step until none is left."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from uncork import audit
from uncork.apply.lock import LockHeld, locked
from uncork.apply.recover import recover
from uncork.errors import Locked, NotFound, Refused, UncorkError
from uncork.explorers import explore
from uncork.host.live import LiveHost
from uncork.host.recording import RecordingHost
from uncork.loop.attribute import set_again_left, with_toggles
from uncork.loop.phases import phase_of
from uncork.loop.run import Options, Run, artefacts, load_options, save
from uncork.loop.say import Say
from uncork.loop.server import Server
from uncork.model.findings import Answer, Audit, Priority
from uncork.model.plan import Plan, Shown, Status, Step
from uncork.plan.build import build
from uncork.plan.store import Store, find
from uncork.record import topology

OPEN = ("active", "paused", "frozen")


class Interrupted(UncorkError):
    """Ctrl-C: the run stopped at a safe point."""

    code = "interrupted"
    exit = 130


def begin(options: Options, say: Say, server: Server | None) -> Run:
    """Look at the host and store the plan that follows. Raises `Refused` while another plan is open."""
    store = Store()
    refuse_open(store)
    began_ns = time.monotonic_ns()
    host = RecordingHost(LiveHost())
    seen = explore(host, progress=say.explorer)
    found = audit.of(host.name, seen)
    took_s = (time.monotonic_ns() - began_ns) / 1e9
    draft = with_toggles(build(found), blocks=options.attribute, seed=options.seed)
    plan = store.create(draft)
    run = Run(options, store, LiveHost(), say, server, plan.id)
    save(run.folder, "audit.json", found)
    save(run.folder, "topology.json", topology.of(seen.facts))
    started = server is not None and server.how == "demo"
    save(run.folder, "options.json", msgspec.structs.replace(options, demo_started=started))
    _done(
        run, find(plan, "explore"), f"{len(found.explorers)} explorers in {took_s:.1f} s; {_missing(found)}"
    )
    _done(run, find(plan, "rank"), _ranked(found))
    return run


def resume(
    say: Say, server_of: Callable[[Options], Server | None], *, yes: bool = False, endpoint: str = ""
) -> Run:
    """Take up the open plan where it stopped, against the server it had or a new `endpoint`.

    Raises `NotFound` where none is open.
    """
    store = Store(create=False)
    plan = store.read()
    if plan.state not in OPEN:
        raise NotFound(f"Plan {plan.id} is {plan.state}; there is nothing to resume.", next="uncork run")
    options = load_options(artefacts(store.folder, plan.id))
    options = msgspec.structs.replace(options, yes=options.yes or yes, endpoint=endpoint or options.endpoint)
    run = Run(options, store, LiveHost(), say, None, plan.id)
    for done in recover(store):
        say.note(f"{done.subject}: {done.did}")
    set_again_left(run)
    run.server = server_of(options)
    return run


def refuse_open(store: Store) -> None:
    """Raise `Refused` while a plan of this host has not ended."""
    for plan_id, state in store.plans():
        if state in OPEN:
            waiting = next(
                (step.title for step in store.read(plan_id).steps if step.shown is Shown.READY), ""
            )
            at = f" at: {waiting}" if waiting else ""
            raise Refused(
                f"Plan {plan_id} is still {state}{at}; nothing was done.",
                next="uncork run --resume, or uncork plan abort --why '...'",
            )


def drive(run: Run, *, until: str = "") -> Plan:
    """Do the ready steps in their order until none is left, or `until` has ended; the plan as it then stands.

    Ctrl-C ends it at a safe point: a measuring step goes back to pending and keeps its finished levels, a
    group that is being written is finished first. Raises what a phase raises.
    """
    if until:
        find(run.plan(), until)
    with only_one(run.store), safe_interrupts() as asked:
        while step := next_step(run.plan()):
            if asked():
                raise _stopped(step)
            run.say.step(step, "running")
            try:
                phase_of(step)(run, run.plan(), step)
            except KeyboardInterrupt:
                _put_down(run, step)
                raise _stopped(step) from None
            finally:
                run.say.step(step, find(run.plan(), step.name).status)
            if step.name == until:
                break
    return run.plan()


def _stopped(step: Step) -> Interrupted:
    return Interrupted(
        f"Stopped at a safe point, before: {step.title}. Nothing is lost; changes in force keep their timers.",
        next="uncork run --resume (goes on), uncork rollback (puts every change back)",
    )


def next_step(plan: Plan) -> Step | None:
    """The first step that may start; raises `Refused` while the plan is paused or frozen."""
    if plan.state in ("paused", "frozen"):
        raise Refused(f"Plan {plan.id} is {plan.state}; nothing was started.", next="uncork plan resume")
    if plan.state not in OPEN:
        return None
    ready = [step for step in plan.steps if step.shown is Shown.READY]
    if ready:
        return ready[0]
    if any(step.status is Status.IN_PROGRESS for step in plan.steps):
        return None
    # What is left is blocked: the plan still ends with its record finished.
    closing = [step for step in plan.steps if step.name == "close" and step.status is Status.PENDING]
    return closing[0] if closing else None


def _put_down(run: Run, step: Step) -> None:
    if find(run.plan(), step.name).status is Status.IN_PROGRESS:
        run.store.unstart(step)


@contextmanager
def only_one(store: Store) -> Iterator[None]:
    """Hold the run's lock; raises `Locked` where another uncork runs its loop on this host."""
    try:
        with locked(store.folder, name="run.lock"):
            yield
    except LockHeld as held:
        raise Locked(
            f"Another uncork runs on this host ({held.holder}); nothing was done.", next="uncork plan --watch"
        ) from held


@contextmanager
def safe_interrupts() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C end a measurement or a question at once, and anything else only when its step has ended.

    Yields whether one came meanwhile. Outside the main thread nothing is changed.
    """
    seen = False

    def note(number: int, frame: object) -> None:
        nonlocal seen
        if _may_stop_here(frame):
            raise KeyboardInterrupt
        seen = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    former = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: seen
    finally:
        signal.signal(signal.SIGINT, former)


def _may_stop_here(frame: Any) -> bool:
    """Whether the interrupted code measures or asks, and nothing around it writes the host or the plan."""
    rooms = set()
    while frame is not None:
        rooms.add(".".join(frame.f_globals.get("__name__", "").split(".")[:2]))
        asks = frame.f_code.co_name in ("approve", "revert_worse")
        rooms |= {"asks"} if asks else set()
        frame = frame.f_back
    return bool(rooms & {"uncork.bench", "uncork.gate", "asks"}) and not rooms & {
        "uncork.apply",
        "uncork.plan",
    }


def _done(run: Run, step: Step, summary: str) -> None:
    run.store.start(step)
    run.store.complete(step, summary, artefact="audit.json")
    run.say.step(step, "completed")


def _missing(found: Audit) -> str:
    failed = [name for name, ending in found.explorers.items() if ending != "ok"]
    return f"no facts from {', '.join(failed)}" if failed else "all answered"


def _ranked(found: Audit) -> str:
    failing = [result for result in found.results if result.answer is Answer.FAIL]
    counts = [
        f"{sum(r.priority is p for r in failing)} {p.value}" for p in (Priority.P0, Priority.P1, Priority.P2)
    ]
    unknown = sum(result.answer is Answer.UNKNOWN for result in found.results)
    return f"{', '.join(counts)}; {unknown} questions without an answer"
