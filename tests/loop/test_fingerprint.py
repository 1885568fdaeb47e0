"""The fingerprint of a run: what must be equal, what nobody could read, and what only tells how it began."""

import json
import os

import pytest
from tests.bench.runs import run
from tests.hosts import HERE, DictHost
from typer.testing import CliRunner

from uncork.bench.compare import compare
from uncork.bench.fingerprints import ABSENT, NOTES, under_test
from uncork.bench.reference_server import reference_server
from uncork.cli.bench import app
from uncork.loop.fingerprint import fingerprint
from uncork.loop.identity import altered_by
from uncork.model.comparison import Judgement

ENDPOINT = "http://127.0.0.1:8000"
LEVELS = {"c1": [100.0, 101.0, 99.0]}


def files(more: dict) -> dict:
    base = json.loads((HERE / "base" / "metal.json").read_text(encoding="utf-8"))["files"]
    return base | more


def seen(
    more: dict | None = None, *, endpoint: str = ENDPOINT, environ: str = "NCCL_ALGO=Ring\0", flag: str = "8"
):
    command = (
        f"/usr/bin/python3\0/usr/bin/vllm\0serve\0/models/a\0--max-num-seqs\0{flag}\0--api-key\0sk-secret\0"
    )
    server = {
        "/proc/77/cmdline": command,
        "/proc/77/environ": environ,
        "/proc/77/stat": "77 (vllm) S 1 77 77 0 -1 4194304 0 0 0 0 1 1 0 0 20 0 1 0 4242 0 0",
        "/proc/77/status": "Name:\tvllm\nPPid:\t1\nThreads:\t1\nCpus_allowed_list:\t0-3\n",
        "/proc/sys/vm/swappiness": "60\n",
        "/etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    }
    return fingerprint(DictHost(files(server | (more or {}))), endpoint)


def compared(one: dict, other: dict, *, tested=()):
    return compare(run(LEVELS, fingerprint=one), run(LEVELS, fingerprint=other), tested=tested)


def test_it_holds_the_server_and_the_settings_and_no_secret():
    found = seen()

    assert found["engine"] == "vllm"
    assert found["flag --max-num-seqs"] == "8"
    assert found["environment NCCL_ALGO"] == "Ring"
    assert found["sysctl:vm.swappiness"] == "60"
    assert found["engine version"]
    assert "sk-secret" not in json.dumps(found)
    assert "0123456789abcdef" not in found["machine"]


def test_the_same_host_twice_is_the_same():
    assert seen() == seen()
    assert compared(seen(), seen()).differs == ()


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"more": {"/proc/sys/vm/swappiness": "1\n"}}, "sysctl:vm.swappiness"),
        ({"more": {"/etc/machine-id": "f" * 32}}, "machine"),
        ({"more": {"/proc/sys/kernel/osrelease": "6.99.0\n"}}, "kernel"),
        ({"environ": "NCCL_ALGO=Tree\0"}, "environment NCCL_ALGO"),
        ({"environ": "NCCL_ALGO=Ring\0NCCL_P2P_DISABLE=1\0"}, "environment NCCL_P2P_DISABLE"),
        ({"flag": "16"}, "flag --max-num-seqs"),
    ],
)
def test_each_difference_is_refused_by_name_unless_it_is_under_test(changed, name):
    said = compared(seen(), seen(**changed))

    assert said.judgement is Judgement.NOT_COMPARABLE
    assert any(line.startswith(f"{name}: ") for line in said.differs)
    named = [line.partition(": ")[0] for line in said.differs]
    assert compared(seen(), seen(**changed), tested=named).judgement is not Judgement.NOT_COMPARABLE


def test_what_could_not_be_read_once_is_refused_and_twice_is_named():
    refuses = {"/proc/sys/vm/swappiness": {"unknown": "permission denied"}}
    unread = seen(refuses)

    assert unread["sysctl:vm.swappiness"] == {"unknown": "/proc/sys/vm/swappiness: permission denied"}
    assert (
        "sysctl:vm.swappiness: 60 → unknown (/proc/sys/vm/swappiness: permission denied)"
        in compared(seen(), unread).differs
    )
    both = compared(unread, seen(refuses))
    assert "sysctl:vm.swappiness" in both.unknown
    assert "not known whether equal" in both.says
    assert "sysctl:vm.swappiness" in both.says


def test_what_a_host_lacks_is_known_to_be_absent():
    assert seen({"/proc/sys/vm/swappiness": None})["sysctl:vm.swappiness"] == ABSENT


def test_a_server_elsewhere_is_unknown_with_the_reason():
    found = seen(endpoint="http://10.0.0.9:8000")

    assert "another machine" in found["engine"]["unknown"]


def test_boot_load_and_clocks_are_notes_and_no_identity():
    one, other = (
        seen({"/proc/loadavg": "0.1 0.1 0.1 1/9 9\n"}),
        seen({"/proc/loadavg": "7.0 7.0 7.0 1/9 9\n"}),
    )

    assert one[NOTES]["load average"] == "0.1 0.1 0.1"
    assert other[NOTES]["load average"] == "7.0 7.0 7.0"
    assert compared(one, other).differs == ()


def test_a_change_alters_its_own_entry_and_what_tells_the_same():
    assert altered_by("sysctl", "vm.swappiness") == ("sysctl:vm.swappiness",)
    assert "server limit *" in altered_by("rlimit", "77:nofile")


def test_a_loaded_driver_and_a_set_gpu_are_not_taken_for_each_other():
    assert under_test("gpu driver", altered_by("module", "nvidia"))
    assert under_test("gpu 0 power_limit_mw", altered_by("nvml", "0:power_limit_mw"))
    assert not under_test("gpu driver", altered_by("nvml", "0:power_limit_mw"))
    assert not under_test("gpu 0 vbios", altered_by("module", "nvidia"))


def test_a_failed_explorer_is_an_unknown_entry(monkeypatch):
    from uncork.explorers import numa

    def fails(host):
        raise RuntimeError("no")

    monkeypatch.setattr(numa, "explore", fails)

    assert "crashed" in seen()["numa"]["unknown"]


def test_uncork_bench_stores_it(tmp_path):
    with reference_server(ttft_us=2_000, itl_us=500) as server:
        argv = ["--endpoint", server.url, "--concurrency", "1", "--requests", "2", "--repeats", "1", "--out"]
        CliRunner().invoke(app, [*argv, str(tmp_path), "--input-len", "16", "--output-len", "4"])
    found = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["fingerprint"]

    assert found["kernel"] == os.uname().release
    assert "no process of a known inference engine" in found["engine"]["unknown"]
    assert found[NOTES]["load average"]
