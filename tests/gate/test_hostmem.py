"""The host-memory fabric on the machine that runs the tests."""

import mmap
import os

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncork.errors import MeasureFailed
from uncork.gate import baseline, verify
from uncork.gate.fabric import Direction, Ended, Engine, Move
from uncork.gate.hostmem import HostMemory, fabric, kernel, topology
from uncork.gate.hostmem.extra import edac_counters, spread
from uncork.gate.hostmem.fabric import stream_bytes
from uncork.model.gate import Baseline, Criterion, Depth, Verdict
from uncork.model.unknown import is_unknown

MIB = 1 << 20
KERNELS = ["c", "numpy", "plain"]
NAMES = {"c": "compiled C", "numpy": "NumPy", "plain": "plain Python"}


def load(choice, monkeypatch=None):
    loaded = (
        kernel.PlainKernel() if choice == "plain" else kernel.NumpyKernel() if choice == "numpy" else None
    )
    if loaded is None:
        loaded = kernel.load("c")
        if not loaded.name.startswith("compiled"):
            pytest.skip("no C compiler")
    return loaded


@pytest.fixture(scope="module")
def host():
    with HostMemory(half_bytes=32 * MIB) as fabric:
        yield fabric


@pytest.fixture(scope="module")
def result(host):
    return verify(host, Depth.FULL)


def criterion(result, name):
    return next(one for one in result.criteria if one.criterion is name)


def test_this_machine_s_memory_is_intact(result):
    assert criterion(result, Criterion.INTEGRITY).verdict is Verdict.PASS
    assert criterion(result, Criterion.LIVENESS).verdict is Verdict.PASS


def test_it_says_that_no_gpu_was_tested_and_which_code_ran(result):
    assert "No GPU was tested" in result.tested
    assert result.kernel.startswith(tuple(NAMES.values()))


def test_every_matrix_keeps_its_samples(result):
    names = {matrix.name for matrix in result.matrices}

    assert {"bandwidth, copy push", "bandwidth, copy pull"} <= names
    assert all(len(cell.samples) >= 1 for matrix in result.matrices for cell in matrix.cells)


def test_the_read_bandwidth_is_there_at_every_depth(host, result):
    quick = verify(host, Depth.QUICK)

    for one in (quick, result):
        (figure,) = [figure for figure in one.figures if figure.name == "read-bandwidth"]
        assert figure.value == sorted(figure.samples)[-2]
        assert "threads read" in figure.how


def test_latencies_and_wake_ups_are_measured_with_compiled_code(host, result):
    if not host.compiled:
        pytest.skip("no C compiler")
    names = {matrix.name for matrix in result.matrices} | {figure.name for figure in result.figures}

    assert "load latency" in names
    assert "wake-up after 1000 us idle" in names
    assert ("core to core, one way" in names) == (len(os.sched_getaffinity(0)) > 1)


def test_a_result_and_its_baseline_survive_json(result):
    again = msgspec.json.decode(msgspec.json.encode(result), type=type(result))

    assert again == result
    assert msgspec.json.decode(msgspec.json.encode(baseline.of(again)), type=Baseline) == baseline.of(result)


def test_several_nodes_are_tested_pair_by_pair_and_together():
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    # Two nodes that this machine need not have: binding them may fail, moving and checking must not.
    nodes = (topology.Node(0, cpus[:1], 0, 1 << 30), topology.Node(1, cpus[-1:], 1, 1 << 30))

    with HostMemory(half_bytes=24 * MIB, nodes=nodes) as fabric:
        result = verify(fabric)

    pairs = {(cell.src, cell.dst) for matrix in result.matrices for cell in matrix.cells}
    assert pairs >= {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert criterion(result, Criterion.INTEGRITY).verdict is Verdict.PASS
    assert criterion(result, Criterion.INTEGRITY_LOADED).verdict is Verdict.PASS
    assert [pattern.name for pattern in result.patterns] == ["shift 1", "shift 1"]
    assert fabric.path(0, 1).components == ("node0 memory", "socket link 0→1", "node1 memory")


@pytest.mark.parametrize("choice", ["numpy", "plain"])
def test_without_a_compiler_it_still_moves_and_checks_and_says_which(choice, monkeypatch):
    with HostMemory(half_bytes=16 * MIB, kernel=choice) as fabric:
        (moved,) = fabric.move([Move(0, 0, Engine.COPY, Direction.PUSH, 65536, key=5)], deadline_s=20)
        flag = fabric.flag(0, 0, rounds=10, deadline_s=5)

        assert (moved.ended, moved.wrong_words) == (Ended.OK, 0)
        assert fabric.kernel.startswith(NAMES[choice])
        assert is_unknown(flag)


@pytest.mark.parametrize("choice", ["numpy", "plain"])
def test_a_machine_without_a_compiler_can_pass_and_says_what_was_left_out(choice):
    with HostMemory(half_bytes=16 * MIB, kernel=choice) as fabric:
        fabric.sizes = fabric.sizes[:3]
        result = verify(fabric)

    assert result.verdict is Verdict.PASS
    assert not criterion(result, Criterion.ORDERING).applies
    assert "needs a C compiler" in criterion(result, Criterion.ORDERING).says


def test_a_node_that_hangs_is_replaced_and_answers_again(host):
    reply = host.ranks.call({0: {"op": "hang"}}, deadline_s=0.2)[0]
    (moved,) = host.move([Move(0, 0, Engine.COPY, Direction.PUSH, 4096, key=5)], deadline_s=20)

    assert reply.ended is Ended.HANG
    assert (moved.ended, moved.wrong_words) == (Ended.OK, 0)


@pytest.mark.parametrize("choice", KERNELS)
def test_one_wrong_word_is_found_at_its_place(choice):
    code, memory = load(choice), mmap.mmap(-1, MIB)

    code.fill(memory, 4096, 65536, key=77)
    clean = code.check(memory, 4096, 65536, key=77)
    memory[4096 + 5000] ^= 0x10
    spoiled = code.check(memory, 4096, 65536, key=77)

    assert clean == (0, -1)
    assert spoiled == (1, 5000)


@pytest.mark.parametrize("choice", KERNELS)
def test_a_copy_moves_every_byte(choice):
    code, src, dst = load(choice), mmap.mmap(-1, MIB), mmap.mmap(-1, MIB)
    code.fill(src, 0, MIB, key=3)

    copied = kernel.Stream(kernel.COPY, src, 0, MIB, dst)
    seconds, _ = code.stream(copied, sorted(os.sched_getaffinity(0)), 1)

    assert code.check(dst, 0, MIB, key=3) == (0, -1)
    assert seconds > 0


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(1, 500))
def test_no_key_s_pattern_passes_as_another_s_not_even_shifted(one, other, shift):
    code, memory = kernel.NumpyKernel(), mmap.mmap(-1, 16384)
    code.fill(memory, 0, 16384, key=one)

    wrong, _ = code.check(memory, 4 * shift, 8192, key=one)
    assert wrong > 2000
    if kernel.halves(one) != kernel.halves(other):
        wrong, _ = code.check(memory, 0, 8192, key=other)
        assert wrong > 1000


