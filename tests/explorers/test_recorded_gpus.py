"""GPUs and PCIe of machines that people recorded as text, against what is known of them."""

from pathlib import Path

import pytest

from uncork.audit import judge
from uncork.explorers import driver, explore, pcie
from uncork.host.attached import AttachedHost
from uncork.host.recording import RecordingHost
from uncork.model.findings import Answer

DUMPS = Path(__file__).parents[2] / "../shared/dumps"
ASUS = DUMPS / "asus-esc8000a-e13p-8x-rtxpro6000"
OURS = ("driver", "cuda_memory", "pcie", "power", "p2p", "engine", "nvlink")
pytestmark = pytest.mark.skipif(
    not DUMPS.is_dir(), reason="the recorded machines are not beside the checkout"
)


@pytest.fixture(scope="module")
def asus():
    return RecordingHost(AttachedHost([ASUS]))


def test_eight_gpus_of_the_asus_host(asus):
    found = driver.explore(asus)

    assert [gpu.bdf for gpu in found.gpus] == [
        *("0000:06:00.0", "0000:07:00.0", "0000:75:00.0", "0000:76:00.0"),
        *("0000:84:00.0", "0000:85:00.0", "0000:f4:00.0", "0000:f5:00.0"),
    ]
    assert {(gpu.power_limit_mw, gpu.power_default_mw) for gpu in found.gpus} == {(600000, 600000)}
    assert {(gpu.pstate, gpu.link_gen, gpu.link_width) for gpu in found.gpus} == {(8, 1, 16)}
    assert {gpu.bar1_total_bytes for gpu in found.gpus} == {128 << 30}


def test_the_tree_above_its_gpus(asus):
    found = pcie.explore(asus)

    paths = {device.bdf: device.path for device in found.devices if device.kind == "gpu"}
    assert found.source == "lspci"
    assert paths["0000:06:00.0"] == ("0000:00:01.1", "0000:01:00.0", "0000:02:03.0")
    assert paths["0000:f5:00.0"] == ("0000:f0:01.1", "0000:f1:00.0", "0000:f2:02.0")


def test_redirect_is_off_and_source_validation_is_not_taken_for_it(asus):
    found = {device.bdf: device for device in pcie.explore(asus).devices}

    assert found["0000:02:03.0"].config.acs_control == 0x11
    assert found["0000:02:03.0"].config.read_request_bytes == 128


def test_the_asus_host_has_no_finding_above_p2_here(asus):
    serious = [
        (result.id, result.subject, result.says)
        for result in judge(explore(asus).facts)
        if result.answer is Answer.FAIL and result.priority in ("P0", "P1") and result.dimension in OURS
    ]

    assert serious == []


# Dump → the P0 and P1 findings that it is argued to have (docs/checks-left-out-gpu.md).
ARGUED = {
    "nvidia-smi-xml/a100-sxm4-mig.xml": set(),
    "nvidia-smi-xml/a100-sxm4-v12.xml": set(),
    "nvidia-smi-xml/a10g.xml": set(),
    "nvidia-smi-xml/rtx-3080-v13.xml": set(),
    "nvidia-smi-xml/rtx-3090-v12.xml": {"power.gpu-power-limit"},
    "nvidia-smi-xml/rtx-4090-driver-535.xml": set(),
    "nvidia-smi-xml/tesla-p100.xml": set(),
    "nvidia-smi-xml/tesla-t4.xml": set(),
    "nvidia-smi-q-page-retirement/bad_nvsmi8_output.txt": {"driver.row-remap"},
    "nvidia-smi-q-page-retirement/orig_nvsmi8_output.txt": set(),
    "nvlink/h100-nvl-nvlink-s.txt": set(),
    "nvidia-bug-report-2x-4090-gt1030.log": set(),
    "nvidia-bug-report-2x-a6000.log": set(),
    "dmesg/dmesg-xid119-gsp-rpc-history.txt": {"driver.xid-recent", "driver.gsp-mode"},
    "fabricmanager/fabricmanager.log": {"nvlink.nvswitch-errors"},
    "topo/p2p-rw-gns-2x5090.txt": set(),
    "rocm-smi-json/mi100_rocm602.json": set(),
}


@pytest.mark.parametrize("name", ARGUED)
def test_a_recorded_machine_has_only_the_serious_findings_argued_for_it(name):
    facts = explore(RecordingHost(AttachedHost([DUMPS / name]))).facts

    serious = {
        result.id
        for result in judge(facts)
        if result.answer is Answer.FAIL and result.priority in ("P0", "P1") and result.dimension in OURS
    }

    assert serious == ARGUED[name]
