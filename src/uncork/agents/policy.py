"""Consent that a person wrote down beforehand: a file of exact targets and values, which only root can write.

    until = 2026-12-31

    [[allow]]
    knob = "sysctl"
    target = "kernel.numa_balancing"
    want = ["0"]

It takes the place of the question, never of the terminal: it covers changes of low risk at run time, of targets that
nobody else sets and whose former value could be read. One change that it does not name, and nothing is covered.
"""

import os
import stat
from datetime import date
from pathlib import Path

import msgspec

from uncork.errors import NotApproved
from uncork.model.plan import Plan, PlannedChange
from uncork.plan.reading import to_approve

BYTES = 64_000


class Allowed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target, as a plan names it, and the values that may be written to it."""

    knob: str
    target: str
    want: tuple[str, ...]


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last day of the consent, and what it is for."""

    until: date
    allow: tuple[Allowed, ...]


def read(path: Path) -> Policy:
    """The policy in a file that only root can have written. Raises `NotApproved` where that or the text is in doubt."""
    try:
        folder = Path(os.path.realpath(path.parent))
        for above in (folder, *folder.parents):
            if doubt := _doubt(os.stat(above)):
                raise _refusal(path, f"the folder {above} {doubt}")
        with open(os.open(folder / path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            now = os.fstat(file.fileno())
            doubt = _doubt(now) if stat.S_ISREG(now.st_mode) else "is no file"
            if doubt:
                raise _refusal(path, doubt)
            text = file.read(BYTES + 1)
        if len(text) > BYTES:
            raise _refusal(path, f"is longer than {BYTES} bytes")
        return msgspec.toml.decode(text, type=Policy)
    except OSError as error:
        raise _refusal(path, f"cannot be read ({error.strerror})") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise _refusal(path, f"is no policy ({error})") from error


def uncovered(policy: Policy, plan: Plan, today: date) -> str:
    """Why the policy is no consent to what the plan would write; empty where it is."""
    if today > policy.until:
        return f"it ended on {policy.until}"
    changes = [change for step in to_approve(plan.steps) for change in step.changes]
    return next((why for change in changes if (why := _uncovered(policy, change))), "")


def _uncovered(policy: Policy, change: PlannedChange) -> str:
    name = f"{change.knob} {change.target}"
    if change.risk != "low":
        return f"{name} is of {change.risk or 'unknown'} risk"
    if change.scope != "runtime":
        return f"{name} would last longer than this boot"
    if change.owners:
        return f"{name} is also set by {', '.join(change.owners)}"
    if change.before is None:
        return f"the value of {name} could not be read"
    named = any(
        (one.knob, one.target) == (change.knob, change.target) and change.want in one.want
        for one in policy.allow
    )
    return "" if named else f"it does not name {name} = {change.want}"


def _doubt(now: os.stat_result) -> str:
    if now.st_uid != 0:
        return "does not belong to root"
    shared = now.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    sticky = (
        stat.S_ISDIR(now.st_mode) and now.st_mode & stat.S_ISVTX
    )  # others cannot replace root's files there
    return "can be written by others than root" if shared and not sticky else ""


def _refusal(path: Path, why: str) -> NotApproved:
    return NotApproved(
        f"The consent file {path} counts for nothing: {why}.",
        next="a person writes it as root, mode 0644 or less, as docs/assistants.md shows",
    )
