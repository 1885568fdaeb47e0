"""All-reduce latency and transports of the server's own library, on a stand-in."""

import shutil
import subprocess
from pathlib import Path

import pytest

from uncork.gate import baseline, verify
from uncork.gate.cuda.library import of_servers
from uncork.gate.fabric import AllReduce
from uncork.host.live import LiveHost
from uncork.model.gate import Criterion, Verdict
from uncork.model.unknown import Unknown, is_unknown


def latency(result):
    return next(one for one in result.criteria if one.criterion is Criterion.LATENCY)


def test_every_size_has_its_latency_and_every_channel_its_transport(gpus, libnccl):
    found = gpus(2, nccl=libnccl).all_reduce((8, 65536), rounds=20)

    assert isinstance(found, AllReduce)
    assert found.library == "NCCL 2.29.7"
    assert {size: len(samples) for size, samples in found.samples_us.items()} == {8: 20, 65536: 20}
    assert found.transports == {"0→1": "P2P/CUMEM", "1→0": "P2P/CUMEM"}


def test_channels_through_shared_memory_fail(gpus, libnccl):
    result = verify(gpus(2, "nccl-shm -1 -1", nccl=libnccl))

    assert latency(result).verdict is Verdict.FAIL
    assert [(t.src, t.dst) for t in latency(result).troubles] == [(0, 1), (1, 0)]
    assert "goes through SHM" in latency(result).troubles[0].says


def test_an_all_reduce_slower_than_the_baseline_fails(gpus, libnccl):
    before = baseline.of(verify(gpus(2, nccl=libnccl)))

    result = verify(gpus(2, "all-reduce-slow -1 -1 0.5", nccl=libnccl), baseline=before)

    assert latency(result).verdict is Verdict.FAIL


def test_a_library_that_does_not_start_is_no_pass(gpus, libnccl):
    result = verify(gpus(2, "nccl-broken -1 -1", nccl=libnccl))

    assert result.verdict is Verdict.INCONCLUSIVE
    assert "NCCL 2.29.7 did not start" in latency(result).not_run[0]


def test_a_library_that_hangs_fails(gpus, libnccl, monkeypatch):
    monkeypatch.setattr("uncork.gate.cuda.collective.DEADLINE_S", 3.0)

    result = verify(gpus(2, "nccl-hang -1 -1", nccl=libnccl))

    assert result.criteria[-1].verdict is Verdict.FAIL
    assert "NCCL 2.29.7 did not start: no answer within 3 s" in result.criteria[-1].troubles[0].says


def test_without_a_server_the_latency_is_a_note_and_no_obstacle(gpus):
    result = verify(gpus(2, nccl=Unknown("no running process has NCCL loaded", absent=True)))

    assert result.verdict is Verdict.PASS
    assert any("no running process has NCCL loaded" in note for note in result.warnings)


def test_the_library_of_a_running_server_is_found_in_its_mappings(libnccl):
    cat = shutil.which("tail")
    if cat is None:
        pytest.skip("needs tail")
    with subprocess.Popen(
        [cat, "-f", "/dev/null"], env={"LD_PRELOAD": libnccl}, stdin=subprocess.DEVNULL
    ) as server:
        try:
            while libnccl not in Path(f"/proc/{server.pid}/maps").read_text(encoding="utf-8"):
                assert server.poll() is None
            found = of_servers()
        finally:
            server.kill()

    assert not is_unknown(found)
    assert "libnccl.so" in found


def test_no_server_is_said_to_be_absent(tmp_path):
    found = of_servers(LiveHost(str(tmp_path)))

    assert is_unknown(found)
    assert found.absent
