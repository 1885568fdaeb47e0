"""Every kind of knob on a real kernel: written, read by another program, undone by the bare recipe, read again."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SLEEPER = "$(cat /run/sleeper)"

TRY = """
import sys
from uncork.knobs import KNOBS
name, target, want = sys.argv[1:]
try:
    KNOBS[name].write(target, want)
    print("written")
except OSError as error:
    print(error.errno, error.strerror)
"""


@dataclass(frozen=True)
class Case:
    """What to write, and how another program sees it before and after."""

    knob: str
    target: str
    want: str
    look: str
    before: str
    after: str
    paste: bool = True  # whether its command to paste is tried too

    @property
    def id(self) -> str:
        return f"{self.knob}:{self.target}"


CPU = "/sys/devices/system/cpu"
LIMIT = f"awk '/locked memory/ {{print $4, $5}}' /proc/{SLEEPER}/limits"
PROCESS_CPUS = f"awk '/Cpus_allowed_list/ {{print $2}}' /proc/{SLEEPER}/status"
PEERMEM = "lsmod | awk '$1 ~ /^(nvidia_peermem|nvidia|ib_core)$/ {print $1}' | sort | paste -sd ' '"
OPTION = "cat /etc/modprobe.d/uncork.conf 2>/dev/null || echo none"
CASES = [
    Case("sysctl", "kernel.numa_balancing", "0", "sysctl -n kernel.numa_balancing", "1", "0"),
    Case("sysctl", "vm.swappiness", "10", "cat /proc/sys/vm/swappiness", "60", "10"),
    Case(
        "sysctl", "kernel.sched_autogroup_enabled", "0", "sysctl -n kernel.sched_autogroup_enabled", "1", "0"
    ),
    Case(
        "sysctl",
        "vm.dirty_bytes",
        "268435456",
        "echo $(sysctl -n vm.dirty_bytes vm.dirty_ratio)",
        "0 20",
        "268435456 0",
    ),
    Case("sysctl", "net.core.rmem_max", "16777216", "sysctl -n net.core.rmem_max", "212992", "16777216"),
    Case(
        "sysctl",
        "net.ipv4.tcp_wmem",
        "4096 16384 16777216",
        "echo $(cat /proc/sys/net/ipv4/tcp_wmem)",
        "4096 16384 4194304",
        "4096 16384 16777216",
    ),
    Case("sysctl", "net.core.default_qdisc", "fq", "sysctl -n net.core.default_qdisc", "fq_codel", "fq"),
    Case("sysfs", "/sys/kernel/mm/ksm/run", "1", "cat /sys/kernel/mm/ksm/run", "0", "1"),
    Case(
        "sysfs",
        "/sys/bus/pci/devices/0000:13:00.0/power/control",
        "auto",
        "cat /sys/bus/pci/devices/0000:13:00.0/power/control",
        "on",
        "auto",
    ),
    Case(
        "cgroup",
        "/sys/fs/cgroup/llm/cpu.max",
        "50000 100000",
        "cat /sys/fs/cgroup/llm/cpu.max",
        "max 100000",
        "50000 100000",
    ),
    Case(
        "thp",
        "defrag",
        "defer+madvise",
        "cat /sys/kernel/mm/transparent_hugepage/defrag",
        "always defer defer+madvise [madvise] never",
        "always defer [defer+madvise] madvise never",
    ),
    Case(
        "cpuidle",
        "cpu*/state3",
        "1",
        f"cat {CPU}/cpu*/cpuidle/state3/disable | paste -sd ' '",
        "0 0 0 0",
        "1 1 1 1",
    ),
    Case(
        "pm_qos",
        "cpu_dma_latency",
        "50",
        "od -An -td4 -N4 /dev/cpu_dma_latency | tr -d ' '",
        "2000000000",
        "50",
    ),
    Case(
        "cpufreq_governor",
        "policy*",
        "performance",
        f"cat {CPU}/cpufreq/policy*/scaling_governor | sort -u",
        "schedutil",
        "performance",
    ),
    Case("pci_mrrs", "0000:13:00.0", "4096", "setpci -s 13:00.0 CAP_EXP+8.w", "2810", "5810"),
    Case(
        "pci_mrrs",
        "0000:01:00.0",
        "4096",
        "lspci -vv -s 01:00.0 | grep -o 'MaxReadReq [0-9]*'",
        "MaxReadReq 512",
        "MaxReadReq 4096",
    ),
    Case("pci_acs", "0000:12:00.0", "0x00", "setpci -s 12:00.0 ECAP_ACS+6.w", "001d", "0011"),
    Case("pci_relaxed_ordering", "0000:14:00.0", "0", "setpci -s 14:00.0 CAP_EXP+8.w", "2810", "2800"),
    Case("module", "nvidia_peermem", "loaded", PEERMEM, "", "ib_core nvidia nvidia_peermem", paste=False),
    Case("rlimit", f"{SLEEPER}:memlock", "unlimited", LIMIT, "8388608 8388608", "unlimited unlimited"),
    Case("affinity", SLEEPER, "2-3", PROCESS_CPUS, "0-3", "2-3"),
    Case("process", f"{SLEEPER}:oom_score_adj", "-500", f"cat /proc/{SLEEPER}/oom_score_adj", "0", "-500"),
    Case(
        "irq_affinity",
        "$(cat /run/irq)",
        "2,3",
        "cat /proc/irq/$(cat /run/irq)/smp_affinity_list",
        "0-3",
        "2-3",
    ),
    Case(
        "shm_size",
        "/dev/shm",
        "536870912",
        "stat -fc %b /dev/shm; grep -o ' /dev/shm tmpfs [a-z,]*' /proc/mounts",
        "",
        "",
    ),
    Case(
        "modprobe_option",
        "nvidia:NVreg_EnablePCIERelaxedOrderingMode",
        "1",
        OPTION,
        "none",
        "options nvidia NVreg_EnablePCIERelaxedOrderingMode=1",
        paste=False,
    ),
]
SHM = " /dev/shm tmpfs rw,nosuid,nodev,relatime,size"
CASES = [
    case
    if case.knob != "shm_size"
    else Case(case.knob, case.target, case.want, case.look, f"65536\n{SHM}", f"131072\n{SHM}")
    for case in CASES
]


SETUP = f"""
sysctl -qw kernel.numa_balancing=1 kernel.sched_autogroup_enabled=1
(ulimit -l 8192; exec sleep 100000 >/dev/null 2>&1 </dev/null) &
echo $! > /run/sleeper
mkdir -p /sys/fs/cgroup/llm /etc/modprobe.d /opt/undo
echo +cpu > /sys/fs/cgroup/cgroup.subtree_control
for irq in $(ls /proc/irq | grep -v smp); do
    echo 0-3 2>/dev/null > /proc/irq/$irq/smp_affinity_list && echo $irq > /run/irq
