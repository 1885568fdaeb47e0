"""What the tools answer: every reply carries the plan in five lines."""

from typing import Any

from pydantic import BaseModel, Field

from uncork.record.markdown import one_line


def safe(text: str) -> str:
    """Text of the host for a reply: one line, cut, control characters spelled out, and no tag that a model may obey."""
    return one_line(text).replace("<", "&lt;")


class Reply(BaseModel):
    """The part that all replies share."""

    plan: str = Field(description="The plan in five lines; the last one names the calls that are allowed now")


class Finding(BaseModel):
    """One answer of a check."""

    id: str
    answer: str
    priority: str
    change_class: str
    subject: str
    says: str
    reason: str
    evidence: list[str]


class Findings(Reply):
    """The audit: counts by answer, the findings asked for, and explorers that gave nothing."""

    host: str
    counts: dict[str, int]
    findings: list[Finding]
    more: int = Field(description="How many further findings match; ask with offset")
    right: dict[str, str]
    blind: dict[str, str]


class Explanation(Reply):
    """What a check asks, why it matters, how it is cured and undone, and when it is wrong."""

    id: str
    title: str
    priority: str
    change_class: str
    effect: str
    confidence: str
    fix: str
    undo: str
    wrong_when: str
    folklore: str
    source: str
    answers: list[Finding]


class StepShown(BaseModel):
    """One step: what is stored, what is derived, and its exact changes."""

    name: str
    title: str
    status: str
    shown: str
    detail: str
    needs: list[str]
    changes: list[str]
    evidence: list[str]


class PlanShown(Reply):
    """The plan of record."""

    id: str
    revision: int
    state: str
    digest: str
    steps: list[StepShown]
    left_alone: list[str]


class Started(Reply):
    """A step that runs in a process of its own; ask plan_wait for its end."""

    plan_id: str
    step: str
    revision: int
    poll_after_s: float


class Waited(Reply):
    """What changed while waiting."""

    changed: bool
    revision: int
    statuses: dict[str, str]


class TodoItem(BaseModel):
    """One line of a todo list as coding assistants know it."""

    content: str
    status: str
    priority: str


class Todos(Reply):
    """The list, and what became of a write: accepted as directives, or refused with the call to make."""

    todos: list[TodoItem]
    notes: list[str] = []
    accepted: list[str] = []
    refused: list[str] = []


class Text(Reply):
    """Some text and where it is from; `total_chars` tells how much there is."""

    text: str
    source: str
    total_chars: int


class Rows(Reply):
    """Rows of the journal, newest last."""

    rows: list[dict[str, Any]]
    intact: bool


class Compared(Reply):
    """What two runs support."""

    judgement: str
    says: str
    table: list[dict[str, Any]]
    differs: list[str]


class Done(Reply):
    """What was done."""

    done: str