def test_compiled_and_numpy_patterns_are_the_same():
    memory = mmap.mmap(-1, 65536)
    load("c").fill(memory, 0, 65536, key=0x123456789ABCDEF0)

    assert kernel.NumpyKernel().check(memory, 0, 65536, key=0x123456789ABCDEF0) == (0, -1)


def test_a_cpu_that_is_not_there_ends_the_threads_instead_of_hanging_them():
    copied = []

    with pytest.raises(OSError, match="Invalid argument"):
        kernel.in_threads(copied.append, [min(os.sched_getaffinity(0)), 100_000])
    assert copied == []


def test_nodes_and_caches_are_read_as_sysfs_has_them(tmp_path):
    ours = sorted(os.sched_getaffinity(0))
    for node, cpus in ((0, str(ours[0])), (1, "5000-5003")):
        folder = tmp_path / f"node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
        (folder / "meminfo").write_text(f"Node {node} MemTotal: 1000 kB\nNode {node} MemFree:  900 kB\n")
    for cpu, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3")):
        for index, level, size in ((0, 1, "32K"), (3, 3, "32768K")):
            folder = tmp_path / f"cpu/cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            (folder / "level").write_text(f"{level}\n")
            (folder / "size").write_text(f"{size}\n")
            (folder / "shared_cpu_list").write_text(f"{shared}\n")

    found = topology.nodes(tmp_path)

    assert [(node.number, node.cpus, node.free_bytes) for node in found] == [(0, (ours[0],), 900 * 1024)]
    assert topology.last_level_cache_bytes(tmp_path) == 2 * 32 * MIB


def test_lists_of_cpus_are_read():
    assert topology.parse_list("0-2,8\n") == (0, 1, 2, 8)
    assert topology.parse_list("") == ()


def test_memory_error_counters_are_read_and_unreadable_ones_unknown(tmp_path):
    (tmp_path / "mc0").mkdir()
    (tmp_path / "mc0/ue_count").write_text("2\n")
    (tmp_path / "mc0/ce_count").write_text("what\n")

    bad, corrected = edac_counters(tmp_path)

    assert (bad.kind, bad.value) == ("ecc", 2)
    assert is_unknown(corrected.value)


def test_a_timed_copy_exceeds_the_caches_but_not_the_memory():
    assert stream_bytes(1, Depth.FULL) <= topology.available_bytes() // 8
    assert stream_bytes(1, Depth.QUICK) <= 256 * MIB


@given(st.lists(st.integers(), unique=True, min_size=1, max_size=300), st.integers(2, 40))
def test_a_sample_of_cores_keeps_both_ends(items, most):
    chosen = spread(items, most)

    assert len(chosen) == min(len(items), most)
    assert (chosen[0], chosen[-1]) == (items[0], items[-1])


def test_a_process_that_does_not_start_is_a_sentence_with_a_code(monkeypatch):
    monkeypatch.setattr(fabric, "SETUP_DEADLINE_S", 0.0)
    with pytest.raises(MeasureFailed, match="did not start") as failed:
        HostMemory(half_bytes=MIB)

    assert (failed.value.code, failed.value.next[:13]) == ("measure-failed", "uncork verify")
