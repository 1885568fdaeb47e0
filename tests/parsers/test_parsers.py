"""What the other parsers promise beyond the dumps: old and new layouts, fragments, glued and cut lines."""

from uncork.host.attached import plain
from uncork.parsers import (
    container_text,
    engine_command,
    engine_log,
    environment,
    fabricmanager,
    ip_addr,
    limits,
    modprobe,
    nccl_log,
    nccl_tests,
    p2p_test,
    packages,
    rocm,
    statements,
    ucx,
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

    assert (run.wrong, run.ranks) == (3, 1)


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


def test_module_options_add_up_and_a_comment_is_none():
    found = modprobe.parse(
        'options nvidia NVreg_RegistryDwords="ForceP2P=0x11;RMForceStaticBar1=1"\n'
        "options nvidia NVreg_X=0 # NVreg_X=1\nblacklist nouveau"
    )

    assert found == {"nvidia": {"NVreg_RegistryDwords": "ForceP2P=0x11;RMForceStaticBar1=1", "NVreg_X": "0"}}


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

    assert (len(refused.threads_refused), len(forbidden.threads_refused)) == (1, 0)


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
        "    NUMA:\n        NODE: 1\n    LIMIT:\n        MAX_POWER: 750 W\n        SOCKET_POWER: 600 W\n"
        "GPU: 1\n    BUS:\n        BDF: 0000:26:00.0\n"
    )
    document = (
        '[{"gpu": 0, "bus": {"bdf": "0000:05:00.0"}, "numa": {"node": 1}, '
        '"limit": {"ppt0": {"max_power_limit": {"value": 750, "unit": "W"}, '
        '"socket_power_limit": {"value": 600, "unit": "W"}}}, "vram": {"size": {"value": 196592, "unit": "MB"}}, '
        '"pcie": {"width": 16, "speed": {"value": 32, "unit": "GT/s"}}}]'
    )

    printed, decoded = rocm.parse(text), rocm.parse(document)

    assert [gpu.values["PCI Bus"] for gpu in printed.gpus] == ["0000:05:00.0", "0000:26:00.0"]
    assert (printed.gpus[0].name, printed.gpus[0].numa_node) == ("AMD Instinct MI300X", 1)
    assert all(
        (one.gpus[0].power_cap_w, one.gpus[0].power_cap_max_w) == (600.0, 750.0) for one in (printed, decoded)
    )
    gpu = decoded.gpus[0]
    assert (gpu.numa_node, gpu.link_speed_gts, gpu.link_width) == (1, 32.0, 16)
    assert gpu.memory_total_bytes == 196592 << 20


def test_amd_smi_topology_is_a_matrix_of_indices():
    text = (
        "LINK TYPE TABLE:\n             0000:05:00.0 0000:26:00.0\n"
        "0000:05:00.0 SELF         XGMI\n0000:26:00.0 XGMI         SELF\n"
    )

    assert rocm.parse(text).link_type == {(0, 0): "0", (0, 1): "XGMI", (1, 0): "XGMI", (1, 1): "0"}
