"""Every fault kind is found, with the right pair, by the criterion that alone can see it."""

import pytest

from uncork.gate import baseline, verify
from uncork.gate.simulated import HOSTS, FaultKind, SimulatedFabric, parse_fault
from uncork.model.gate import Criterion, Verdict

HOST = "pro6000-8x"
EVERYONE_INTO_5 = [(src, 5) for src in range(8) if src != 5]
FROM_SWITCH_1 = [(src, dst) for src in (2, 3) for dst in (0, 1, 4, 5, 6, 7)]

# fault, host, compared with a baseline, the criterion that finds it, the pairs that it names
FAULTS = [
    ("no-peer@0-3", HOST, False, Criterion.ACCESS, [(0, 3)]),
    ("no-ipc@0-3", HOST, False, Criterion.ACCESS, [(0, 3)]),
    ("no-vmm@2-1", HOST, True, Criterion.ACCESS, [(2, 1)]),
    ("dropped-write@0-3", HOST, False, Criterion.INTEGRITY, [(0, 3)]),
    ("dropped-into@5", HOST, False, Criterion.INTEGRITY, EVERYONE_INTO_5),
    ("zeros@6-3", HOST, False, Criterion.INTEGRITY, [(6, 3)]),
    ("ones@4-1", HOST, False, Criterion.INTEGRITY, [(4, 1)]),
    ("bit-flip@0-3", HOST, False, Criterion.INTEGRITY, [(0, 3)]),
    ("alias-2mib@0-3", HOST, False, Criterion.INTEGRITY, [(0, 3)]),
    ("wrong-source@7-0", HOST, False, Criterion.INTEGRITY, [(7, 0)]),
    ("guard-overwritten@0-3", HOST, False, Criterion.INTEGRITY, [(0, 3)]),
    ("source-changed@0-3", HOST, False, Criterion.INTEGRITY, [(0, 3)]),
    ("corrupt-under-load@0-3", HOST, False, Criterion.INTEGRITY_LOADED, [(0, 3)]),
    ("flag-before-data@0-3", HOST, False, Criterion.ORDERING, [(0, 3), (3, 0)]),
    ("kernel-slow@0-3", HOST, False, Criterion.DIRECT, [(0, 3)]),
    ("staged@0-5", "pro6000-8x-direct", False, Criterion.DIRECT, [(0, 5), (5, 0)]),
    ("slow@0-3*0.5", HOST, False, Criterion.BANDWIDTH, [(0, 3)]),
    ("slow@gpu5 rx*0.5", HOST, False, Criterion.BANDWIDTH, EVERYONE_INTO_5),
    ("slow@switch1 up*0.25", HOST, True, Criterion.BANDWIDTH, FROM_SWITCH_1),
    ("slow@0-3*0.88", HOST, True, Criterion.BANDWIDTH, [(0, 3)]),
    ("collapse@switch0", HOST, True, Criterion.CONCURRENCY, None),
    ("collapse@switch0", HOST, False, Criterion.CONCURRENCY, None),
    ("latency@0-3", HOST, True, Criterion.LATENCY, [(0, 3), (3, 0)]),
    ("all-reduce-slow@0", HOST, True, Criterion.LATENCY, []),
    ("nccl-shm@0", HOST, False, Criterion.LATENCY, []),
    ("errors@gpu3 rx*1", HOST, False, Criterion.COUNTERS, []),
    ("correctable@gpu3 rx*100", HOST, False, Criterion.COUNTERS, []),
    ("link-down@3", HOST, False, Criterion.LINK, []),
    ("register-lost@3", HOST, False, Criterion.LINK, []),
    ("hang@0-3", HOST, False, Criterion.LIVENESS, [(0, 3), (3, 0)]),
    ("fails@0-3", HOST, False, Criterion.LIVENESS, [(0, 3)]),
    ("stuck@3", HOST, False, Criterion.LIVENESS, []),
]
IDS = [f"{fault}{' with baseline' * compared}" for fault, _, compared, _, _ in FAULTS]


def fabric(host, *faults):
    return SimulatedFabric(HOSTS[host], [parse_fault(fault) for fault in faults])


@pytest.fixture(scope="module")
def healthy():
    return {name: verify(fabric(name), nonce=1) for name in HOSTS}


def failing(result):
    return {one.criterion for one in result.criteria if one.verdict is Verdict.FAIL}


