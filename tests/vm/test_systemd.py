"""The revert timer where systemd is the first process: it fires after uncork was killed, and a confirm stops it."""

import sys

import pytest
from tests.vm.machine import Machine
from tests.vm.test_apply import CHANGE, ROOT, UNTIL, intact, lines

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]

CHANGES = (("sysctl", "vm.swappiness", "1"), ("sysctl", "vm.dirty_bytes", "268435456"))
LOOK = "echo $(sysctl -n vm.swappiness vm.dirty_bytes vm.dirty_ratio)"
BEFORE, AFTER = "60 0 20", "1 268435456 0"
GUARD = """
import sqlite3
print(*(row[0] for row in sqlite3.connect("/var/lib/uncork/state.db").execute("SELECT guard FROM hold")))
"""


@pytest.fixture(scope="module")
def host(bootable):
    if not Machine.SYSTEMD.exists():
        pytest.skip(f"{Machine.SYSTEMD} is not on this machine, whose root is the guest's")
    vm = Machine(append="lab.systemd=1").start()
    yield vm
    vm.close()


def test_systemd_is_the_first_process(host):
    assert host.sh("cat /proc/1/comm; systemctl is-active lab.service").split() == ["systemd", "active"]


def test_its_timer_puts_the_values_back_after_uncork_was_killed(host):
    """No process of uncork is left: the timer is systemd's, and what it starts has nothing of ours in its memory."""
    number = host.send(
        sys.executable, CHANGE, "75", "--die", "stay", "0", stdin=lines(CHANGES), timeout_s=400
    )
    host.sh("until [ -e /run/applied ]; do sleep 0.1; done", timeout_s=300)
    timer = host.sh(f"{sys.executable} -c '{GUARD}'").removeprefix("systemd:")
    assert host.sh(LOOK) == AFTER
    assert host.sh(f"systemctl is-active {timer}") == "active"

    host.sh("pkill -9 -f guest/change.py")
    host.wait(number)
    assert host.run("pgrep", "-f", "revert.py").rc == 1

    host.sh(UNTIL.format(look=LOOK, want=BEFORE), timeout_s=200)
    host.sh(UNTIL.format(look=f"systemctl is-active {timer} || true", want="inactive"), timeout_s=200)
    assert intact(host)


def test_a_confirm_stops_it(host):
    """The tests of the guard that need systemd, in the guest."""
    host.sh("rm -rf /var/lib/uncork /run/applied")
    tests = str(ROOT / "tests/apply/test_guard_systemd.py")
    ran = host.run(
        *(
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rs",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(ROOT),
            tests,
        ),
        timeout_s=500,
    )

    assert (ran.rc, "4 passed" in ran.out) == (0, True), ran.out + ran.err
