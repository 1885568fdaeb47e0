"""The component at fault is named from failing pairs alone."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork.gate import verify
from uncork.gate.localise import blame
from uncork.gate.simulated import HOSTS, SimulatedFabric, parse_fault
from uncork.gate.simulated.flows import fair_rates


def paths(name):
    host = HOSTS[name]
    pairs = [(i, j) for i in range(host.count) for j in range(host.count) if i != j]
    return host, {pair: host.path(*pair).components for pair in pairs}


def failing(asked, faults):
    return [pair for pair, components in asked.items() if set(faults) & set(components)]


def named(asked, faults):
    """Whether every fault that shows is named, and nothing else is.

    A fault hidden entirely behind the other has no pair of its own: no measurement between GPUs can show it.
    Two components that explain the same pairs are named as alternatives.
    """
    blamed = [set(name.split(" or ")) for name, _ in blame(asked, failing(asked, faults))]
    users = {fault: set(failing(asked, [fault])) for fault in faults}
    hidden = {f for f in faults if any(users[f] < users[other] for other in faults if other != f)}
    shown = set(faults) - hidden
    return len(blamed) == len(shown) and all(any(fault in names for names in blamed) for fault in shown)


@pytest.mark.parametrize("name", ["pro6000-8x", "pro6000-8x-direct"])
def test_single_faults_are_named_exactly(name):
    host, asked = paths(name)

    wrong = [
        fault
        for fault in host.components()
        if [name for name, _ in blame(asked, failing(asked, [fault]))] != [fault]
    ]

    assert wrong == []


@pytest.mark.parametrize(("name", "count"), [("pro6000-8x", 496), ("pro6000-8x-direct", 190)])
def test_double_faults_are_named_in_97_percent(name, count):
    host, asked = paths(name)
    doubles = list(itertools.combinations(host.components(), 2))

    exact = sum(named(asked, both) for both in doubles)

    assert len(doubles) == count
    assert exact / count >= 0.97


def test_a_single_pair_is_blamed_on_nothing_that_it_shares():
    _, asked = paths("pro6000-8x")

    assert blame(asked, [(0, 3)]) == [("", [(0, 3)])]


def test_a_gpu_that_fails_in_both_directions_is_named_once():
    faults = [parse_fault("slow@gpu2 rx*0.5"), parse_fault("slow@gpu2 tx*0.5")]

    result = verify(SimulatedFabric(HOSTS["pro6000-8x"], faults))

    assert [suspect.component for suspect in result.suspects] == ["gpu2"]
    assert "slot" in result.suspects[0].advice


@given(st.sets(st.sampled_from([(i, j) for i in range(8) for j in range(8) if i != j])))
def test_every_failing_pair_is_explained_and_no_other(bad):
    _, asked = paths("pro6000-8x")

    explained = {pair for _, pairs in blame(asked, bad) for pair in pairs}

    assert explained == bad


@given(
    st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True), min_size=1, max_size=6),
    st.lists(st.floats(1, 100), min_size=6, max_size=6),
)
def test_fair_rates_never_exceed_a_capacity_or_a_flow_s_own(flows, alone):
    capacity = {"a": 10.0, "b": 50.0, "c": 20.0, "d": 80.0}

    rates = fair_rates(flows, alone, capacity)

    for component, most in capacity.items():
        assert sum(rate for rate, used in zip(rates, flows, strict=True) if component in used) <= most + 1e-6
    assert all(rate <= own + 1e-9 for rate, own in zip(rates, alone, strict=False))
