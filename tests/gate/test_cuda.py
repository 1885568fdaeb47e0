"""The CUDA fabric on stand-in GPUs: the real ranks, handles and PTX, no real driver."""

import os
import signal

import pytest

from uncork.gate import baseline, verify
from uncork.gate.fabric import Direction, Ended, Engine, Move
from uncork.model.gate import Criterion, Verdict
from uncork.model.unknown import is_unknown


def failing(result):
    return {one.criterion for one in result.criteria if one.verdict is Verdict.FAIL}


def named(result):
    return {(t.src, t.dst) for one in result.criteria for t in one.troubles if t.blocking and t.src >= 0}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_eight_gpus_pass_a_full_run(gpus):
    # Eight processes share this machine's few CPUs; on a real host each GPU has its own.
    result = verify(gpus(8), cap_s=200)

    assert result.verdict is Verdict.PASS


def test_healthy_gpus_pass(gpus):
    result = verify(gpus(4), cap_s=200)

    assert [t for one in result.criteria for t in (*one.troubles, *one.not_run)] == []
    assert result.verdict is Verdict.PASS
    assert result.tested == "4 GPUs (Stand-in GPU), a process each."


# Pair -> what is wrong with it (a line of the stand-in's state file), and the criterion that names it.
WRONG_DATA = {
    (0, 1): ("dropped-write", Criterion.INTEGRITY),
    (0, 2): ("zeros", Criterion.INTEGRITY),
    (0, 3): ("ones", Criterion.INTEGRITY),
    (1, 0): ("bit-flip", Criterion.INTEGRITY),
    (1, 2): ("alias-2mib", Criterion.INTEGRITY),
    (1, 3): ("wrong-source", Criterion.INTEGRITY),
    (2, 0): ("guard-overwritten", Criterion.INTEGRITY),
    (2, 1): ("source-changed", Criterion.INTEGRITY),
    (3, 0): ("corrupt-under-load", Criterion.INTEGRITY_LOADED),
}
NO_ACCESS = {
    (0, 3): ("no-peer", Criterion.ACCESS),
    (1, 2): ("no-ipc", Criterion.ACCESS),
    (2, 0): ("no-vmm", Criterion.ACCESS),
}
WRONG_SPEED = {
    (0, 1): ("slow", Criterion.BANDWIDTH),
    (1, 3): ("kernel-slow", Criterion.DIRECT),
    (0, 2): ("staged", Criterion.DIRECT),
    (2, 0): ("staged", Criterion.DIRECT),
    (2, 3): ("flag-before-data", Criterion.ORDERING),
    (3, 2): ("flag-before-data", Criterion.ORDERING),
}


@pytest.mark.parametrize("faults", [WRONG_DATA, NO_ACCESS, WRONG_SPEED], ids=["data", "access", "speed"])
def test_every_injected_fault_is_found_and_attributed(faults, gpus):
    result = verify(gpus(4, *(f"{kind} {src} {dst} 0.5" for (src, dst), (kind, _) in faults.items())))

    found = {}
    for one in result.criteria:
        for trouble in one.troubles:
            if trouble.blocking and trouble.src >= 0:
                found.setdefault((trouble.src, trouble.dst), one.criterion)
    assert found == {pair: criterion for pair, (_, criterion) in faults.items()}


def test_everything_that_is_dropped_into_one_gpu_is_blamed_on_it(gpus):
    result = verify(gpus(4, "dropped-into -2 2"), "quick")

    assert failing(result) == {Criterion.INTEGRITY}
    assert [suspect.component for suspect in result.suspects] == ["gpu2 rx"]


def test_hangs_and_failures_end_their_own_pairs_only(gpus):
    fabric = gpus(4, "hang 0 3", "fails 1 2")

    result = verify(fabric)

    measured = {(cell.src, cell.dst) for matrix in result.matrices for cell in matrix.cells if cell.value}
    assert failing(result) == {Criterion.LIVENESS}
    assert named(result) == {(0, 3), (3, 0), (1, 2)}
    assert fabric.ranks.generation(0) + fabric.ranks.generation(3) >= 1
    assert measured == set(fabric.pairs) - {(0, 3), (3, 0), (1, 2)}


def test_an_impossible_figure_is_invalid(gpus):
    result = verify(gpus(2, "impossible-figure 0 1 0.5"))

    invalid = {(cell.src, cell.dst) for matrix in result.matrices for cell in matrix.cells if cell.invalid}
    assert result.verdict is Verdict.INCONCLUSIVE
    assert invalid == {(0, 1)}


