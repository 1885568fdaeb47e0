"""An assistant in the guest: the official MCP client drives the whole loop on a real kernel, and undoes it."""

import json
import sys
from pathlib import Path

import pytest
from tests.vm.machine import Machine

pytest.importorskip("mcp", reason="the extra mcp is not installed")

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(3600)]

ASSISTANT = str(Path(__file__).parent / "guest/assistant.py")
# The module is there from the start: one that the plan loads would make the runs differ in their driver.
PLANT = (
    "modprobe nvidia && sysctl -qw kernel.numa_balancing=1 vm.overcommit_memory=2 vm.overcommit_ratio=10000"
)
LOOK = """
sysctl kernel.numa_balancing vm.overcommit_memory
cat /sys/devices/system/cpu/cpufreq/policy*/scaling_governor
for bus in 12 16; do setpci -s $bus:00.0 ECAP_ACS+6.w; done
lsmod | awk '/^nvidia/ {print $1}' | sort
"""


@pytest.fixture(scope="module")
def driven(bootable):
    vm = Machine(disk=True).start()
    try:
        vm.sh(PLANT)
        words = (sys.executable, ASSISTANT, LOOK)
        ran = vm.run(*words, timeout_s=2700, env={"UNCORK_PATIENCE": "20"})
        logs = vm.sh("tail -n 5 $(find /var/lib/uncork -name runner.log) || true")
        assert ran.rc == 0, f"{ran.out}\n{ran.err[-3000:]}\n{logs}"
        yield json.loads(ran.out)
    finally:
        vm.close()


def test_every_step_of_the_loop_ended_well(driven):
    ends = driven["ends"]
    once = ("gate-before", "benchmark-before", "document", "approve", "gate", "confirm", "benchmark")

    assert {name: ends[name] for name in (*once, "compare", "close")} == dict.fromkeys(
        (*once, "compare", "close"), "completed"
    )
    assert {ends[name] for name in driven["changes"]} == {"unconfirmed"}  # applied, and held until the gate


def test_the_kernel_had_the_values_and_has_its_own_again(driven):
    before, during = driven["before"].splitlines(), driven["during"].splitlines()

    assert before[:2] == ["kernel.numa_balancing = 1", "vm.overcommit_memory = 2"]
    assert during[:2] == ["kernel.numa_balancing = 0", "vm.overcommit_memory = 0"]
    assert set(during[2:6]) == {"performance"} and before[2:6] == ["schedutil"] * 4
    assert (before[6:], during[6:]) == (
        ["001d", "001d", "nvidia"],
        ["0011", "0011", "nvidia", "nvidia_uvm"],
    )
    assert driven["after"] == driven["before"]


def test_what_an_assistant_must_not_do_was_refused_with_the_call_to_make(driven):
    assert "step_start(step='gate-before'" in driven["refused"]["gate"]
    assert "step_start(step='gate')" in driven["refused"]["confirm"]


def test_a_client_that_can_ask_still_needs_the_terminal_for_access_control(driven):
    """Clearing ACS is of high risk: the question is not even put; `uncork approve` was run, then the call again."""
    assert "need a person at a terminal" in driven["refused"]["approve"]
    assert not any("asks to write" in text for text in driven["asked"])


def test_a_person_agreed_before_each_undo(driven):
    assert sum(text.startswith("Put back what") for text in driven["asked"]) == len(driven["changes"])


def test_the_comparison_the_record_and_the_journal_are_there(driven):
    assert driven["compared"]["judgement"] not in ("", "not comparable"), driven["compared"]["says"]
    assert driven["record"] > 1000 and driven["intact"]
