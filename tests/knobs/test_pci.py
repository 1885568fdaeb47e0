"""The write protocol of PCI config space, on config files that answer like devices."""

import errno
import os

import pytest
from tests.knobs.fakekernel import ACS_AT, EXPRESS_AT, FakePci, config
from tests.knobs.test_contract import alone

from uncork.model.unknown import Unknown

GPU, PORT, SWITCH = FakePci.GPU, FakePci.PORT, FakePci.SWITCH
CONTROL = EXPRESS_AT + 8
ACS_CONTROL = ACS_AT + 6


def test_reads_bytes_and_bits(pci, knobs):
    assert (knobs["pci_mrrs"].read(GPU), knobs["pci_acs"].read(PORT)) == ("512", "0x0c")


def test_writes_the_field_only_in_one_aligned_word(pci, knobs, kernel):
    knobs["pci_mrrs"].write(GPU, "4096")

    assert [written for _, written in kernel.writes] == [f"{CONTROL:#x}=5810"]
    assert (pci.word(GPU, CONTROL), knobs["pci_mrrs"].read(GPU)) == (0x5810, "4096")


def test_undo_restores_the_field_only(pci, knobs):
    knobs["pci_mrrs"].write(GPU, "4096")
    pci.replace(GPU, config(control=0x5010))  # meanwhile the driver cleared No Snoop

    knobs["pci_mrrs"].write(GPU, "512")

    assert pci.word(GPU, CONTROL) == 0x2010


def test_acs_clears_the_redirect_bits_only(pci, knobs, kernel):
    knobs["pci_acs"].write(PORT, "0x00")

    assert pci.word(PORT, ACS_CONTROL) == 0x11
    assert [written for _, written in kernel.writes] == [f"{ACS_CONTROL:#x}=0011"]


def test_bit_15_is_never_written_even_if_it_reads_as_one(pci, knobs):
    resets = []
    pci.replace(GPU, config(control=0xA810))

    def reset(offset, data, put):
        if offset == CONTROL and data[1] & 0x80:
            resets.append(data)
        put(offset, data)

    pci.on_write(GPU, reset)
    knobs["pci_mrrs"].write(GPU, "4096")

    assert (resets, pci.word(GPU, CONTROL)) == ([], 0x5810)


def test_device_status_is_never_in_the_same_access(pci, knobs, kernel):
    knobs["pci_mrrs"].write(GPU, "1024")

    assert all(
        written.startswith(f"{CONTROL:#x}=") and len(written.split("=")[1]) == 4
        for _, written in kernel.writes
    )


def test_an_ignored_write_shows(pci, knobs):
    pci.on_write(GPU, lambda offset, data, put: None)
    knobs["pci_mrrs"].write(GPU, "4096")

    assert not knobs["pci_mrrs"].same("4096", knobs["pci_mrrs"].read(GPU))


def test_when_other_bits_move_the_old_word_goes_back(pci, knobs):
    seen = []

    def sloppy(offset, data, put):
        seen.append(data)
        put(offset, data if len(seen) > 1 else bytes((data[0] ^ 0x10, data[1])))

    pci.on_write(GPU, sloppy)

    with pytest.raises(OSError) as refused:
        knobs["pci_mrrs"].write(GPU, "4096")

    assert (refused.value.errno, pci.word(GPU, CONTROL)) == (errno.EIO, 0x2810)


def test_when_the_device_reports_an_error_the_field_goes_back(pci, knobs, kernel):
    path = f"/sys/devices/pci0000:80/{PORT}/{SWITCH}/{GPU}/aer_dev_nonfatal"
    kernel.file(path, "Undefined 0\nCmpltTO 0\nTOTAL_ERR_NONFATAL 0\n")

    def failing(offset, data, put):
        put(offset, data)
        kernel.put(path, "Undefined 0\nCmpltTO 1\nTOTAL_ERR_NONFATAL 1\n")

    pci.on_write(GPU, failing)

    with pytest.raises(OSError, match="nonfatal CmpltTO") as refused:
        knobs["pci_mrrs"].write(GPU, "4096")

    assert (refused.value.errno, pci.word(GPU, CONTROL)) == (errno.EIO, 0x2810)


@pytest.mark.parametrize("value", ["0", "300", "8192", "fast", ""])
def test_a_value_that_the_field_cannot_hold_is_refused(pci, knobs, kernel, value):
    with pytest.raises(OSError) as refused:
        knobs["pci_mrrs"].write(GPU, value)

    assert (refused.value.errno, kernel.writes) == (errno.EINVAL, [])


def test_bits_outside_the_redirect_mask_are_refused(pci, knobs, kernel):
    with pytest.raises(OSError) as refused:
        knobs["pci_acs"].write(PORT, "0x01")

    assert (refused.value.errno, kernel.writes) == (errno.EINVAL, [])


def test_a_device_off_the_bus_is_not_written(pci, knobs, kernel):
    recipe = knobs["pci_mrrs"].recipe(GPU)
    pci.replace(GPU, b"\xff" * 4096)

    found = knobs["pci_mrrs"].read(GPU)
    assert isinstance(found, Unknown)
    with pytest.raises(OSError) as refused:
        knobs["pci_mrrs"].write(GPU, "4096")
    assert (refused.value.errno in (errno.ENODEV, errno.ENXIO), kernel.writes) == (True, [])
    assert recipe["identity"] == "10de:2bb5"


