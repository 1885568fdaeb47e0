"""Facts → findings. A folder a dimension, a file a family of checks; pure functions that never read or write.

    @check("pcie.link-width", P1, FIRMWARE)
    def link_width(facts):
        \"\"\"Every GPU link runs with all the lanes that both ends have.

        Effect: half the lanes carry half the host bandwidth (arithmetic)
        Sure: high
        Fix: reseat the card or its riser
        Undo: nothing to undo
        Wrong when: the slot is wired narrower by design
        Source: PCI Express Base Specification, Link Status register
        \"\"\"
        for device in facts.pcie.gpus:
            if device.width < device.max_width:
                yield fails(f"x{device.width} of x{device.max_width}", device.bdf, evidence=(...))
            else:
                yield passes(f"x{device.width}", device.bdf)

Using an `Unknown` raises, and the runner turns that into the answer *unknown* with its reason: no check needs
a guard. A check that yields nothing has nothing to say about this host and is *not applicable*.

Beside the folders: `settings.py` (a setting with one rule is a row of a table), `hosts.py` (what checks ask of
the host at hand before they judge) and `vetoes.py` (what may not be advised here, applied to every result).
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator

import msgspec

from uncork.model.facts import Facts
from uncork.model.findings import Answer, Change, ChangeClass, Confidence, Evidence, Priority, Result
from uncork.model.unknown import UnknownValue

P0, P1, P2, INFO = Priority.P0, Priority.P1, Priority.P2, Priority.INFO
RUNTIME, SERVICE_RESTART, REBOOT = ChangeClass.RUNTIME, ChangeClass.SERVICE_RESTART, ChangeClass.REBOOT
FIRMWARE, HOST_ONLY, NONE = ChangeClass.FIRMWARE, ChangeClass.HOST_ONLY, ChangeClass.NONE

# In a docstring each starts a line; what follows, up to the next, is its text.
SECTIONS = ("Effect", "Sure", "Fix", "Undo", "Wrong when", "Folklore", "Source")


class Verdict(msgspec.Struct, frozen=True):
    """What a check function yields about one subject; None means what the check declares."""

    answer: Answer
    says: str
    subject: str = ""
    evidence: tuple[Evidence, ...] = ()
    changes: tuple[Change, ...] = ()
    priority: Priority | None = None
    change_class: ChangeClass | None = None


class Check(msgspec.Struct, frozen=True):
    """A check: its catalogue id, worst-case priority, class of cure, texts and function."""

    id: str
    dimension: str
    priority: Priority
    change_class: ChangeClass
    title: str
    effect: str
    confidence: Confidence
    fix: str
    undo: str
    wrong_when: str
    folklore: str
    source: str
    run: Callable[[Facts], Iterable[Verdict]]


Run = Callable[[Facts], Iterable[Verdict]]
Reason = Callable[[Facts], str]
CHECKS: dict[str, Check] = {}


def passes(says: str, subject: str = "", *, evidence: Iterable[Evidence] = ()) -> Verdict:
    """The subject is as it should be."""
    return Verdict(Answer.PASS, says, subject, tuple(evidence))


def fails(
    says: str,
    subject: str = "",
    *,
    evidence: Iterable[Evidence] = (),
    change: Change | None = None,
    changes: Iterable[Change] = (),
    priority: Priority | None = None,
    change_class: ChangeClass | None = None,
) -> Verdict:
    """The subject is not as it should be; `priority` and `change_class` override what the check declares.

    A cure of one write is given as `change`, one of several (a governor on every core) as `changes`.
    """
    cure = (change,) if change else tuple(changes)
    return Verdict(Answer.FAIL, says, subject, tuple(evidence), cure, priority, change_class)


def unknown(reason: str, subject: str = "", *, evidence: Iterable[Evidence] = ()) -> Verdict:
    """It cannot be told from here; `reason` names what would settle it."""
    return Verdict(Answer.UNKNOWN, reason, subject, tuple(evidence))


def not_applicable(reason: str, subject: str = "") -> Verdict:
    """The question does not arise on this host."""
    return Verdict(Answer.NOT_APPLICABLE, reason, subject)


def parse_docstring(doc: str) -> dict[str, str]:
    """Split a check's docstring into its title and sections, each on one line of text."""
    parts: dict[str, list[str]] = {"title": []}
    current = "title"
    for line in doc.strip().splitlines():
        head, colon, rest = line.strip().partition(":")
        if colon and head in SECTIONS:
            current, line = head, rest
            parts[current] = []
        parts[current].append(line.strip())
    return {name: " ".join(filter(None, lines)) for name, lines in parts.items()}


