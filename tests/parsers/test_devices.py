"""What parsers of buses, devices and the kernel log promise beyond the dumps: layouts, fragments, cut lines."""

from uncork.parsers import (
    dmesg,
    lspci,
    lspci_tree,
    nvidia_smi,
    nvlink,
    topo,
)


def test_one_acs_line_without_its_device_is_a_device_without_an_address():
    (device,) = lspci.parse("\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl-")

    assert (device.bdf, device.acs_redirect) == ("", ("ReqRedir", "CmpltRedir"))


def test_an_acs_word_from_setpci_is_read_as_bits():
    (device,) = lspci.parse("ACSCtl: 0x001d    # SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+")

    assert [name for name, on in device.acs_ctl.items() if on] == [
        "SrcValid",
        "ReqRedir",
        "CmpltRedir",
        "UpstreamFwd",
    ]


def test_an_unassigned_region_has_no_address_but_its_size():
    text = (
        "84:00.0 VGA compatible controller: NVIDIA Corporation GB202\n"
        "\tRegion 1: Memory at <unassigned> (64-bit, prefetchable) [size=32G]"
    )

    (device,) = lspci.parse(text)

    assert [(bar.index, bar.address, bar.size_bytes) for bar in device.bars] == [(1, "", 32 << 30)]


def test_lspci_without_root_says_that_capabilities_were_denied():
    (device,) = lspci.parse(
        "01:00.0 3D controller: NVIDIA Corporation X\n\tCapabilities: <access denied>\n\tKernel driver in use: nvidia"
    )

    assert (device.access_denied, device.driver, device.link_sta) == (True, "nvidia", None)


def test_a_short_list_beside_the_long_one_does_not_erase_what_the_long_one_said():
    long = "06:00.0 3D controller: NVIDIA Corporation Device 2bb5\n\t\tLnkSta:\tSpeed 32GT/s, Width x16"
    short = "06:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2bb5] (rev a1)"

    (device,) = lspci.parse(f"{short}\n{long}\n{short}")

    assert (device.class_code, device.link_sta.speed_gts) == ("0302", 32.0)


def test_the_bridges_above_a_function_follow_from_bus_numbers_and_a_loop_ends():
    text = (
        "00:01.0 PCI bridge: A\n\tBus: primary=00, secondary=01, subordinate=03, sec-latency=0\n"
        "01:00.0 PCI bridge: B\n\tBus: primary=01, secondary=02, subordinate=03, sec-latency=0\n"
        "02:00.0 3D controller: NVIDIA C\n"
    )
    up = lspci.parents(lspci.parse(text))

    assert lspci.path("0000:02:00.0", up) == ("0000:01:00.0", "0000:00:01.0")
    assert lspci.path("a", {"a": "b", "b": "a"}) == ("b", "a")


def test_a_tree_line_continues_the_bus_its_column_stands_under():
    text = (
        "-[0000:00]-+-00.0\n"
        "           +-01.0-[01-02]----00.0-[02]--+-00.0  NVIDIA\n"
        "           |                            \\-00.1  NVIDIA\n"
        "           \\-1f.0"
    )

    found = lspci_tree.parse(text)

    assert [(node.bdf, node.parent) for node in found.nodes] == [
        ("0000:00:00.0", ""),
        ("0000:00:01.0", ""),
        ("0000:01:00.0", "0000:00:01.0"),
        ("0000:02:00.0", "0000:01:00.0"),
        ("0000:02:00.1", "0000:01:00.0"),
        ("0000:00:1f.0", ""),
    ]


def test_a_table_of_2026_and_its_mig_line():
    text = """
| NVIDIA-SMI 595.58.03              Driver Version: 595.58.03      CUDA Version: 13.2     |
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:01:00.0 Off |                    3 |
| N/A   35C    P0             63W /  400W |      74MiB /  81920MiB |      0%      Default |
|                                         |                        |              Enabled |
|    0   N/A  N/A      4711      C   python                                     1234MiB |
"""

    report = nvidia_smi.parse(text)

    gpu = report.gpus[0]
    assert (report.driver, report.cuda) == ("595.58.03", "13.2")
    assert (gpu.bus_id, gpu.persistence, gpu.ecc_volatile_uncorrectable, gpu.mig) == (
        "0000:01:00.0",
        True,
        3,
        True,
    )
    assert [(one.pid, one.name, one.used_bytes) for one in gpu.processes] == [(4711, "python", 1234 << 20)]


