"""A access: what the driver grants for every ordered pair, the same as before and the same within a class."""

from collections import Counter

from uncork.gate.criteria import Pair, Run, class_of, concluded
from uncork.model.gate import Criterion, CriterionResult, Trouble
from uncork.model.unknown import Unknown, is_unknown

# NVLink-only attributes: a host without them is not worse for it.
OPTIONAL = frozenset({"atomics"})


def access(run: Run) -> CriterionResult:
    """Fail where a grant is lost since the baseline, or where a pair has less than the others of its class."""
    run.phase = Criterion.ACCESS
    granted = run.fabric.access()
    missing, troubles = [], []
    for pair, kinds in granted.items():
        for kind, value in kinds.items():
            if is_unknown(value):
                missing.append(f"{run.pair(pair)}: {kind} {value}")
            else:
                run.access[name(run, pair, kind)] = bool(value)
    none_at_all = bool(granted) and not any(run.access.values())
    for pair, kinds in granted.items():
        refused = [kind for kind, value in kinds.items() if not is_unknown(value) and not value]
        troubles += _judge(run, pair, kinds, refused, granted, none_at_all)
        if "peer" in refused:
            run.lost.setdefault(pair, f"no access ({', '.join(refused)})")
    if none_at_all and not troubles:
        missing.append("no pair has peer access: this host has no P2P, or none that this driver grants")
    if not granted:
        missing.append("there is no pair of devices to ask about")
    asked = sorted({kind for kinds in granted.values() for kind in kinds})
    says = f"{len(granted)} ordered pairs asked for {', '.join(asked)}"
    return concluded(Criterion.ACCESS, says, troubles, missing)


def name(run: Run, pair: Pair, kind: str) -> str:
    """The name under which a grant is stored and compared."""
    return f"{run.pair(pair)} {kind}"


def _judge(
    run: Run,
    pair: Pair,
    kinds: dict[str, bool | Unknown],
    refused: list[str],
    granted: dict[Pair, dict[str, bool | Unknown]],
    none_at_all: bool,
) -> list[Trouble]:
    found = []
    for kind in refused:
        if run.baseline is not None and run.baseline.access.get(name(run, pair, kind)):
            found.append(
                Trouble(f"{kind} access was granted before and is refused now", *pair, source="the baseline")
            )
        elif run.baseline is None and not none_at_all and kind not in OPTIONAL:
            same = [other for other in granted if class_of(run.fabric, other) == class_of(run.fabric, pair)]
            usual = Counter(
                bool(granted[other][kind]) for other in same if not is_unknown(granted[other].get(kind))
            )
            if usual[True]:
                path = run.fabric.path(*pair).kind
                says = f"{kind} access is refused, but {usual[True]} other {path} pairs have it"
                found.append(Trouble(says, *pair, source="pairs of one class have the same access"))
            else:
                says = f"{kind} access is refused for every {run.fabric.path(*pair).kind} pair"
                found.append(Trouble(says, *pair, blocking=False))
    return found