def test_latency_above_the_baseline_fails(gpus):
    before = baseline.of(verify(gpus(2)))

    result = verify(gpus(2, "latency 0 1 0.9"), baseline=before)

    assert failing(result) == {Criterion.LATENCY}


def test_a_full_run_finds_a_link_that_trained_down(gpus, tmp_path):
    fabric = gpus(2)
    for speed in (tmp_path / "root-0").glob("sys/bus/pci/devices/0000:20:00.0/current_link_speed"):
        speed.write_text("16.0 GT/s PCIe\n")

    result = verify(fabric)

    assert failing(result) == {Criterion.LINK}
    assert result.suspects[0].component == "gpu1 link"


def test_a_counter_that_moves_during_the_run_fails(gpus, tmp_path):
    fabric = gpus(2)
    counted = tmp_path / "root-0/sys/bus/pci/devices/0000:20:00.0/aer_dev_nonfatal"

    def creep(line):
        if line.startswith("bandwidth:"):
            counted.write_text("TLP 1\nTOTAL_ERR_NONFATAL 1\n")

    result = verify(fabric, progress=creep)

    assert failing(result) == {Criterion.COUNTERS}
    assert result.suspects[0].component == "gpu1 link"


def test_a_replaced_rank_gives_new_handles_to_the_others(gpus):
    fabric = gpus(2)
    os.kill(fabric.ranks.pid(0), signal.SIGKILL)
    move = Move(0, 1, Engine.COPY, Direction.PUSH, 4096, key=7)

    (lost,) = fabric.move([move], deadline_s=5)
    (after,) = fabric.move([Move(1, 0, Engine.COPY, Direction.PULL, 4096, key=8)], deadline_s=20)

    assert lost.ended is Ended.FAILED
    assert (after.ended, after.wrong_words) == (Ended.OK, 0)


def test_a_rank_that_survives_sigkill_ends_the_run(gpus):
    fabric = gpus(2, "hang 0 1")
    fabric.ranks._kill, fabric.ranks._kill_wait_s = (lambda pid: None), 0.1

    result = verify(fabric, "quick")
    fabric.ranks._kill = lambda pid: os.kill(pid, signal.SIGKILL)

    liveness = result.criteria[-1]
    assert failing(result) == {Criterion.LIVENESS}
    assert "reset the GPU or reboot" in liveness.troubles[-1].says


def test_devices_are_numbered_by_topology_not_by_ordinal(gpus, tmp_path):
    fabric = gpus(4)
    node = tmp_path / "root-0/sys/bus/pci/devices/0000:10:00.0/numa_node"
    node.write_text("1\n")

    again = gpus(4, host=fabric._host)

    assert [device.label for device in again.devices] == ["gpu1", "gpu0", "gpu2", "gpu3"]


def test_paths_name_what_lies_between(gpus):
    fabric = gpus(4)

    kinds = {(src, dst): fabric.path(src, dst).kind for src, dst in fabric.pairs}
    assert kinds[0, 1] == "same-switch"
    assert kinds[0, 2] == "cross-socket"
    assert fabric.path(0, 2).components == (
        "gpu0 tx",
        "switch 0000:81:00.0 up",
        "root pci0000:00",
        "socket link 0→1",
        "root pci0001:00",
        "switch 0000:82:00.0 down",
        "gpu2 rx",
    )
    assert round(fabric.path(0, 1).raw_gb_s) == 63


def test_without_a_driver_it_says_what_to_do_instead(libcuda, tmp_path):
    from uncork.errors import MeasureFailed
    from uncork.gate.cuda.fabric import CudaFabric, device_count

    env = {**os.environ, "LD_LIBRARY_PATH": str(libcuda), "UNCORK_FAKE_CUDA": str(tmp_path)}

    with pytest.raises(MeasureFailed, match="CUDA_ERROR_NO_DEVICE") as error:
        CudaFabric(env=env)
    assert "--fabric host" in error.value.next
    assert is_unknown(device_count(env))


def test_a_failure_comes_with_what_to_read_beside_it(gpus):
    result = verify(gpus(2, "zeros 0 1"), "quick")

    assert result.context["kernel command line"] == "iommu=pt"
    assert "gpu0 IOMMU group type" in result.context
