"""What an approval is bound to: a digest over targets, before-values, wanted values and known owners."""

import hashlib
from collections.abc import Iterable

import msgspec

from uncork.model.plan import PlannedChange


def step_digest(changes: Iterable[PlannedChange]) -> str:
    """SHA-256 (64 hex) of one step's changes in their order; of no changes, that of an empty list."""
    rows = [(c.knob, c.target, c.before, c.want, c.owners) for c in changes]
    return hashlib.sha256(msgspec.json.encode(rows)).hexdigest()


def plan_digest(steps: Iterable[tuple[str, str]]) -> str:
    """SHA-256 over the names and digests of the steps that would write."""
    return hashlib.sha256(msgspec.json.encode(sorted(steps))).hexdigest()
