"""Memory windows of GPUs: sysfs, configuration space, attached lspci."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hosts import DictHost

from uncork.explorers.gpu_windows import bars, gpu_windows
from uncork.model.facts.firmware import Bar
from uncork.model.unknown import is_unknown

DUMPS = Path(__file__).parents[2] / "../shared/dumps"
FOLDER = "/sys/bus/pci/devices/0000:41:00.0"
GPU = {f"{FOLDER}/class": "0x030000\n", f"{FOLDER}/vendor": "0x10de\n", f"{FOLDER}/device": "0x2684\n"}
RESOURCE = (
    "0x00000000e1000000 0x00000000e1ffffff 0x0000000000040200\n"
    "0x0000004000000000 0x000000400fffffff 0x000000000014220c\n"
    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
    "0x0000000000000000 0x0000000001ffffff 0x000000002014220c\n"
)


def space(*, sizes: int, current: int) -> str:
    """4 KiB of configuration space whose resizable BAR offers `sizes` (bit n: 2^n MiB), as hex."""
    data = bytearray(4096)
    data[0x100:0x104] = (0x15 | 1 << 16).to_bytes(4, "little")
    data[0x104:0x108] = (sizes << 4).to_bytes(4, "little")
    data[0x108:0x10C] = (1 | 1 << 5 | current << 8).to_bytes(4, "little")
    return data.hex()


def test_a_resource_file_tells_place_size_and_kind():
    assert bars(RESOURCE) == (
        Bar(0, 0xE1000000, 16 << 20, False, False, True),
        Bar(1, 0x4000000000, 256 << 20, True, True, True),
        Bar(3, 0, 32 << 20, True, True, False),
    )


def test_what_a_card_offers_is_in_sysfs_or_in_configuration_space():
    by_file = DictHost(
        {**GPU, f"{FOLDER}/resource": RESOURCE, f"{FOLDER}/resource1_resize": "0000000000008fc0\n"}
    )
    by_space = DictHost({**GPU, f"{FOLDER}/config": {"hex": space(sizes=0x8FC0, current=8)}})

    for host in (by_file, by_space):
        found = gpu_windows(host)
        assert not is_unknown(found)
        assert found[0].largest_offered_bytes == 32 << 30


def test_sixty_four_bytes_are_unknown_and_not_a_card_without_the_capability():
    short = gpu_windows(DictHost({**GPU, f"{FOLDER}/config": {"hex": "00" * 64}}))
    whole = gpu_windows(DictHost({**GPU, f"{FOLDER}/config": {"hex": "00" * 4096}}))

    assert not is_unknown(short) and is_unknown(short[0].largest_offered_bytes)
    assert not is_unknown(whole) and whole[0].largest_offered_bytes is None


@given(st.lists(st.tuples(st.integers(0x100, 4092), st.binary(min_size=4, max_size=16)), max_size=12))
def test_any_configuration_space_ends(patches: list[tuple[int, bytes]]):
    data = bytearray(4096)
    for at, content in patches:
        data[at : at + len(content)] = content
    gpu_windows(DictHost({**GPU, f"{FOLDER}/config": {"hex": data[:4096].hex()}}))


def test_a_machine_without_gpus_has_no_windows():
    assert gpu_windows(DictHost({"/sys/bus/pci/devices/0000:00:00.0/class": "0x060000\n"})) == ()


@pytest.mark.skipif(not DUMPS.is_dir(), reason="the shared reference material is not here")
def test_lspci_of_eight_gpus_shows_eight_large_windows():
    text = (DUMPS / "asus-esc8000a-e13p-8x-rtxpro6000/lspci-vvv.txt").read_text(
        encoding="utf-8", errors="replace"
    )
    found = gpu_windows(DictHost(runs={"lspci -vvv": text}, attached=True))

    assert not is_unknown(found)
    largest = [max(bar.size_bytes for bar in gpu.bars) for gpu in found if not is_unknown(gpu.bars)]
    assert largest == [128 << 30] * 8
