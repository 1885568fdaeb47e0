"""Lines of the kernel log about GPUs, as different drivers and kernels print them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork.explorers import gpu_log
from uncork.model.facts.driver import Xid

LINES = [
    ("NVRM: Xid (PCI:0000:61:00): 119, pid=977823, name=nvidia-smi, Timeout", "xid"),
    ("NVRM: Xid (0000:03:00): 31, Ch 00000001", "xid"),
    ("nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 32", "sxid"),
    ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0x56:1482)", "probe-failed"),
    ("nvidia 0000:0a:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f address=0xea]", "iommu-fault"),
    ("DMAR: [DMA Write] Request device [02:00.0] fault addr cd139000", "iommu-fault"),
    ("DMAR: [DMA Read NO_PASID] Request device [02:00.0] fault addr 0x0", "iommu-fault"),
    ("nvidia 0000:84:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space", "bar"),
    ("pci 0000:84:00.0: BAR 1: no space for [mem size 0x800000000 64bit pref]", "bar"),
    ("pcieport 0000:03:00.0: DPC: containment event, status:0x1f01 source:0x0000", "dpc"),
    ("pcieport 0000:00:03.1: AER: Uncorrected (Fatal) error received", "aer-uncorrected"),
    ("pcieport 0000:00:03.1: PCIe Bus Error: severity=Corrected, type=Physical Layer", "aer-corrected"),
    ("iommu: Default domain type: Translated", "iommu-domain"),
    ("mce: CPU3: Core temperature is above threshold, cpu clock is throttled", "throttled"),
    ("Hypervisor detected: KVM", "guest"),
    ("NVRM: GPU 0000:01:00.0 is already bound to nouveau.", "nouveau"),
    ("DMI: QEMU Standard PC (Q35 + ICH9, 2009), BIOS 1.16.2", "guest"),
    ("pcieport 0000:00:01.1: pciehp: Slot(0): Link Down", "link-down"),
    ("{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0", "apei"),
    ("acpi PNP0A08:00: _OSC: platform does not support [AER LTR DPC]", "osc"),
    ("NVRM: GPU 0000:01:00.0: GPU does not have the necessary power cables connected.", "power-cable"),
    ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01", "module"),
    ("NVRM: API mismatch: the client has the version 535.113.01, but", "api-mismatch"),
    ("NVRM: installed in this system requires use of the NVIDIA open kernel modules.", "needs-open"),
]


@pytest.mark.parametrize(("line", "kind"), LINES)
def test_a_line_is_of_this_kind(line, kind):
    assert list(gpu_log.lines_by_kind(f"[   12.345678] {line}\n")) == [kind]


def test_a_message_of_three_lines_is_one():
    text = (
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
    )

    found = gpu_log.lines_by_kind(text)["off-bus"]

    assert len(found) == 1
    assert gpu_log.addresses(found[0]) == ("0000:b3:00.0",)


def test_xids_keep_their_gpu_and_switches_are_told_apart():
    found = gpu_log.lines_by_kind(f"{LINES[0][0]}\n{LINES[2][0]}\n")

    assert gpu_log.xids(found) == (
        Xid(119, "0000:61:00.0", LINES[0][0]),
        Xid(12028, "0000:c4:00.0", LINES[2][0], switch=True),
    )


def test_a_fault_that_repeats_itself_is_kept_a_few_times():
    text = f"{LINES[0][0]}\n" * 5000

    assert len(gpu_log.lines_by_kind(text)["xid"]) == gpu_log.KEPT


@given(st.text())
def test_any_text_is_read(text):
    assert all(len(lines) <= gpu_log.KEPT for lines in gpu_log.lines_by_kind(text).values())
