"""Kernels under /lib/modules, in the order people mean, and what the command line says."""

import gzip

from hypothesis import given
from hypothesis import strategies as st
from tests.hosts import DictHost

from uncork.explorers.kernel_version import explore, order
from uncork.model.facts.kernel_version import InstalledKernel
from uncork.model.unknown import is_unknown


def test_releases_are_sorted_by_number():
    names = ["6.8.0-101-generic", "6.8.0-51-generic", "6.10.0", "6.10.0-rc2", "5.15.0-88-generic"]

    assert sorted(names, key=order) == [
        "5.15.0-88-generic",
        "6.8.0-51-generic",
        "6.8.0-101-generic",
        "6.10.0-rc2",
        "6.10.0",
    ]


@given(st.lists(st.text(max_size=20), max_size=5))
def test_any_names_have_an_order(names: list[str]):
    sorted(names, key=order)


def test_each_kernel_that_can_boot_has_its_gpu_modules():
    host = DictHost(
        {
            "/lib/modules/6.8.0-51-generic/updates/dkms/nvidia.ko.zst": "",
            "/lib/modules/6.8.0-51-generic/modules.dep": "",
            "/lib/modules/6.8.0-103-generic/build/Makefile": "",
            "/lib/modules/6.8.0-101-generic/kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko.zst": "",
        }
    )

    assert explore(host).installed == (
        InstalledKernel("6.8.0-51-generic", ("nvidia",)),
        InstalledKernel("6.8.0-101-generic", ("amdgpu",)),
    )


def test_the_configuration_is_read_packed_or_from_boot():
    text = "CONFIG_KASAN=y\n# CONFIG_KCSAN is not set\nCONFIG_HZ=250\n"
    packed = DictHost({"/proc/config.gz": {"hex": gzip.compress(text.encode()).hex()}})
    plain = DictHost({"/proc/sys/kernel/osrelease": "6.8.0\n", "/boot/config-6.8.0": text})

    assert explore(packed).config == explore(plain).config == {"KASAN": "y"}


def test_a_broken_archive_is_unknown():
    assert is_unknown(explore(DictHost({"/proc/config.gz": {"hex": "1f8b00"}})).config)


def test_a_log_tells_release_and_parameters_where_nothing_else_does():
    log = "[    0.0] Linux version 6.17.0-20-generic (b@x) #20-Ubuntu SMP\n[    0.0] Command line: ro iommu=pt\n"
    facts = explore(DictHost(runs={"dmesg": log}))

    assert (facts.release, facts.parameters) == ("6.17.0-20-generic", ("ro", "iommu=pt"))
