"""What a write can come to, and the error that each failure becomes: one table for all knobs."""

import errno

import msgspec

from uncork.apply.revert import Outcome
from uncork.errors import (
    BadValue,
    Busy,
    ChangeFailed,
    NotPermitted,
    ReadbackDiffers,
    UndoFailed,
    Vanished,
)
from uncork.knobs import Knob
from uncork.model.plan import PlannedChange

ENOTSUPP = 524  # the kernel's own, not in errno.h (include/linux/errno.h)
ERRORS: dict[int, type[ChangeFailed]] = {
    errno.EPERM: NotPermitted,
    errno.EACCES: NotPermitted,
    errno.EROFS: NotPermitted,
    errno.EINVAL: BadValue,
    ENOTSUPP: BadValue,
    errno.EOPNOTSUPP: BadValue,
    errno.EBUSY: Busy,
    errno.EAGAIN: Busy,
    errno.ENOENT: Vanished,
    errno.ENODEV: Vanished,
    errno.ENXIO: Vanished,
    errno.ESRCH: Vanished,
}


class Target(msgspec.Struct, frozen=True):
    """What came of one target: `exact`, `canonicalised`, or `failed` with the error's code and words."""

    change: PlannedChange
    end: str
    got: str | None = None
    code: str = ""
    says: str = ""


def undo_failed(why: str, bad: list[Outcome]) -> UndoFailed:
    """The error for targets that are not as they were, with the commands that put them back by hand."""
    left = ", ".join(f"{outcome['target']} ({outcome['end']})" for outcome in bad)
    by_hand = "; ".join(outcome["by_hand"] for outcome in bad if outcome["by_hand"])
    return UndoFailed(f"{why}. Not put back: {left}.", next=by_hand or "uncork journal")


def judge(knob: Knob, change: PlannedChange, got: str) -> Target:
    """Whether what was read back is what was asked for, by the knob's own rule."""
    if knob.same(change.want, got):
        return Target(change, "exact" if change.want == got else "canonicalised", got)
    ignored = change.before is not None and knob.same(change.before, got)
    says = f"{change.target} reads {got} after {change.want} was written"
    says += " (the kernel ignored it)" if ignored else " (the kernel took another value)"
    return Target(change, "failed", got, ReadbackDiffers.code, says)


_CAUSES = {
    errno.EROFS: "; the file system is read-only here, as in a container",
    errno.EPERM: "; it needs root and its capability, and kernel lockdown or a container can withhold it",
    errno.EACCES: "; it needs root",
}


def words(error: OSError) -> str:
    """What the kernel said, and what usually lies behind it."""
    return f"{error.filename or ''}: {error.strerror or error}".lstrip(": ") + _CAUSES.get(
        error.errno or 0, ""
    )


def error_of(target: Target) -> ChangeFailed:
    """The error for a target that did not take its value, raised after the group was put back."""
    kinds = {kind.code: kind for kind in ERRORS.values()} | {ReadbackDiffers.code: ReadbackDiffers}
    return kinds.get(target.code, ChangeFailed)(
        f"{target.change.target} did not take {target.change.want}: {target.says}. The group was put back.",
        next="uncork journal (what was tried), uncork plan (what is left)",
    )
