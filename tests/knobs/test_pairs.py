"""Values that the kernel ties together."""

import errno

import pytest


@pytest.fixture
def dirty(kernel):
    """vm.dirty_ratio 20 in force; writing either zeroes the other, and zero bytes cannot be written."""
    ratio, size = "/proc/sys/vm/dirty_ratio", "/proc/sys/vm/dirty_bytes"

    def write_bytes(was: str, new: str) -> str:
        if int(new) < 8192:  # two pages, mm/page-writeback.c
            raise OSError(errno.EINVAL, "Invalid argument")
        kernel.put(ratio, "0\n")
        return new

    def write_ratio(was: str, new: str) -> str:
        kernel.put(size, "0\n")
        return new

    kernel.file(ratio, "20\n", write_ratio)
    kernel.file(size, "0\n", write_bytes)
    return kernel


def test_a_key_out_of_force_reads_as_its_partner(dirty, knobs):
    assert knobs["sysctl"].read("vm.dirty_bytes") == "vm.dirty_ratio=20"


def test_undoing_bytes_restores_the_ratio(dirty, knobs):
    knob = knobs["sysctl"]
    before = knob.read("vm.dirty_bytes")
    knob.write("vm.dirty_bytes", "268435456")
    assert (knob.read("vm.dirty_bytes"), dirty.text("/proc/sys/vm/dirty_ratio")) == ("268435456", "0\n")

    knob.write("vm.dirty_bytes", before)

    assert (knob.read("vm.dirty_ratio"), dirty.text("/proc/sys/vm/dirty_bytes")) == ("20", "0\n")


def test_an_audit_that_read_zero_bytes_agrees_with_the_ratio_in_force(dirty, knobs):
    assert knobs["sysctl"].same("0", knobs["sysctl"].read("vm.dirty_bytes"))


def test_the_command_of_a_pair_sets_the_partner(knobs):
    assert (
        knobs["sysctl"].undo_command("vm.dirty_bytes", "vm.dirty_ratio=20") == "sysctl -w vm.dirty_ratio=20"
    )


def test_another_key_is_no_partner(dirty, knobs):
    with pytest.raises(OSError) as refused:
        knobs["sysctl"].write("vm.dirty_bytes", "vm.swappiness=1")

    assert refused.value.errno == errno.EINVAL


@pytest.fixture
def epp(kernel):
    """A policy under intel_pstate: `performance` forces the preference and refuses writes to it."""
    folder = "/sys/devices/system/cpu/cpufreq/policy0"
    governor, preference = f"{folder}/scaling_governor", f"{folder}/energy_performance_preference"

    def write_governor(was: str, new: str) -> str:
        if new.strip() == "performance":
            kernel.put(preference, "performance\n")
        return new

    def write_preference(was: str, new: str) -> str:
        if kernel.text(governor).strip() == "performance":
            raise OSError(errno.EBUSY, "Device or resource busy")
        return new

    kernel.file(governor, "powersave\n", write_governor)
    kernel.file(preference, "balance_power\n", write_preference)
    return kernel


def test_undoing_the_governor_restores_the_preference(epp, knobs):
    knob = knobs["cpufreq_governor"]
    before = knob.read("policy0")
    assert before == "powersave epp=balance_power"
    knob.write("policy0", "performance")
    assert knob.read("policy0") == "performance"

    knob.write("policy0", before)

    assert knob.read("policy0") == before


def test_the_preference_is_busy_under_performance(epp, knobs):
    knobs["cpufreq_governor"].write("policy0", "performance")

    with pytest.raises(OSError) as refused:
        knobs["cpufreq_epp"].write("policy0", "balance_power")

    assert refused.value.errno == errno.EBUSY


def test_a_bare_governor_agrees_with_any_preference(knobs):
    same = knobs["cpufreq_governor"].same

    assert same("powersave", "powersave epp=power")
    assert not same("powersave epp=performance", "powersave epp=power")
    assert not same("powersave", "performance")


def test_patterns_name_single_targets_in_natural_order(kernel, knobs):
    for cpu in (0, 2, 10):
        kernel.file(f"/sys/devices/system/cpu/cpu{cpu}/cpuidle/state3/disable", "0\n")
        kernel.file(f"/sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor", "schedutil\n")

    assert knobs["cpuidle"].targets("cpu*/state3") == ("cpu0/state3", "cpu2/state3", "cpu10/state3")
    assert knobs["cpufreq_governor"].targets("policy*") == ("policy0", "policy2", "policy10")
    assert knobs["sysfs"].targets("/sys/devices/system/cpu/cpufreq/policy*/scaling_governor") == tuple(
        f"/sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor" for cpu in (0, 2, 10)
    )
