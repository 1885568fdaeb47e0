"""Devices: names, sources, dense peaks, what was read from a host."""

import pytest

from uncork.bound import hardware, memory_speed
from uncork.errors import BadInput
from uncork.model.facts.driver import Gpu


@pytest.mark.parametrize(
    ("printed", "id"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100_sxm_80gb"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA H200", "h200_sxm"),
        ("NVIDIA H200 NVL", "h200_nvl"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B200", "b200_sxm"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000_server"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx_pro_6000_maxq"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("rtx_pro_6000_ws", "rtx_pro_6000_ws"),
    ],
)
def test_a_name_finds_its_card_and_no_other(printed: str, id: str) -> None:
    assert hardware.by_name(printed).id == id


def test_an_a10g_is_not_an_a10() -> None:
    assert hardware.find("NVIDIA A10G") is None


def test_a_name_that_could_be_several_lists_them() -> None:
    with pytest.raises(BadInput, match="rtx_pro_6000_ws, rtx_pro_6000_maxq, rtx_pro_6000_server"):
        hardware.by_name("rtx_pro_6000")


def test_every_value_of_the_table_has_a_source() -> None:
    for device in hardware.table():
        assert len(device.sources) == 4
        assert all(len(source.split(": ", 1)[1]) > 10 for source in device.sources), device.id
        assert device.bandwidth_gb_s > 0
        assert device.memory_bytes


def test_no_sparse_rate_is_in_the_table() -> None:
    by_id = {device.id: device.peaks_tflops for device in hardware.table()}

    assert by_id["h100_sxm"]["fp8"] == 1978.9  # 3958 with sparsity
    assert by_id["l40s"]["fp8"] == 733  # 1466 with sparsity
    assert by_id["rtx_5090"]["fp4"] == 1676  # 3352 with sparsity
    assert all(
        peaks.get("fp8", 0) <= 2.05 * peaks.get("fp16_acc16", peaks["fp16"]) for peaks in by_id.values()
    )


def test_the_memory_clock_of_the_host_goes_before_the_table() -> None:
    name = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"

    server = hardware.from_readings(name, memory_clock_mhz=12481, bus_width_bits=512)
    station = hardware.from_readings(name, memory_clock_mhz=14001, bus_width_bits=512)

    assert (
        server.bandwidth_gb_s == pytest.approx(12481 * 2 * 512 / 8 / 1000) == pytest.approx(1597.6, abs=0.1)
    )
    assert station.bandwidth_gb_s == pytest.approx(1792.1, abs=0.1)
    assert "read on this host" in server.bandwidth_source
    assert server.peaks_tflops == hardware.by_name(name).peaks_tflops


def test_a_measured_copy_lowers_the_engine_tier_only_in_its_share() -> None:
    card = hardware.from_readings("NVIDIA H200", copy_gb_s=4080)

    assert card.bandwidth_gb_s == 4800
    assert card.copy_share == pytest.approx(0.85)


# SMs, maximum clock in MHz, compute capability, published dense BF16
FALLBACK = [
    ("GeForce RTX X 4090", 128, 2520, (8, 9), 165.2),
    ("GeForce RTX X 5090", 170, 2407, (12, 0), 209.5),
    ("RTX X PRO", 188, 2617, (12, 0), 503.8),
    ("RTX X PRO Server", 188, 2430, (12, 0), 467.8),
    ("X10", 72, 1695, (8, 6), 125.0),
    ("X4", 58, 2040, (8, 9), 121.0),
    ("X100", 108, 1410, (8, 0), 312.0),
]


@pytest.mark.parametrize(("name", "sms", "clock", "capability", "published"), FALLBACK)
def test_an_unknown_card_is_reckoned_from_its_clocks(
    name: str, sms: int, clock: float, capability: tuple[int, int], published: float
) -> None:
    card = hardware.from_readings(
        name,
        memory_clock_mhz=10000,
        bus_width_bits=384,
        sm_count=sms,
        max_sm_clock_mhz=clock,
        compute_capability=capability,
    )

    assert card.peaks_tflops["bf16"] == pytest.approx(published, rel=0.003)
    assert card.bandwidth_gb_s == 960


def test_an_unknown_card_without_readings_is_refused() -> None:
    with pytest.raises(BadInput, match="memory clock could not be read"):
        hardware.from_readings("Some Card")


def test_a_bandwidth_of_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="--bandwidth"):
        hardware.by_bandwidth(0)


def test_narrow_weights_may_use_the_fastest_rate() -> None:
    b200, v100 = hardware.by_name("b200_sxm"), hardware.by_name("v100_pcie_32gb")

    assert [hardware.peak_tflops(b200, bits) for bits in (16, 8, 4)] == [2250, 4500, 9000]
    assert hardware.peak_tflops(v100, 4) == 112
    assert hardware.peak_tflops(hardware.by_bandwidth(100), 4) is None


def test_memory_of_this_host_can_be_read() -> None:
    assert memory_speed.read_gb_s(1 << 22, threads=1, seconds=0.01) > 0.01


# NVML's maximum memory clock in MHz of the card, and the published bandwidth in GB/s.
CLOCKS = [
    ("NVIDIA H100 80GB HBM3", 2619, 3350),
    ("NVIDIA A100-SXM4-80GB", 1593, 2039),
    ("NVIDIA L40S", 9001, 864),
    ("NVIDIA GeForce RTX 4090", 10501, 1008),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 12481, 1597),
]


@pytest.mark.parametrize(("name", "clock", "published"), CLOCKS)
def test_the_drivers_facts_give_the_bandwidth(name: str, clock: int, published: float) -> None:
    card = hardware.from_gpu(Gpu(index=0, name=name, max_memory_clock_mhz=clock, memory_total_bytes=80 << 30))

    assert card.bandwidth_gb_s == pytest.approx(published, rel=0.002)
    assert card.memory_bytes == 80 << 30
    assert card.read == ()


def test_a_power_cap_and_a_lowered_memory_clock_are_said() -> None:
    card = hardware.from_gpu(
        Gpu(
            index=0,
            name="NVIDIA H100 80GB HBM3",
            max_memory_clock_mhz=2619,
            app_memory_clock_mhz=1593,
            power_enforced_mw=500_000,
            power_default_mw=700_000,
        )
    )

    assert [line.split(":")[0] for line in card.read] == [
        "power capped at 500 W of 700",
        "memory clock set to 1593 MHz of 2619",
    ]


def test_facts_that_could_not_be_read_fall_back_to_the_table_or_are_refused() -> None:
    assert hardware.from_gpu(Gpu(index=0, name="NVIDIA H200")).bandwidth_gb_s == 4800
    with pytest.raises(BadInput, match="its name could not be read"):
        hardware.from_gpu(Gpu(index=3))
