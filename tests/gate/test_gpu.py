"""What only a real CUDA device can show: `scripts/gpu-tests` runs this on a machine with one GPU or many."""

import functools
import os
import signal

import pytest

from uncork.gate import verify
from uncork.gate.fabric import Direction, Ended, Engine, Move
from uncork.model.gate import Criterion, Verdict
from uncork.model.unknown import is_unknown

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]


@functools.cache
def counted():
    from uncork.gate.cuda.fabric import device_count

    return device_count()


def gpu_count():
    pytest.importorskip("cuda.bindings.driver")
    count = counted()
    if is_unknown(count):
        pytest.skip(f"no CUDA device: {count.reason}")
    return count


@pytest.fixture(scope="module")
def twins():
    """Two processes on the first GPU: handles, kernels and copies are real, only the path between them is not."""
    gpu_count()
    from uncork.gate.cuda.fabric import CudaFabric

    with CudaFabric(devices=[0, 0], deadline_floor_s=10.0) as fabric:
        yield fabric


@pytest.fixture(scope="module")
def everyone():
    if gpu_count() < 2:
        pytest.skip("one GPU has no peer")
    from uncork.gate.cuda.fabric import CudaFabric

    with CudaFabric() as fabric:
        yield fabric


def criterion(result, name):
    return next(one for one in result.criteria if one.criterion is name)


def test_both_kinds_of_handle_open_in_another_process(twins):
    granted = {pair: (kinds["ipc"], kinds["vmm"]) for pair, kinds in twins.access().items()}

    assert granted == {(0, 1): (True, True), (1, 0): (True, True)}


@pytest.mark.parametrize("engine", Engine)
@pytest.mark.parametrize("direction", Direction)
def test_every_size_arrives_intact(twins, engine, direction):
    for size, offset in twins.sizes:
        (moved,) = twins.move([Move(0, 1, engine, direction, size, offset, key=size + 1)], deadline_s=20)

        whole = (moved.ended, moved.wrong_words, moved.guard_touched, moved.source_changed)
        assert whole == (Ended.OK, 0, False, False), moved.says


def test_what_was_never_written_is_wrong_from_the_first_word_on(twins):
    slot = {
        "at": 0,
        "offset": 4096,
        "size": 65536,
        "room": 3 * 65536,
        "poison": 0x5A,
        "kind": "ipc",
        "key": 5,
    }
    twins.ranks.call({1: {"op": "ready", "poison": [slot], "fill": []}}, deadline_s=20)

    reply = twins.ranks.call({1: {"op": "check", "received": [slot], "sent": []}}, deadline_s=20)[1]

    assert reply.value["arrived"] == [{"wrong": 16384, "first": 0, "guard": False}]


def test_copies_are_timed_on_the_gpu(twins):
    size = twins.bandwidth_bytes
    (moved,) = twins.move([Move(0, 1, Engine.COPY, Direction.PUSH, size, loops=10)], deadline_s=20)
    gb_s = 10 * size / moved.seconds / 1e9

    # Within one GPU, so faster than a PCIe 3 link and slower than any memory that exists.
    assert 15 < gb_s < 10_000


def test_a_killed_process_is_replaced_and_its_memory_shared_anew(twins):
    os.kill(twins.ranks.pid(0), signal.SIGKILL)
    (lost,) = twins.move([Move(0, 1, Engine.COPY, Direction.PUSH, 4096, key=1)], deadline_s=20)
    (after,) = twins.move([Move(0, 1, Engine.COPY, Direction.PUSH, 4096, key=2)], deadline_s=20)

    assert lost.ended is Ended.FAILED
    assert (after.ended, after.wrong_words) == (Ended.OK, 0)


def test_one_gpu_passes_what_one_gpu_can_be_asked(twins):
    result = verify(twins, "quick", without=[Criterion.DIRECT])

    assert criterion(result, Criterion.INTEGRITY).verdict is Verdict.PASS
    assert criterion(result, Criterion.LIVENESS).troubles == ()


def test_all_gpus_are_asked_everything_and_none_hangs(everyone):
    result = verify(everyone, "full")

    assert criterion(result, Criterion.LIVENESS).verdict is Verdict.PASS
    assert all(one.says != "not run" for one in result.criteria)
    assert result.cost_s < 60


def test_flags_between_gpus_are_ordered_and_direct(everyone):
    flagged = everyone.flag(0, 1, rounds=100_000, deadline_s=10)

    assert (flagged.ended, flagged.stale) == (Ended.OK, 0)
    assert 300 < flagged.one_way_ns < 8000