@pytest.mark.parametrize(("fault", "host", "compared", "criterion", "pairs"), FAULTS, ids=IDS)
def test_a_fault_is_found_by_the_criterion_that_alone_can_see_it(
    fault, host, compared, criterion, pairs, healthy
):
    before = baseline.of(healthy[host]) if compared else None

    found = verify(fabric(host, fault), baseline=before)
    blind = verify(fabric(host, fault), baseline=before, without=[criterion])

    assert found.verdict is Verdict.FAIL
    assert failing(found) == {criterion}
    assert failing(blind) == set()
    assert blind.verdict is Verdict.INCONCLUSIVE
    if pairs is not None:
        named = [t for one in found.criteria for t in one.troubles if t.blocking and t.src >= 0]
        assert sorted({(t.src, t.dst) for t in named}) == sorted(pairs)


def test_the_table_holds_every_fault_kind():
    kinds = {parse_fault(fault).kind for fault, *_ in FAULTS}

    assert set(FaultKind) - kinds == {FaultKind.IMPOSSIBLE, FaultKind.COUNTER_UNREADABLE}


@pytest.mark.parametrize("compared", [False, True])
def test_a_collapse_names_the_flows_that_collide(compared, healthy):
    before = baseline.of(healthy[HOST]) if compared else None

    result = verify(fabric(HOST, "collapse@switch0"), baseline=before)

    named = {(t.src, t.dst) for one in result.criteria for t in one.troubles if t.src >= 0}
    assert named
    assert all(src in (0, 1) and dst > 1 for src, dst in named)


def test_an_impossible_figure_is_invalid_and_no_pass():
    result = verify(fabric(HOST, "impossible-figure@0-3"))

    bandwidth = next(one for one in result.criteria if one.criterion is Criterion.BANDWIDTH)
    invalid = {(cell.src, cell.dst) for matrix in result.matrices for cell in matrix.cells if cell.invalid}
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "broken measurement" in bandwidth.not_run[0]
    assert invalid == {(0, 3)}


def test_a_counter_that_cannot_be_read_is_unknown_and_no_pass():
    result = verify(fabric(HOST, "counter-unreadable@gpu3 rx"))

    counters = next(one for one in result.criteria if one.criterion is Criterion.COUNTERS)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "gpu3 rx fatal: unknown (permission denied)" in counters.not_run


def test_access_lost_since_the_baseline_fails_even_where_a_whole_class_lost_it(healthy):
    faults = [f"no-peer@{i}-{j}" for i in range(8) for j in range(8) if i // 4 != j // 4]

    first = verify(fabric(HOST, *faults))
    after = verify(fabric(HOST, *faults), baseline=baseline.of(healthy[HOST]))

    assert failing(first) == set()
    assert failing(after) == {Criterion.ACCESS}


def test_a_host_without_any_access_is_no_pass():
    faults = [f"no-peer@{i}" for i in range(8)]

    result = verify(fabric(HOST, *faults))

    assert result.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("name", HOSTS)
def test_a_healthy_host_passes_its_first_run_and_every_later_one(name, healthy):
    later = verify(SimulatedFabric(HOSTS[name], seed=7), baseline=baseline.of(healthy[name]))

    assert healthy[name].verdict is Verdict.PASS
    assert later.verdict is Verdict.PASS


def test_eight_gpus_take_at_most_25_virtual_seconds(healthy):
    assert all(result.cost_s <= 25 for result in healthy.values())


def test_the_cap_ends_a_run_in_which_everything_hangs():
    result = verify(fabric(HOST, *(f"hang@{i}" for i in range(8))))

    assert result.verdict is Verdict.FAIL
    assert result.cost_s <= 60 + 12  # one operation may overrun the cap by its own deadline


def test_a_stuck_process_ends_the_run_and_says_what_to_do():
    result = verify(fabric(HOST, "stuck@3"))

    liveness = next(one for one in result.criteria if one.criterion is Criterion.LIVENESS)
    assert "reset the GPU or reboot" in liveness.troubles[-1].says
    assert result.cost_s < 15


def test_a_quick_run_asks_five_criteria_within_seconds():
    result = verify(fabric(HOST), "quick")

    asked = {one.criterion for one in result.criteria if one.applies}
    assert asked == {
        Criterion.ACCESS,
        Criterion.INTEGRITY,
        Criterion.DIRECT,
        Criterion.COUNTERS,
        Criterion.LIVENESS,
    }
    assert result.verdict is Verdict.PASS
    assert result.cost_s < 12


def test_a_baseline_of_another_boot_is_not_compared_with(healthy):
    other = baseline.of(healthy["h200-8x"])

    result = verify(fabric(HOST), baseline=other)

    assert result.baseline == f"the baseline of {other.taken_at} differs in driver"


def test_a_simulation_says_that_no_real_device_was_tested(healthy):
    assert all("No real device was tested" in result.tested for result in healthy.values())