def declare(
    id: str,
    priority: Priority,
    change_class: ChangeClass,
    dimension: str,
    doc: str,
    run: Callable[[Facts], Iterable[Verdict]],
) -> None:
    """Enter a check into the catalogue. Raises ValueError on a second one of that id or a missing section."""
    text = parse_docstring(doc)
    missing = [name for name in ("title", "Effect", "Source") if not text.get(name)]
    if missing or id in CHECKS:
        raise ValueError(f"check {id}: " + (f"no {', '.join(missing)}" if missing else "declared twice"))
    CHECKS[id] = Check(
        id=id,
        dimension=dimension,
        priority=priority,
        change_class=change_class,
        title=text["title"],
        effect=text["Effect"],
        confidence=Confidence((text.get("Sure") or "medium").split()[0].rstrip(",;.")),
        fix=text.get("Fix", ""),
        undo=text.get("Undo", ""),
        wrong_when=text.get("Wrong when", ""),
        folklore=text.get("Folklore", ""),
        source=text["Source"],
        run=run,
    )


def check(
    id: str, priority: Priority, change_class: ChangeClass, *, unless: Reason | tuple[Reason, ...] = ()
) -> Callable[[Run], Run]:
    """Declare the function below as the check `id`; its dimension is the folder of its file.

    `unless` names why the question may not arise: the first that gives a reason is the answer *not applicable*.
    """
    reasons = unless if isinstance(unless, tuple) else (unless,)

    def enter(run: Run) -> Run:
        @functools.wraps(run)
        def guarded(facts: Facts) -> Iterator[Verdict]:
            for reason_of in reasons:
                if reason := reason_of(facts):
                    yield not_applicable(reason)
                    return
            yield from run(facts)

        dimension = run.__module__.removeprefix(__name__ + ".").split(".")[0]
        declare(id, priority, change_class, dimension, run.__doc__ or "", guarded)
        return guarded

    return enter


def load() -> dict[str, Check]:
    """Import every file of checks; the catalogue by id."""
    for package in pkgutil.iter_modules(__path__):
        if package.ispkg:
            folder = importlib.import_module(f"{__name__}.{package.name}")
            for module in pkgutil.iter_modules(folder.__path__):
                importlib.import_module(f"{folder.__name__}.{module.name}")
    return CHECKS


def answer(one: Check, facts: Facts) -> Iterator[Result]:
    """The results of one check on these facts: at least one, whatever happens inside it."""
    any_said = False
    try:
        for verdict in one.run(facts):
            any_said = True
            yield _result(one, verdict)
    except UnknownValue as missing:
        yield _result(one, unknown(missing.reason))
    except Exception as error:
        # One broken check must not cost the other answers; it is reported as a fault of ours.
        yield _result(one, unknown(f"the check itself failed: {type(error).__name__}: {error}"))
    else:
        if not any_said:
            yield _result(one, not_applicable("nothing on this host that it could be asked of"))


def _result(one: Check, verdict: Verdict) -> Result:
    reasoned = verdict.answer in (Answer.UNKNOWN, Answer.NOT_APPLICABLE)
    return Result(
        id=one.id,
        answer=verdict.answer,
        priority=verdict.priority or one.priority,
        change_class=verdict.change_class or one.change_class,
        dimension=one.dimension,
        says=one.title if reasoned else verdict.says,
        subject=verdict.subject,
        evidence=verdict.evidence,
        reason=verdict.says if reasoned else "",
        change=verdict.changes[0] if verdict.changes else None,
        changes=verdict.changes,
    )
