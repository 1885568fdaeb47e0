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

    `asked` maps every pair that was measured to its components. A single pair is never blamed on a component.
    """
    users: dict[str, set[Pair]] = defaultdict(set)
    for pair, components in asked.items():
        for component in components:
            users[component].add(pair)
    left = {pair for pair in failing if pair in asked}
    bad = set(left)
    found: list[tuple[str, list[Pair]]] = []
    while left:
        whole = {name: pairs for name, pairs in users.items() if pairs <= bad and pairs & left}
        if not whole:
            break
        # Most newly explained first; then the one with fewest users, so that a cause is not hidden behind a wider one.
        name = min(whole, key=lambda one: (-len(whole[one] & left), len(whole[one]), one))
        if len(whole[name]) < 2:
            break
        found.append((name, sorted(whole[name])))
        left -= whole[name]
    if left:
        found.append(("", sorted(left)))
    return found


_ADVICE = {
    "same-switch": "ACS redirect on that switch sends the pair over the root: read ACSCtl of its downstream ports",
    "gpu": "its slot, riser and link: compare Link Status under load with Link Capabilities (width, generation)",
    "tx": "its upstream port: link width, MaxReadReq and completion credits",
    "rx": "its BAR1 size and static-BAR setting, and its downstream port",
    "switch": "the switch's uplink width and speed, and ACS on its ports",
    "root": "the root port: IOMMU translation, ACS, and whether this chip set forwards peer traffic between root ports",
    "socket": "the socket link (xGMI/UPI): width and speed settings in firmware, NPS",
    "pair": "what only these pairs share: ACS between two ports, one BAR mapping, the IPC namespace",
    "memory": "the node's memory: empty channels, a slower module, another process on that node",
}


def advice(component: str, criteria: Iterable[Criterion]) -> str:
    """First suspects for a component, by what failed on it."""
    which = set(criteria)
    if which == {Criterion.DIRECT}:
        return "the path is staged or kernels are: force-P2P registry keys of the driver, IOMMU type, ACS"
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


_WORDS = (
    ("socket link", "socket"),
    ("memory", "memory"),
    ("crossbar", "same-switch"),
    ("switch", "switch"),
    ("root", "root"),
    (" tx", "tx"),
    (" rx", "rx"),
    ("gpu", "gpu"),
)


def suspects(paths: Mapping[Pair, Sequence[str]], results: Iterable[CriterionResult]) -> tuple[Suspect, ...]:
    """Who is to blame for all blocking troubles about pairs, and what to look at first."""
    by_pair: dict[Pair, set[Criterion]] = defaultdict(set)
    for result in results:
        for trouble in result.troubles:
            if trouble.blocking and trouble.src >= 0:
                by_pair[trouble.src, trouble.dst].add(result.criterion)
    found = []
    for component, pairs in blame(paths, by_pair):
        criteria = sorted({criterion for pair in pairs for criterion in by_pair[pair]})
        what = component or "no shared component"
        says = f"{what}: {len(pairs)} of {len(paths)} pairs fail ({', '.join(criteria)})"
        found.append(Suspect(component, tuple(pairs), says, advice(component, criteria)))
    return tuple(found)