done
cp -r {ROOT}/src/uncork/knobs/recipes /opt/undo/
"""


@pytest.fixture(scope="module")
def ready(guest):
    """The guest with a process, an interrupt, a control group and a copy of the recipes."""
    guest.sh(SETUP)
    return guest


@pytest.fixture(scope="module")
def seen(ready):
    """What the guest saw in every case, by its id."""
    script = ROOT / "tests/vm/guest/scenario.py"
    cases = "\n".join(json.dumps(vars(case)) for case in CASES)
    ran = ready.run(sys.executable, str(script), "/opt/undo", stdin=cases, timeout_s=500)
    return dict(zip([case.id for case in CASES], map(json.loads, ran.out.splitlines()), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_kernel_takes_it_and_both_ways_of_undo_put_it_back(seen, case):
    found = seen[case.id]

    assert "error" not in found, found["error"]
    assert (found["veto"], found["same"], found["targets"] > 0) == ("", True, True)
    looks = [found[when] for when in ("before", "after", "pasted", "undone") if when in found]
    pasted = [case.before] if case.paste else []
    assert looks == [case.before.strip(), case.after.strip(), *pasted, case.before.strip()]


def test_a_value_without_hardware_behind_it_is_refused_with_the_kernels_own_errno(ready):
    ran = ready.run(sys.executable, "-c", TRY, "sysctl", "kernel.nmi_watchdog", "1")

    assert ran.out.split()[0] == "524"  # ENOTSUPP: no performance counters here


def test_an_option_counts_at_the_next_load(ready):
    parameter = "cat /sys/module/nvidia/parameters/NVreg_EnablePCIERelaxedOrderingMode"
    ready.run(sys.executable, "-c", TRY, "modprobe_option", "nvidia:NVreg_EnablePCIERelaxedOrderingMode", "1")
    try:
        assert ready.sh(f"modprobe nvidia; {parameter}; rmmod nvidia") == "1"
    finally:
        ready.run(
            sys.executable,
            "-c",
            TRY,
            "modprobe_option",
            "nvidia:NVreg_EnablePCIERelaxedOrderingMode",
            "absent",
        )
    assert ready.sh(f"modprobe nvidia; {parameter}; rmmod nvidia") == "0"


def test_a_module_in_use_stays(ready):
    ready.sh("modprobe nvidia-peermem")
    try:
        ran = ready.run(sys.executable, "-c", TRY, "module", "ib_core", "absent")
        assert ran.out.startswith("16 ib_core is in use by nvidia_peermem")
    finally:
        ready.sh("modprobe -r nvidia-peermem")


def test_an_ignored_write_is_seen_as_ignored(ready):
    # Bit 12 alone is writable here: a device that takes only some sizes.
    ready.sh("setpci -s 17:00.0 CAP_EXP+8.w=0000:7000")

    assert ready.sh("setpci -s 17:00.0 CAP_EXP+8.w") == "0810"


def test_a_device_that_leaves_the_bus_is_reported_as_gone(ready):
    ready.sh("echo 1 > /sys/bus/pci/devices/0000:88:00.0/remove")

    ran = ready.run(sys.executable, "-c", TRY, "pci_mrrs", "0000:88:00.0", "4096")

    assert ran.out.split()[0] == "2"
    ready.sh("echo 1 > /sys/bus/pci/rescan")
    assert ready.sh("setpci -s 88:00.0 CAP_EXP+8.w") == "2810"
