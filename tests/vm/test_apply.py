"""The engine on a real kernel: applied, read by other programs; killed, cut off, rebooted; and put back."""

import json
import sys
from pathlib import Path

import pytest
from tests.vm.machine import Machine

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
CHANGE = str(ROOT / "tests/vm/guest/change.py")
UNCORK = str(Path(sys.executable).with_name("uncork"))

CPU = "/sys/devices/system/cpu"
CHANGES = (
    ("sysctl", "kernel.numa_balancing", "0"),
    ("sysctl", "vm.dirty_bytes", "268435456"),
    ("thp", "defrag", "defer"),
    ("cpuidle", "cpu*/state3", "1"),
    ("pm_qos", "cpu_dma_latency", "50"),
    ("cpufreq_governor", "policy*", "performance"),
    ("pci_mrrs", "0000:13:00.0", "4096"),
    ("pci_acs", "0000:12:00.0", "0x00"),
    ("module", "nvidia_peermem", "loaded"),
    ("shm_size", "/dev/shm", "536870912"),
)
# What other programs say of all of it, on one line each.
LOOK = f"""
sysctl -n kernel.numa_balancing
echo $(sysctl -n vm.dirty_bytes vm.dirty_ratio)
grep -o '\\[.*\\]' /sys/kernel/mm/transparent_hugepage/defrag
echo $(cat {CPU}/cpu*/cpuidle/state3/disable)
echo $(od -An -td4 -N4 /dev/cpu_dma_latency)
echo $(cat {CPU}/cpufreq/policy*/scaling_governor | sort -u)
setpci -s 13:00.0 CAP_EXP+8.w
setpci -s 12:00.0 ECAP_ACS+6.w
echo modules $(lsmod | awk '$1 ~ /^(nvidia|ib_|nvidia_peermem)/ {{print $1}}' | sort)
stat -fc %b /dev/shm
"""
BEFORE = ["1", "0 20", "[madvise]", "0 0 0 0", "2000000000", "schedutil", "2810", "001d", "modules", "65536"]
AFTER = [
    *("0", "268435456 0", "[defer]", "1 1 1 1", "50", "performance", "5810", "0011"),
    *("modules ib_core nvidia nvidia_peermem", "131072"),
]
STATES = """
import sqlite3
rows = sqlite3.connect("/var/lib/uncork/state.db").execute("SELECT state FROM hold")
print(*{row[0] for row in rows})
"""
UNTIL = """
for turn in $(seq 1200); do
    [ "$({look})" = "{want}" ] && exit 0
    sleep 0.1
done
{look}
exit 1
"""


def lines(changes=CHANGES) -> str:
    return "\n".join(json.dumps(dict(zip(("knob", "target", "want"), one, strict=True))) for one in changes)


def look(guest) -> list[str]:
    return guest.sh(LOOK).splitlines()


def change(guest, *words: str, changes=CHANGES, **options):
    return guest.run(sys.executable, CHANGE, *words, stdin=lines(changes), timeout_s=400, **options)


def uncork(guest, *words: str):
    return guest.run(UNCORK, *words, timeout_s=200)


def intact(guest) -> bool:
    return uncork(guest, "journal", "verify").rc == 0


@pytest.fixture(scope="module")
def host(bootable):
    """A guest with a disk of its own, on which the state of uncork survives."""
    vm = Machine(disk=True).start()
    yield vm
    vm.close()


@pytest.fixture(autouse=True)
def fresh(host):
    """Each test starts with the boot's values, no state, and numa balancing on as on any host."""
    host.sh("sysctl -qw kernel.numa_balancing=1; rm -rf /var/lib/uncork /run/applied; modprobe acpi-cpufreq")
    assert look(host) == BEFORE


def test_applied_then_rolled_back(host):
    ran = change(host, "600")
    assert (ran.rc, look(host)) == (0, AFTER), ran.err

    back = uncork(host, "rollback")

    assert (back.rc, look(host), intact(host)) == (0, BEFORE, True), back.err


