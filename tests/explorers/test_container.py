"""Containers, machines and control groups as they are told apart."""

import pytest
from tests.hosts import DictHost, with_base

from uncork.explorers import cgroups, layers
from uncork.explorers.container import explore
from uncork.host.attached import AttachedHost
from uncork.host.live import LiveHost
from uncork.model.facts.container import Counter, Machine
from uncork.model.unknown import is_unknown

V2 = {
    "/sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n",
    "/proc/self/cgroup": "0::/a/b\n",
    "/sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
    "/sys/fs/cgroup/a/cpu.max": "150000 100000\n",
    "/sys/fs/cgroup/a/cpu.stat": {
        "samples": ["nr_periods 10\nnr_throttled 1\n", "nr_periods 14\nnr_throttled 4\n"]
    },
    "/sys/fs/cgroup/a/b/pids.max": "max\n",
    "/sys/fs/cgroup/a/b/memory.max": "1024\n",
}


def test_a_chain_goes_up_to_the_root_with_both_samples():
    chain = cgroups.chain(DictHost(V2))

    assert not is_unknown(chain)
    assert [group.path for group in chain] == ["/a/b", "/a", "/"]
    assert [group.cpu_quota for group in chain[:2]] == [None, 1.5]
    assert (chain[1].periods, chain[1].throttled) == (Counter(10, 14), Counter(1, 4))
    assert chain[0].memory_max_bytes == 1024


def test_version_one_says_unlimited_in_its_own_way():
    host = DictHost(
        {
            "/proc/self/cgroup": "3:cpu,cpuacct:/x\n2:memory:/x\n1:pids:/\n",
            "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1\n",
            "/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n",
            "/sys/fs/cgroup/memory/x/memory.failcnt": "3\n",
        }
    )

    chain = cgroups.chain(host)

    assert not is_unknown(chain)
    assert (chain[0].cpu_quota, chain[0].memory_max_bytes) == (None, None)
    assert chain[0].memory_events == {"max": 3}
    assert not chain[0].unified


def test_attached_pieces_of_one_group_are_a_chain():
    chain = cgroups.chain(DictHost({"/sys/fs/cgroup/cpu.max": "600000 100000\n"}))

    assert not is_unknown(chain)
    assert chain[0].cpu_quota == 6.0


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"vendor": "QEMU", "product": "Standard PC (Q35 + ICH9, 2009)", "flags": "hypervisor"},
            ("qemu", "q35"),
        ),
        (
            {"vendor": "Amazon EC2", "product": "p5.48xlarge", "flags": "hypervisor"},
            ("amazon", "p5.48xlarge"),
        ),
        ({"vendor": "Amazon EC2", "product": "m5.metal", "flags": "fpu"}, None),
        ({"vendor": "Supermicro", "product": "AS-4125GS", "flags": "fpu"}, None),
        (
            {"vendor": "Microsoft Corporation", "product": "Virtual Machine", "flags": "hypervisor"},
            ("microsoft", ""),
        ),
    ],
)
def test_machines_are_told_by_the_processor_and_named_by_dmi(
    files: dict[str, str], expected: tuple[str, str] | None
):
    host = DictHost(
        {
            "/proc/cpuinfo": f"flags\t\t: fpu {files['flags']}\n",
            "/sys/class/dmi/id/sys_vendor": files["vendor"] + "\n",
            "/sys/class/dmi/id/product_name": files["product"] + "\n",
        }
    )

    found = layers.machine(host)

    if expected is None:
        assert found is None
    else:
        assert isinstance(found, Machine)
        assert found.hypervisor == expected[0]
        assert expected[1] in found.model


def test_nothing_read_is_unknown_and_not_bare_metal():
    assert is_unknown(layers.machine(DictHost()))


def test_dockerenv_alone_is_no_container():
    facts = explore(DictHost(**with_base({"base": "metal", "files": {"/.dockerenv": ""}})))

    assert facts.contained is False
    assert facts.layers == ()


def test_this_machine_is_explored_without_a_crash():
    facts = explore(LiveHost())

    assert not is_unknown(facts.contained)
    assert not is_unknown(facts.processes)


@pytest.mark.parametrize(
    ("line", "guest"),
    [
        ("00:02.0 PCI bridge [0604]: Red Hat, Inc. QEMU PCIe Root port [1b36:000c]", True),
        ("00:0f.0 VGA compatible controller: VMware SVGA II Adapter", True),
        ("00:04.0 Non-Volatile memory controller [0108]: Amazon.com, Inc. NVMe EBS [1d0f:8061]", False),
    ],
)
def test_attached_lspci_alone_tells_a_guest_by_devices_that_only_hypervisors_have(tmp_path, line, guest):
    (tmp_path / "lspci.txt").write_text(f"{line}\n01:00.0 3D controller [0302]: NVIDIA GA102GL [10de:2236]\n")

    found = layers.machine(AttachedHost([tmp_path]))

    assert is_unknown(found) is not guest
    assert not guest or found.evidence.startswith("lspci: ")
