"""Name the component that explains the failing pairs: a GPU, a slot, a switch, a root, one direction of a socket link.

Every ordered pair is a set of components. Of those whose pairs all fail, the one that explains most is taken,
until nothing is left or nothing explains it; pairs that no shared component explains are named as such, which
itself means something (an ACS setting between two ports, one BAR mapping).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from uncork.model.gate import Criterion, CriterionResult, Suspect

Pair = tuple[int, int]


def blame(asked: Mapping[Pair, Sequence[str]], failing: Iterable[Pair]) -> list[tuple[str, list[Pair]]]:
    """Components that explain `failing`, most first, each with the pairs it explains; "" for what is left over.

    `asked` maps every pair that was measured to its components. `gpu0 tx or gpu1 rx` where several explain the
    rest equally well. A single pair is blamed on nothing that it shares.
    """
    users: dict[str, set[Pair]] = defaultdict(set)
    for pair, components in asked.items():
        for component in components:
            users[component].add(pair)
    bad = {pair for pair in failing if pair in asked}
    whole = {name: pairs for name, pairs in users.items() if pairs <= bad and len(pairs) > 1}
    chosen = _cover(whole, bad)
    found = []
    for name, new in chosen.items():
        others = sorted(
            other
            for other, pairs in whole.items()
            if other not in chosen and pairs & new == new and _only(other, new, chosen, whole)
        )
        found.append((" or ".join([name, *others]), sorted(whole[name])))
    left = bad.difference(*(whole[name] for name in chosen))
    return [*found, ("", sorted(left))] if left else found


def _cover(whole: Mapping[str, set[Pair]], bad: set[Pair]) -> dict[str, set[Pair]]:
    """Greedy cover without redundant members: component -> the pairs that only it explains."""
    left, names = set(bad), []
    while useful := [name for name in whole if whole[name] & left]:
        # Most newly explained first; then the one with fewest users, so that a cause is not hidden behind a wider one.
        name = min(useful, key=lambda one: (-len(whole[one] & left), len(whole[one]), one))
        names.append(name)
        left -= whole[name]
    for name in list(names):
        others = [whole[other] for other in names if other != name]
        if whole[name] <= set().union(*others):
            names.remove(name)
    return {name: whole[name].difference(*(whole[o] for o in names if o != name)) for name in names}


def _only(
    other: str, new: set[Pair], chosen: Mapping[str, set[Pair]], whole: Mapping[str, set[Pair]]
) -> bool:
    """Whether `other` would explain nothing beyond what is failing anyway: an equally good answer."""
    rest = [whole[name] for name, own in chosen.items() if own is not new]
    return bool(rest) and whole[other] <= new.union(*rest)


_ADVICE = {
    "crossbar": "ACS redirect on that switch sends the pair over the root: read ACSCtl of its downstream ports",
    "gpu": "its slot, riser and link: compare Link Status under load with Link Capabilities (width, generation)",
    "tx": "its upstream port: link width, MaxReadReq and completion credits",
    "rx": "its BAR1 size and static-BAR setting, and its downstream port",
    "switch": "the switch's uplink width and speed, and ACS on its ports",
    "root": "the root port: IOMMU translation, ACS, and whether this chip set forwards peer traffic between root ports",
    "socket": "the socket link (xGMI/UPI): width and speed settings in firmware, NPS",
    "memory": "the node's memory: empty channels, a slower module, another process on that node",
    "pair": "what only these pairs share: ACS between two ports, one BAR mapping, the IPC namespace",
}
_WORDS = (
    ("socket link", "socket"),
    ("memory", "memory"),
    ("crossbar", "crossbar"),
    ("switch", "switch"),
    ("root", "root"),
    (" tx", "tx"),
    (" rx", "rx"),
    ("gpu", "gpu"),
)
_BY_CRITERION = {
    Criterion.ACCESS: "what withholds access: driver and IOMMU settings, Resizable BAR, container namespaces (IPC)",
    Criterion.DIRECT: "what stages the path or its kernels: force-P2P registry keys of the driver, IOMMU type, ACS",
    Criterion.CONCURRENCY: "the switch under posted writes: a change of topology cures it, no setting does",
    Criterion.LATENCY: "C-states and the governor for collectives; the path's ports for flags",
    Criterion.COUNTERS: "the kernel log of this window; reseat the card or its riser when errors repeat",
    Criterion.LINK: "its slot, riser and firmware settings; a register that was set and reads otherwise was reset",
    Criterion.LIVENESS: "IOMMU translation with ACS redirect (flags never arrive); the kernel log for Xid lines",
}


def advice(component: str, criteria: Iterable[Criterion]) -> str:
    """First suspects for a component, by what failed on it."""
    which = set(criteria)
    for one, says in _BY_CRITERION.items():
        if which == {one}:
            return says
    if which & {Criterion.INTEGRITY, Criterion.INTEGRITY_LOADED, Criterion.ORDERING}:
        return (
            "what loses or changes data on the way: IOMMU translation together with ACS redirect, Resizable BAR; "
            "do not serve over this path"
        )
    kind = next(
        (name for word, name in _WORDS if word in component),
        "pair",
    )
    return _ADVICE[kind]


def suspects(paths: Mapping[Pair, Sequence[str]], results: Sequence[CriterionResult]) -> tuple[Suspect, ...]:
    """Who is to blame for all blocking troubles about pairs, and what to look at first."""
    by_pair: dict[Pair, set[Criterion]] = defaultdict(set)
    for result in results:
        for trouble in result.troubles:
            if trouble.blocking and trouble.src >= 0:
                by_pair[trouble.src, trouble.dst].add(result.criterion)
    found = []
    for component, pairs in _whole_gpus(blame(paths, by_pair)):
        criteria = sorted({criterion for pair in pairs for criterion in by_pair[pair]})
        what = component or "no shared component"
        says = f"{what}: {len(pairs)} of {len(paths)} pairs fail ({', '.join(criteria)})"
        found.append(Suspect(component, tuple(pairs), says, advice(component, criteria)))
    return (*_named(paths, results), *found)


def _whole_gpus(blamed: list[tuple[str, list[Pair]]]) -> list[tuple[str, list[Pair]]]:
    """A GPU whose both directions are blamed is blamed once."""
    names = {name for name, _ in blamed}
    merged: dict[str, list[Pair]] = {}
    for name, pairs in blamed:
        device = name.removesuffix(" tx").removesuffix(" rx")
        whole = device != name and {f"{device} tx", f"{device} rx"} <= names
        merged.setdefault(device if whole else name, []).extend(pairs)
    return [(name, sorted(set(pairs))) for name, pairs in merged.items()]


def _named(paths: Mapping[Pair, Sequence[str]], results: Iterable[CriterionResult]) -> list[Suspect]:
    """Components that a criterion names itself: error counters, links, stuck processes."""
    found = []
    for result in results:
        for trouble in result.troubles:
            if trouble.blocking and trouble.component:
                name = trouble.component
                pairs = tuple(pair for pair, components in paths.items() if name in components)
                found.append(Suspect(name, pairs, trouble.says, advice(name, [result.criterion])))
    return found
