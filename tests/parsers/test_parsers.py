"""What each parser promises beyond the dumps: old and new layouts, fragments, glued and cut lines."""

from uncork.host.attached import plain
from uncork.parsers import (
    bios,
    container_text,
    dmesg,
    engine_command,
    engine_log,
    environment,
    fabricmanager,
    ip_addr,
    limits,
    lspci,
    lspci_tree,
    modprobe,
    nccl_log,
    nccl_tests,
    nvidia_smi,
    nvlink,
    p2p_test,
    packages,
    profile,
    rocm,
    statements,
    sysctl,
    topo,
    ucx,
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


def test_the_iommu_that_a_command_line_asks_for():
    asked = {
        "amd_iommu=on iommu=pt": "pt",
        "intel_iommu=on": "on",
        "amd_iommu=off iommu=off": "off",
        "iommu.passthrough=1": "pt",
        "quiet splash": None,
        "ro -- iommu=off": None,
    }

    assert {line: sysctl.iommu_of_cmdline(line) for line in asked} == asked


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


def test_nccl_transports_and_versions_old_and_new():
    text = (
        "n1:1:2 [0] NCCL INFO NCCL version 2.29.7+cuda13.0\n"
        "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
        "n1:1:2 [0] NCCL INFO Channel 00 : 1[65000] -> 0[1b000] [send] via NET/IB/0/GDRDMA\n"
        "n1:1:2 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to SYS\n"
        "n1:1:2 [0] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'\n"
    )

    log = nccl_log.parse(text)

    assert (log.version, log.cuda, log.transports, log.gdr) == (
        "2.29.7",
        "13.0",
        {"P2P": 1, "NET/IB": 1},
        True,
    )
    assert log.environment == {"NCCL_P2P_LEVEL": "SYS"}
    assert [(one.where, one.text) for one in log.warnings] == [
        ("transport/nvls.cc:244", "Cuda failure 1 'invalid argument'")
    ]


def test_rows_of_nccl_tests_with_wrong_values():
    text = (
        "# Rank  0 Group  0 Pid 1 on node1 device  0 [0x07] NVIDIA H100\n"
        "  1048576  262144  float  sum  -1  45.9  22.9  40.1  3\n"
        "# Avg bus bandwidth    : 40.1"
    )

    run = nccl_tests.parse(text)

    assert (run.rows[0].bus_gb_s, run.rows[0].wrong, run.hosts, run.average_bus_gb_s) == (
        40.1,
        3,
        ("node1",),
        40.1,
    )


def test_a_copy_that_arrives_changed_is_wrong_and_one_that_arrives_is_not():
    good = "tensor([1, 2])\ntensor([1, 2], device='cuda:0')\ntensor([1, 2], device='cuda:1')"

    assert p2p_test.parse(good).wrong == ()
    assert p2p_test.parse(good.replace("[1, 2], device='cuda:1'", "[0, 0], device='cuda:1'")).wrong == (
        "tensor([0, 0], device='cuda:1')",
    )


def test_a_mismatch_line_that_was_cut_still_tells_the_interface():
    log = fabricmanager.parse("fabric manager NVIDIA GPU driver interface version 535.183.01 don't")

    assert (log.interface_version, log.driver_version) == ("535.183.01", None)


def test_limits_from_ulimit_and_from_proc_are_in_the_same_unit():
    assert limits.parse("8192", "ulimit -l")[0].soft == 8 << 20
    assert limits.parse("max locked memory       (kbytes, -l) 8192")[0].soft == 8 << 20
    assert limits.parse("Max locked memory  8388608  unlimited  bytes")[0] == limits.Limit(
        "locked memory", 8 << 20, limits.UNLIMITED
    )


def test_flags_from_a_command_a_list_and_a_file():
    command = engine_command.parse(
        "vllm serve m --tensor-parallel-size 2 --enforce-eager \\\n  --max-model-len=4096"
    )
    listed = engine_command.parse(
        'image: vllm/vllm-openai:v0.10.1\nargs:\n  - "--disable-custom-all-reduce"\n  - --port\n  - "8000"'
    )

    assert command.flags == {"tensor-parallel-size": "2", "enforce-eager": "true", "max-model-len": "4096"}
    assert (listed.engine, listed.version) == ("vllm", "0.10.1")
    assert listed.flags["disable-custom-all-reduce"] == "true" and listed.flags["port"] == "8000"
    assert engine_command.parse("enforce_eager: true").flags == {"enforce-eager": "true"}


def test_arguments_that_a_server_prints_at_its_start():
    log = engine_log.parse(
        "INFO 08-07 engine.py:1] Initializing a V1 LLM engine (v0.10.1) with config: "
        "model='m', enforce_eager=True, tp=2"
    )

    assert log.arguments["enforce_eager"] == "True"
    assert log.sign("eager") is not None


def test_an_equals_sign_that_belongs_to_the_value_stays():
    assert environment.parse(
        "NCCL_SOCKET_IFNAME==enp90s0np0\nexport A_B='x y'\nNCCL_P2P_DISABLE=1   # needed"
    ) == {
        "NCCL_SOCKET_IFNAME": "=enp90s0np0",
        "A_B": "x y",
        "NCCL_P2P_DISABLE": "1",
    }


def test_registry_keys_inside_module_options():
    found = modprobe.parse(
        'options nvidia NVreg_RegistryDwords="ForceP2P=0x11;RMForceStaticBar1=1" NVreg_X=0\nblacklist nouveau'
    )

    assert found.registry == {"ForceP2P": "0x11", "RMForceStaticBar1": "1"}
    assert (found.options["nvidia"]["NVreg_X"], found.blacklisted) == ("0", ("nouveau",))


def test_packages_of_every_manager():
    text = (
        "ii  libnccl2  2.27.5-1+cuda12.9 amd64 x\n"
        "nvidia-driver-550.90.07-1.el9.x86_64\n"
        "torch==2.4.0+cu118\n"
        "[pip3] vllm==0.5.4\n"
        "flash_attn 2.6.1"
    )

    assert packages.parse(text) == {
        "libnccl2": "2.27.5-1+cuda12.9",
        "nvidia-driver": "550.90.07-1.el9",
        "torch": "2.4.0+cu118",
        "vllm": "0.5.4",
        "flash-attn": "2.6.1",
    }


def test_eagain_is_a_limit_and_eperm_is_not():
    refused = container_text.parse(
        "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2: Resource temporarily unavailable"
    )
    forbidden = container_text.parse(
        "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2: Operation not permitted"
    )

    assert (len(refused.threads_refused), len(refused.not_permitted)) == (1, 0)
    assert (len(forbidden.threads_refused), len(forbidden.not_permitted)) == (0, 1)


def test_a_histogram_names_the_function_of_the_command_above_it():
    found = profile.parse(
        "     msecs : count distribution\n    0 -> 1 : 72 |***|\navg = 5 msecs, total: 789 msecs, count: 139",
        "funclatency -m task_numa_work",
    )

    assert (found.latency.function, found.latency.average, found.latency.count) == ("task_numa_work", 5, 139)


def test_bios_keys_by_the_last_part_of_their_path():
    assert bios.parse(
        "AMD CBS->NBIO Common option ->IOMMU=Disable\n/Advanced -> NB configurations -> IOMMU disabled"
    ) == {"IOMMU": "disabled"}
    assert [bios.switched(value) for value in ("Disable", "Enabled", "Auto")] == [False, True, None]


def test_interfaces_as_ip_prints_them_and_as_people_shorten_them():
    text = (
        "2: eth0@if3: <BROADCAST,UP,LOWER_UP> mtu 1500 qdisc\n"
        "    inet 192.0.2.1/24 scope global\n"
        "ib0: inet 192.0.2.9/31 scope global, UP, MTU 9000"
    )

    assert [(one.name, one.up, one.mtu, one.addresses) for one in ip_addr.parse(text)] == [
        ("eth0", True, 1500, ("192.0.2.1/24",)),
        ("ib0", True, 9000, ("192.0.2.9/31",)),
    ]


def test_the_limit_that_ucx_names():
    log = ucx.parse(
        "Please set max locked memory (ulimit -l) to 'unlimited' (current: 8192 kbytes)\n"
        "UCX  ERROR mlx5_0: umem_reg(size=1) failed: Cannot allocate memory"
    )

    assert (log.locked_bytes, bool(log.registration_failed)) == (8 << 20, True)


def test_words_state_no_more_than_they_say():
    said = statements.parse(
        "driver: 550.90.07 (P2P-patched open module)\niommu: AMD-Vi, default translated mode (no iommu= kernel option)"
    )

    assert (said.driver, said.driver_patched, said.iommu, said.iommu_parameter) == (
        "550.90.07",
        True,
        "translated",
        "none",
    )
    assert statements.parse("we looked at the iommu and at ACS").iommu is None
    assert statements.parse("kernel cmdline: iommu=soft (works)").cured_by == (
        "kernel cmdline: iommu=soft (works)",
    )


def test_ansi_carriage_returns_nuls_and_utf16_are_gone():
    assert plain(b"\x1b[4mGPU0\x1b[0m\r\nGPU1\x00") == "GPU0\nGPU1"
    assert plain("GPU0\r\n".encode("utf-16")) == "GPU0\n"
    assert plain(b"a\xff\xfeb") == "a\ufffd\ufffdb"


def test_amd_smi_text_and_json_say_the_same_as_rocm_smi():
    text = (
        "GPU: 0\n    ASIC:\n        MARKET_NAME: AMD Instinct MI300X\n    BUS:\n        BDF: 0000:05:00.0\n"
        "    NUMA:\n        NODE: 1\n    LIMIT:\n        MAX_POWER: 750 W\n"
        "GPU: 1\n    BUS:\n        BDF: 0000:26:00.0\n"
    )
    document = (
        '[{"gpu": 0, "bus": {"bdf": "0000:05:00.0"}, "numa": {"node": 1}, '
        '"limit": {"max_power": {"value": 750, "unit": "W"}}, "vram": {"size": {"value": 196592, "unit": "MB"}}, '
        '"pcie": {"width": 16, "speed": {"value": 32, "unit": "GT/s"}}}]'
    )

    printed, decoded = rocm.parse(text), rocm.parse(document)

    assert [gpu.values["PCI Bus"] for gpu in printed.gpus] == ["0000:05:00.0", "0000:26:00.0"]
    assert (printed.gpus[0].name, printed.gpus[0].numa_node, printed.gpus[0].power_max_w) == (
        "AMD Instinct MI300X",
        1,
        750.0,
    )
    gpu = decoded.gpus[0]
    assert (gpu.numa_node, gpu.power_max_w, gpu.link_speed_gts, gpu.link_width) == (1, 750.0, 32.0, 16)
    assert gpu.memory_total_bytes == 196592 << 20


def test_amd_smi_topology_is_a_matrix_of_indices():
    text = (
        "LINK TYPE TABLE:\n             0000:05:00.0 0000:26:00.0\n"
        "0000:05:00.0 SELF         XGMI\n0000:26:00.0 XGMI         SELF\n"
    )

    assert rocm.parse(text).link_type == {(0, 0): "0", (0, 1): "XGMI", (1, 0): "XGMI", (1, 1): "0"}
