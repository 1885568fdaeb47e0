"""Registers read before and after a run: what moved meanwhile fails, what moved earlier is said."""

import pytest
from tests.explorers import pci_bytes

from uncork.gate import baseline, verify
from uncork.gate.cuda import registers, topology
from uncork.model.gate import Criterion, Verdict
from uncork.model.unknown import is_unknown

GPU, SWITCH = "0000:20:00.0", "0000:81:00.0"


def link(result):
    return next(one for one in result.criteria if one.criterion is Criterion.LINK)


def write(root, bdf, **values):
    (root / "sys/bus/pci/devices" / bdf / "config").write_bytes(pci_bytes.config(**values))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root-0"


def test_a_register_that_moves_during_the_run_fails_and_is_named(gpus, root):
    fabric = gpus(2)
    write(root, GPU, read_request=4096)
    write(root, SWITCH, port="downstream", acs=0x00)

    def creep(line):
        if line.startswith("bandwidth:"):
            write(root, GPU, read_request=512)

    result = verify(fabric, progress=creep)

    assert result.suspects[0].component == "gpu1 link"
    assert [t.says for t in link(result).troubles] == [
        "gpu1 link MaxReadReq reads 512, it was 4096 before the first transfer"
    ]
    assert {one.criterion for one in result.criteria if one.verdict is Verdict.FAIL} == {Criterion.LINK}


def test_a_register_that_a_change_set_since_the_baseline_is_said_and_passes(gpus, root):
    fabric = gpus(2)
    write(root, SWITCH, port="downstream", acs=0x1D)
    before = baseline.of(verify(fabric))
    write(root, SWITCH, port="downstream", acs=0x00)

    result = verify(fabric, baseline=before)

    assert result.verdict is Verdict.PASS
    assert [t.says for t in link(result).troubles] == [
        f"bridge {SWITCH} ACS reads 0x0000 (all off), it was 0x001d (SrcValid ReqRedir CmpltRedir UpstreamFwd) "
        "when the baseline was taken"
    ]


def test_registers_that_need_root_are_said_once(gpus, root):
    fabric = gpus(2)
    for bdf in (GPU, SWITCH):
        (root / "sys/bus/pci/devices" / bdf / "config").write_bytes(pci_bytes.config()[:64])

    (trouble,) = link(verify(fabric)).troubles

    assert not trouble.blocking
    assert trouble.says.startswith("registers of 2 devices were not compared: only 64 bytes")


def test_bridges_that_two_gpus_share_are_read_once_and_absent_ones_not_at_all(gpus, root):
    fabric = gpus(2)
    write(root, SWITCH, port="downstream", acs=0x1D)
    places = [topology.place(fabric._host, device.bus_id) for device in fabric.devices]
    assert not any(is_unknown(place) for place in places)

    found = registers.read(fabric._host, places, ["gpu0", "gpu1"], 1)

    assert [(one.component, one.name) for one in found] == [
        (f"bridge {SWITCH}", name) for name in ("MaxPayload", "MaxReadReq", "RelaxedOrdering", "ACS")
    ]
