"""What a step would do now, by reading for real and writing nothing."""

from collections.abc import Mapping

import msgspec

from uncork.knobs import KNOBS, Knob
from uncork.model.plan import PlannedChange, Step
from uncork.model.unknown import Unknown


class Prediction(msgspec.Struct, frozen=True):
    """One target: `would-change`, `would-not` (with why) or `cannot-predict` (with why), and its value now."""

    change: PlannedChange
    answer: str
    now: str | None
    why: str


def predict(step: Step, *, knobs: Mapping[str, Knob] = KNOBS) -> tuple[Prediction, ...]:
    """The answer for each target of the step, from reads made now."""
    return tuple(_predict(change, knobs) for change in step.changes)


def _predict(change: PlannedChange, knobs: Mapping[str, Knob]) -> Prediction:
    knob = knobs.get(change.knob)
    if knob is None:
        return Prediction(change, "cannot-predict", None, f"this uncork has no knob {change.knob}")
    now = knob.read(change.target)
    if isinstance(now, Unknown):
        return Prediction(change, "cannot-predict", None, now.reason)
    if veto := knob.veto(change.target, change.want):
        return Prediction(change, "would-not", now, veto)
    if knob.same(change.want, now):
        return Prediction(change, "would-not", now, "it has that value already")
    if change.before is None or not knob.same(change.before, now):
        return Prediction(change, "would-not", now, f"it was {change.before} when it was planned: drift")
    came = [owner for owner in knob.owners(change.target) if owner not in change.owners]
    if came:
        return Prediction(change, "would-not", now, f"also set by {', '.join(came)}")
    return Prediction(change, "would-change", now, "")