def test_an_xml_that_declares_entities_is_refused():
    bomb = (
        '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b '
        '"&a;&a;">]><nvidia_smi_log><driver_version>&b;</driver_version></nvidia_smi_log>'
    )

    report = nvidia_smi.parse(bomb)

    assert (report.driver, report.gpus, report.failure) == (
        None,
        (),
        "the XML declares entities and was not read",
    )


def test_a_cut_xml_gives_the_gpus_it_holds():
    text = (
        "<nvidia_smi_log><driver_version>1.2</driver_version><gpu "
        "id='00000000:01:00.0'><product_name>A</product_name></gpu><gpu "
        "id='00000000:02:00.0'><product_na"
    )

    assert [(gpu.bus_id, gpu.name) for gpu in nvidia_smi.parse(text).gpus] == [
        ("0000:01:00.0", "A"),
        ("0000:02:00.0", None),
    ]


def test_an_error_instead_of_a_table_is_kept():
    assert nvidia_smi.parse("Failed to initialize NVML: Driver/library version mismatch").failure == (
        "Failed to initialize NVML: Driver/library version mismatch"
    )


def test_queried_columns_with_their_header():
    text = (
        "index, name, pcie.link.width.current, power.limit [W]\n"
        "0, NVIDIA H100, 8, 700.00 W\n"
        "1, NVIDIA H100, 16, [N/A]"
    )

    gpus = nvidia_smi.parse_csv(text).gpus

    assert [(gpu.index, gpu.width_current, gpu.power_limit_w) for gpu in gpus] == [
        (0, 8, 700.0),
        (1, 16, None),
    ]


def test_several_prints_of_one_machine_meet_by_address():
    q = nvidia_smi.parse_q("Driver Version : 1\nGPU 00000000:01:00.0\n    Persistence Mode : Enabled")
    table = nvidia_smi.parse_csv("index, name, pci.bus_id\n0, NVIDIA X, 00000000:01:00.0")

    (gpu,) = nvidia_smi.merged((q, table)).gpus

    assert (gpu.persistence, gpu.name) == (True, "NVIDIA X")


def test_glued_cells_of_a_matrix_come_apart():
    matrix = topo.parse(
        "\tGPU0\tGPU1\tNIC0NIC1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\tPXBNODE\t0-55\t0\n"
    )

    assert (matrix.nics, matrix.pair("GPU0", "NIC1"), matrix.node("GPU0")) == (("NIC0", "NIC1"), "NODE", 0)


def test_a_gpu_that_fell_off_in_three_lines_without_an_xid():
    log = dmesg.parse(
        "[ 1.0] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
    )

    assert ([event.bdf for event in log.lost], log.xids) == (["0000:b3:00.0"], ())


def test_a_window_that_was_assigned_at_the_second_try_is_no_failure():
    text = (
        "pci 0000:01:00.0: BAR 1: failed to assign [mem size 0x800000000 64bit pref]\n"
        "pci 0000:02:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space\n"
        "pci 0000:01:00.0: BAR 1: assigned [mem 0x38000000000-0x387ffffffff 64bit pref]\n"
    )

    assert [(one.bdf, one.bar, one.size_bytes) for one in dmesg.parse(text).bar_failures] == [
        ("0000:02:00.0", 1, 32 << 30)
    ]


def test_both_forms_of_an_amd_iommu_fault_name_their_device():
    text = (
        "nvidia 0000:0a:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f "
        "address=0x00000000ea13a000 flags=0x0020]\n"
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=41:00.0 domain=0x000e address=0x000003f80001b100 flags=0x0030]\n"
    )

    assert [event.bdf for event in dmesg.parse(text).iommu_faults] == ["0000:0a:00.0", "41:00.0"]


def test_links_of_a_gpu_from_three_prints_are_one_list():
    text = (
        "GPU 0: X (UUID: GPU-1)\n"
        "\t Link 0: 25.781 GB/s\n"
        "\t Link 1: <inactive>\n"
        "GPU 0: X (UUID: GPU-1)\n"
        "\t Link 0: CRC Errors: 7\n"
        "\t Link 0: Remote Device 00000000:41:00.0: Link 2"
    )

    (gpu,) = nvlink.parse(text)

    assert (gpu.active, gpu.inactive, gpu.links[0].errors, gpu.links[0].remote) == (
        1,
        1,
        {"CRC": 7},
        "00000000:41:00.0",
    )