def test_a_killed_uncork_leaves_the_values_to_the_guard_which_puts_them_back(host):
    number = host.send(
        sys.executable, CHANGE, "25", "--die", "stay", "0", stdin=lines(CHANGES[:2]), timeout_s=400
    )
    host.sh("until [ -e /run/applied ]; do sleep 0.1; done; pkill -9 -f guest/change.py")
    host.wait(number)

    look_at = "echo $(sysctl -n kernel.numa_balancing vm.dirty_bytes vm.dirty_ratio)"
    host.sh(UNTIL.format(look=look_at, want="1 0 20"), timeout_s=200)

    assert (look(host), intact(host)) == (BEFORE, True)


@pytest.mark.parametrize("number", [1, 3, 6])
def test_killed_in_the_middle_of_writing_and_recovered(host, number):
    ran = change(host, "600", "--die", "after-write", str(number))
    assert ran.rc == -9
    assert look(host) not in (BEFORE, AFTER)

    back = uncork(host, "rollback")

    assert (back.rc, look(host), intact(host)) == (0, BEFORE, True), back.err


def test_power_cut_in_a_hold_writes_nothing_afterwards(host):
    number = host.send(sys.executable, CHANGE, "600", "--die", "stay", "0", stdin=lines(), timeout_s=400)
    host.sh("until [ -e /run/applied ]; do sleep 0.1; done", timeout_s=300)
    assert (number > 0, look(host)) == (True, AFTER)

    host.power_cut()
    host.start()
    host.sh("sysctl -qw kernel.numa_balancing=1 vm.swappiness=7")
    assert look(host) == BEFORE  # what the boot gives

    back = uncork(host, "rollback")

    assert (back.rc, look(host), intact(host)) == (0, BEFORE, True), back.err
    assert host.sh(f"{sys.executable} -c '{STATES}'") == "lost_at_reboot"


def test_power_cut_in_the_middle_of_writing(host):
    number = host.send(
        sys.executable, CHANGE, "600", "--die", "after-write", "999", stdin=lines(), timeout_s=400
    )
    host.sh('until [ "$(setpci -s 13:00.0 CAP_EXP+8.w)" = 5810 ]; do sleep 0.05; done', timeout_s=300)
    host.power_cut()
    host.start()
    host.sh("sysctl -qw kernel.numa_balancing=1")

    back = uncork(host, "rollback")

    assert (number > 0, back.rc, look(host), intact(host)) == (True, 0, BEFORE, True), back.err


def test_a_confirmed_change_is_lost_at_reboot_and_not_written_again(host):
    ran = change(host, "600", "--confirm")
    assert (ran.rc, look(host)) == (0, AFTER), ran.err

    host.reboot()
    host.sh("sysctl -qw kernel.numa_balancing=1")
    back = uncork(host, "rollback")

    assert (back.rc, look(host), intact(host)) == (0, BEFORE, True), back.err


def test_what_someone_else_changed_meanwhile_is_left_alone(host):
    ran = change(host, "600", changes=CHANGES[:1])
    assert ran.rc == 0, ran.err
    host.sh("sysctl -qw kernel.numa_balancing=2")

    back = uncork(host, "rollback")

    assert host.sh("sysctl -n kernel.numa_balancing") == "2"
    assert "numa_balancing" in back.out + back.err


def test_a_locked_down_kernel_is_not_even_tried(host):
    # Last in this file: a kernel stays locked down until it boots again.
    host.sh("echo integrity > /sys/kernel/security/lockdown")

    ran = change(host, "600", changes=[("pci_mrrs", "0000:13:00.0", "4096")])

    assert (ran.rc, "the kernel is locked down (integrity)" in ran.err) == (1, True)
    assert "not permitted" in host.run("setpci", "-s", "13:00.0", "CAP_EXP+8.w=5000:7000").err
    assert look(host) == BEFORE
