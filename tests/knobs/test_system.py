"""Modules and their options, the latency request, owners."""

import errno
import os
import struct
from pathlib import Path

import pytest
from tests.knobs.test_contract import alone

from uncork.knobs import KNOBS, recipes
from uncork.knobs.recipes.system import holders
from uncork.model.unknown import is_unknown

MODPROBE = """#!/bin/sh
case $1 in
  locked) echo "modprobe: ERROR: could not insert 'locked': Operation not permitted" >&2; exit 1;;
  old) echo "modprobe: ERROR: could not insert 'old': Invalid argument" >&2; exit 1;;
  missing) echo "modprobe: FATAL: Module missing not found in directory /lib/modules/6.1" >&2; exit 1;;
esac
mkdir -p $ROOT/sys/module/$1/holders; echo 0 > $ROOT/sys/module/$1/refcnt; echo live > $ROOT/sys/module/$1/initstate
"""
RMMOD = "#!/bin/sh\nrm -r $ROOT/sys/module/$1\n"


@pytest.fixture
def kmod(kernel, monkeypatch):
    """modprobe and rmmod of the fake kernel's own."""
    folder = kernel.root / "bin"
    folder.mkdir()
    for name, text in (("modprobe", MODPROBE), ("rmmod", RMMOD)):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(recipes.system, "_SBIN", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("ROOT", str(kernel.root))
    return kernel


def test_a_module_loads_and_goes(kmod, knobs):
    knob = knobs["module"]
    assert knob.read("nvidia-peermem") == "absent"
    knob.write("nvidia-peermem", "loaded")
    assert knob.read("nvidia-peermem") == "loaded"

    knob.write("nvidia-peermem", "absent")

    assert knob.read("nvidia-peermem") == "absent"


def test_a_module_in_use_is_not_unloaded(kmod, knobs):
    knobs["module"].write("nvidia_uvm", "loaded")
    kmod.put("/sys/module/nvidia_uvm/refcnt", "3\n")

    with pytest.raises(OSError, match="in use by 3 users") as refused:
        knobs["module"].write("nvidia_uvm", "absent")

    assert (refused.value.errno, knobs["module"].read("nvidia_uvm")) == (errno.EBUSY, "loaded")


def test_a_module_that_another_holds_is_not_unloaded(kmod, knobs):
    knobs["module"].write("nvidia", "loaded")
    (kmod.root / "sys/module/nvidia/holders/nvidia_uvm").mkdir()

    with pytest.raises(OSError, match="in use by nvidia_uvm"):
        knobs["module"].write("nvidia", "absent")


@pytest.mark.parametrize(
    ("name", "code"), [("locked", errno.EPERM), ("old", errno.EINVAL), ("missing", errno.ENOENT)]
)
def test_a_refused_load_keeps_the_kernels_errno(kmod, knobs, name, code):
    with pytest.raises(OSError) as refused:
        knobs["module"].write(name, "loaded")

    assert (refused.value.errno, knobs["module"].read(name)) == (code, "absent")


def test_a_module_on_its_way_out_is_neither(kmod, knobs):
    kmod.file("/sys/module/x/initstate", "going\n")

    assert knobs["module"].read("x") == "going"


@pytest.fixture
def latency(tmp_path):
    """A file where /dev/cpu_dma_latency would be, without a request."""
    path = tmp_path / "dev/cpu_dma_latency"
    path.parent.mkdir()
    path.write_bytes(struct.pack("=i", 2_000_000_000))
    yield path
    recipes.write({"kind": "latency-request", "path": str(path)}, "none")


def at(tmp_path: Path):
    from uncork.knobs import knobs_at

    return knobs_at(str(tmp_path))["pm_qos"]


def test_a_latency_request_is_held_by_another_process(latency, tmp_path):
    knob = at(tmp_path)
    assert knob.read("cpu_dma_latency") == "none"
    knob.write("cpu_dma_latency", "50")

    ((pid, value),) = holders(str(latency))
    assert (value, struct.unpack("=i", latency.read_bytes())[0], knob.read("cpu_dma_latency")) == (
        "50",
        50,
        "50",
    )
    assert pid != os.getpid() and os.getsid(pid) == pid
    assert any(os.readlink(f"/proc/{pid}/fd/{fd}") == str(latency) for fd in os.listdir(f"/proc/{pid}/fd"))


def test_ending_the_holder_ends_the_request(latency, tmp_path):
    knob = at(tmp_path)
    knob.write("cpu_dma_latency", "50")
    knob.write("cpu_dma_latency", "none")

    assert (holders(str(latency)), knob.read("cpu_dma_latency")) == ([], "none")


def test_a_new_request_replaces_the_old_holder(latency, tmp_path):
    knob = at(tmp_path)
    knob.write("cpu_dma_latency", "50")
    knob.write("cpu_dma_latency", "20")

    assert [value for _, value in holders(str(latency))] == ["20"]


def test_a_request_that_is_not_in_force_shows(latency, tmp_path):
    knob = at(tmp_path)
    knob.write("cpu_dma_latency", "50")
    latency.write_bytes(struct.pack("=i", 2_000_000_000))

    assert knob.read("cpu_dma_latency") == "none"


def test_the_recipe_of_a_request_undoes_alone(latency, tmp_path):
    knob = at(tmp_path)
    knob.write("cpu_dma_latency", "50")

    said = alone(knob.recipe("cpu_dma_latency"), "50", "none", tmp_path)

    assert (said, holders(str(latency))) == ([["50", True], "none"], [])


@pytest.mark.parametrize("value", ["fast", "-1", "2000000000"])
def test_what_is_no_latency_is_refused(latency, tmp_path, value):
    with pytest.raises(OSError) as refused:
        at(tmp_path).write("cpu_dma_latency", value)

    assert (refused.value.errno, holders(str(latency))) == (errno.EINVAL, [])


@pytest.fixture
def options(kernel):
    (kernel.root / "etc/modprobe.d").mkdir(parents=True)
    return kernel


def test_an_option_comes_and_goes_with_its_file(options, knobs):
    knob, target = knobs["modprobe_option"], "nvidia:NVreg_EnablePCIeRelaxedOrderingMode"
    assert (knob.read(target), knob.scope(target)) == ("absent", "next-boot")
    knob.write(target, "1")
    assert (
        options.text("/etc/modprobe.d/uncork.conf")
        == "options nvidia NVreg_EnablePCIeRelaxedOrderingMode=1\n"
    )

    knob.write(target, "absent")

    assert os.listdir(options.root / "etc/modprobe.d") == []


def test_other_lines_of_the_file_stay(options, knobs):
    options.file("/etc/modprobe.d/uncork.conf", "options nvidia NVreg_X=1\noptions nvme poll_queues=4\n")
    knobs["modprobe_option"].write("nvidia:NVreg_X", "2")
    knobs["modprobe_option"].write("nvidia:NVreg_X", "absent")

    assert options.text("/etc/modprobe.d/uncork.conf") == "options nvme poll_queues=4\n"


def test_another_file_with_the_option_is_an_owner(options, knobs):
    options.file("/etc/modprobe.d/nvidia.conf", "options nvidia NVreg_X=0\n")

    assert knobs["modprobe_option"].owners("nvidia:NVreg_X") == ("modprobe.d:/etc/modprobe.d/nvidia.conf",)


def test_daemons_that_would_write_back_are_named(kernel, knobs):
    for pid, name in ((10, "tuned"), (11, "irqbalance"), (12, "power-profiles-"), (13, "sshd")):
        kernel.file(f"/proc/{pid}/comm", name + "\n")
    kernel.file("/etc/tuned/active_profile", "throughput-performance\n")
    kernel.file("/etc/sysctl.d/90-llm.conf", "# vm.swappiness = 1\n-vm.swappiness = 10\nvm/dirty_ratio=5\n")

    assert knobs["sysctl"].owners("vm.swappiness") == (
        "tuned (profile throughput-performance)",
        "sysctl.d:/etc/sysctl.d/90-llm.conf",
    )
    assert knobs["sysctl"].owners("vm.dirty_ratio")[1:] == ("sysctl.d:/etc/sysctl.d/90-llm.conf",)
    assert knobs["irq_affinity"].owners("33") == ("irqbalance", "tuned (profile throughput-performance)")
    assert "power-profiles-daemon" in knobs["cpufreq_governor"].owners("policy0")


def test_a_size_of_shared_memory_is_equal_up_to_a_page():
    same = KNOBS["shm_size"].same

    assert same("1000", "4096") and same("4096", "4096")
    assert not same("4096", "8192") and not same("8192", "4096")


def test_a_folder_that_is_no_tmpfs_of_its_own_is_unknown(tmp_path):
    assert is_unknown(KNOBS["shm_size"].read(str(tmp_path)))


def test_a_key_may_have_a_dot_in_an_interfaces_name(kernel, knobs):
    path = "/proc/sys/net/ipv4/conf/eth0.100/arp_ignore"
    kernel.file(path, "0\n")
    knobs["sysctl"].write("net/ipv4/conf/eth0.100/arp_ignore", "1")
    assert knobs["sysctl"].read(path) == "1"

    assert knobs["sysctl"].undo_command(path, "0") == "sysctl -w net/ipv4/conf/eth0.100/arp_ignore=0"