def test_another_device_in_the_slot_is_not_undone_into(pci, knobs, kernel, tmp_path):
    from uncork.knobs import recipes

    recipe = knobs["pci_mrrs"].recipe(GPU)
    pci.replace(GPU, config(vendor=0x1002))

    with pytest.raises(OSError, match="1002:2bb5 answers where 10de:2bb5 was"):
        recipes.write(recipe, "512")
    assert kernel.writes == []


def test_a_function_without_the_capability_is_unknown(pci, knobs):
    found = knobs["pci_acs"].read(GPU)

    assert isinstance(found, Unknown) and "no such capability" in found.reason


def test_64_bytes_of_config_space_are_unknown(pci, knobs):
    pci.replace(GPU, config(size=64))

    found = knobs["pci_mrrs"].read(GPU)

    assert isinstance(found, Unknown) and "needs root" in found.reason


def test_a_looping_capability_list_ends(pci, knobs):
    space = bytearray(config())
    space[0x41] = 0x40
    pci.replace(GPU, bytes(space))

    assert isinstance(knobs["pci_mrrs"].read(GPU), Unknown)


def vetoed(knob, target, value, kernel) -> str:
    reason = knob.veto(target, value)
    with pytest.raises(PermissionError) as refused:
        knob.write(target, value)
    assert (refused.value.strerror, kernel.writes) == (reason, [])
    return reason


def test_lockdown_vetoes(pci, knobs, kernel):
    kernel.file("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n")

    assert "locked down (integrity)" in vetoed(knobs["pci_mrrs"], GPU, "4096", kernel)


def test_a_container_vetoes(pci, knobs, kernel):
    kernel.file("/proc/self/uid_map", "         0     100000      65536\n")

    assert "container" in vetoed(knobs["pci_acs"], PORT, "0", kernel)


def test_reads_sized_by_payload_veto(pci, knobs, kernel):
    kernel.file("/proc/cmdline", "ro pci=pcie_bus_perf\n")

    assert "pcie_bus_perf" in vetoed(knobs["pci_mrrs"], GPU, "4096", kernel)


def test_mixed_payload_vetoes_larger_reads_and_allows_smaller_ones(pci, knobs, kernel):
    pci.replace(SWITCH, config(vendor=0x104C, control=0x2830, acs=0x1D))

    assert "MaxPayload differs" in vetoed(knobs["pci_mrrs"], GPU, "4096", kernel)
    assert knobs["pci_mrrs"].veto(GPU, "128") == ""


def test_transactions_pending_all_the_time_veto(pci, knobs, kernel):
    pci.replace(GPU, config(status=0x20))

    assert "pending" in vetoed(knobs["pci_mrrs"], GPU, "4096", kernel)


def test_a_virtual_machine_vetoes_acs_only(pci, knobs, kernel):
    kernel.file("/proc/cpuinfo", "flags\t\t: fpu vme hypervisor lahf_lm\n")

    assert "virtual machine" in vetoed(knobs["pci_acs"], PORT, "0", kernel)
    assert knobs["pci_mrrs"].veto(GPU, "4096") == ""


def test_vfio_vetoes_acs(pci, knobs, kernel):
    folder = kernel.root / "sys/bus/pci/drivers/vfio-pci"
    folder.mkdir(parents=True)
    (folder / GPU).symlink_to(pci.path(GPU))

    assert "vfio" in vetoed(knobs["pci_acs"], PORT, "0", kernel)


def test_virtual_functions_veto_acs(pci, knobs, kernel):
    kernel.file(f"/sys/devices/pci0000:80/{PORT}/{SWITCH}/{GPU}/sriov_numvfs", "4\n")

    assert f"{GPU} has virtual functions" in vetoed(knobs["pci_acs"], PORT, "0", kernel)


def test_running_guests_veto_acs(pci, knobs, kernel):
    kernel.file("/sys/module/kvm_intel/refcnt", "2\n")

    assert "virtual machines run here" in vetoed(knobs["pci_acs"], PORT, "0", kernel)


def test_setting_redirect_again_is_never_vetoed_by_isolation(pci, knobs, kernel):
    knobs["pci_acs"].write(PORT, "0")
    kernel.file("/sys/module/kvm_intel/refcnt", "2\n")

    knobs["pci_acs"].write(PORT, "0x0c")

    assert pci.word(PORT, ACS_CONTROL) == 0x1D


def test_the_commands_to_paste_name_field_and_mask(pci, knobs):
    assert knobs["pci_mrrs"].undo_command(GPU, "512") == f"setpci -s {GPU} CAP_EXP+8.w=2000:7000"
    assert knobs["pci_acs"].undo_command(PORT, "0x0c") == f"setpci -s {PORT} ECAP_ACS+6.w=c:2c"


def test_the_recipe_undoes_alone(pci, knobs, tmp_path):
    knobs["pci_mrrs"].write(GPU, "4096")

    assert alone(knobs["pci_mrrs"].recipe(GPU), "4096", "512", tmp_path) == [["4096", True], "512"]
    assert pci.word(GPU, CONTROL) == 0x2810


def test_relaxed_ordering_is_one_bit(pci, knobs):
    knobs["pci_relaxed_ordering"].write(GPU, "0")

    assert (pci.word(GPU, CONTROL), knobs["pci_relaxed_ordering"].read(GPU)) == (0x2800, "0")
    assert os.path.exists(knobs["pci_relaxed_ordering"].recipe(GPU)["path"])
