"""What the audit says: results of checks, their evidence, and the change that would cure one."""

from enum import StrEnum

import msgspec


class Answer(StrEnum):
    """The four answers of a check."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not-applicable"


class Priority(StrEnum):
    """P0 broken, corrupting or costing multiples; P1 likely visible; P2 small or conditional; info a fact."""

    P0 = "P0"
    P1 = "P1"
    P2 = "P2"
    INFO = "info"


class ChangeClass(StrEnum):
    """What it takes to cure a finding."""

    RUNTIME = "runtime"
    SERVICE_RESTART = "service-restart"
    REBOOT = "reboot"
    FIRMWARE = "firmware"
    HOST_ONLY = "host-only"
    NONE = "none"


class Confidence(StrEnum):
    """How sure the stated effect is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Evidence(msgspec.Struct, frozen=True):
    """Where something was read, and what was read there."""

    source: str
    text: str


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One write that would cure a finding: a knob, its target and the wanted value.

    `knob` names an entry of `uncork.knobs.KNOBS`; `target` is the knob's own address (a sysctl key, a sysfs
    path, a PCI function); `before` is what the audit read, None where only the knob itself can tell.
    """

    knob: str
    target: str
    want: str
    before: str | None = None


class Result(msgspec.Struct, frozen=True):
    """One check's answer about one subject (a GPU, a link, a key; empty for the whole host)."""

    id: str
    answer: Answer
    priority: Priority
    change_class: ChangeClass = msgspec.field(name="class")
    dimension: str
    says: str
    subject: str = ""
    evidence: tuple[Evidence, ...] = ()
    reason: str = ""  # of unknown and not-applicable
    change: Change | None = None  # the first of `changes`
    changes: tuple[Change, ...] = ()  # every write of the cure, one a target


class Audit(msgspec.Struct, frozen=True):
    """Everything one look at a host said, ranked."""

    schema: int
    version: str
    host: str
    results: tuple[Result, ...]
    explorers: dict[str, str]  # name -> "ok", or why its facts are missing
    right: dict[str, str]  # dimension -> one line that says what was confirmed
