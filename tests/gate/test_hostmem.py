"""The host-memory fabric on the machine that runs the tests."""

import pytest

from uncork.gate import baseline, verify
from uncork.gate.hostmem import HostMemory
from uncork.model.gate import Criterion, Depth, Verdict

MIB = 1 << 20


@pytest.fixture(scope="module")
def host():
    with HostMemory(half_bytes=32 * MIB) as fabric:
        yield fabric


def test_a_quick_run_on_this_machine_finds_its_memory_intact(host):
    result = verify(host, Depth.QUICK)

    integrity = next(one for one in result.criteria if one.criterion is Criterion.INTEGRITY)
    assert integrity.verdict is Verdict.PASS


def test_a_host_run_says_that_no_gpu_was_tested(host):
    result = verify(host, Depth.QUICK)

    assert "No GPU was tested" in result.tested


def test_a_result_survives_json(host):
    import msgspec

    result = verify(host, Depth.QUICK)

    assert msgspec.json.decode(msgspec.json.encode(result), type=type(result)) == result
    assert msgspec.json.decode(
        msgspec.json.encode(baseline.of(result)), type=baseline.Baseline
    ) == baseline.of(result)
