"""NUMA nodes from sysfs, numactl and lscpu."""

from pathlib import Path

import pytest
from tests.hosts import DictHost, with_base

from uncork.explorers.numa import explore
from uncork.model.facts.container import Counter
from uncork.model.unknown import is_unknown

DUMPS = Path(__file__).parents[2] / "../shared/dumps/asus-esc8000a-e13p-8x-rtxpro6000"


def test_nodes_and_what_missed_them():
    base = with_base({"base": "metal"})
    path = "/sys/devices/system/node/node1/numastat"
    base["files"][path] = {"samples": ["numa_hit 5\nnuma_miss 3\n", "numa_hit 9\nnuma_miss 10\n"]}

    nodes = explore(DictHost(**base)).nodes

    assert not is_unknown(nodes)
    assert [node.cpus for node in nodes] == [tuple(range(32)), tuple(range(32, 64))]
    assert nodes[1].missed == Counter(3, 10)
    assert nodes[0].distances == (10, 32)


def test_lscpu_alone_names_the_nodes():
    text = "NUMA node(s):          2\nNUMA node0 CPU(s):     0-3\nNUMA node1 CPU(s):     4-7\n"

    nodes = explore(DictHost(runs={"lscpu": text}, attached=True)).nodes

    assert not is_unknown(nodes)
    assert [(node.number, node.cpus) for node in nodes] == [(0, (0, 1, 2, 3)), (1, (4, 5, 6, 7))]
    assert is_unknown(nodes[0].memory_bytes)


@pytest.mark.skipif(not DUMPS.is_dir(), reason="the shared reference material is not here")
def test_numactl_of_a_real_host():
    text = (DUMPS / "numactl-hardware.txt").read_text(encoding="utf-8")

    nodes = explore(DictHost(runs={"numactl --hardware": text}, attached=True)).nodes

    assert not is_unknown(nodes)
    assert [len(node.cpus) for node in nodes if not is_unknown(node.cpus)] == [128, 127]
    assert nodes[0].memory_bytes == 773676 << 20
    assert nodes[1].distances == (32, 10)


def test_nothing_read_is_unknown():
    assert is_unknown(explore(DictHost(attached=True)).nodes)
