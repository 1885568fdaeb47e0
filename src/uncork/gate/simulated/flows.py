"""What several flows get when they share components: max-min fairness by progressive filling."""

from collections.abc import Mapping, Sequence


def fair_rates(
    flows: Sequence[Sequence[str]], alone: Sequence[float], capacity: Mapping[str, float]
) -> tuple[float, ...]:
    """The rate of each flow; `flows` lists its components, `alone` what it reaches by itself, all in GB/s.

    All open flows grow together until a component is full or a flow has what it reaches alone (Bertsekas and
    Gallager, Data Networks, 6.5.2).
    """
    rates = [0.0] * len(flows)
    left = dict(capacity)
    growing = set(range(len(flows)))
    while growing:
        users: dict[str, int] = {}
        for flow in growing:
            for component in flows[flow]:
                users[component] = users.get(component, 0) + 1
        step = min(alone[flow] - rates[flow] for flow in growing)
        step = min([step, *(left[component] / count for component, count in users.items())])
        for flow in growing:
            rates[flow] += step
        for component, count in users.items():
            left[component] -= step * count
        full = {component for component in users if left[component] <= 1e-9}
        growing = {
            flow
            for flow in growing
            if rates[flow] < alone[flow] - 1e-9 and not full.intersection(flows[flow])
        }
    return tuple(rates)
