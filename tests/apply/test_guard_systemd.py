"""The guard where systemd is the first process: what it is told, and what takes its place when it refuses."""

import os

import pytest
from fake_kernel import guard_of, until

from uncork.apply import guard, hold
from uncork.apply.transaction import apply_step


def test_the_systemd_timer_is_exact_and_runs_the_copy(world):
    argv = guard.systemd_argv(["/usr/bin/python3", "-I", "-S", "revert.py"], "abc", 299.6)

    assert argv[:3] == ["systemd-run", "--unit=uncork-revert-abc", "--on-active=300s"]
    assert "--timer-property=AccuracySec=1s" in argv
    assert argv[-4:] == ["/usr/bin/python3", "-I", "-S", "revert.py"]


@pytest.mark.skipif(not guard.systemd(), reason="systemd is not the first process here")
def test_a_systemd_timer_stands_until_it_is_stopped(world):
    applied = apply_step(world.store, world.step(), knobs=world.knobs(), guard=guard.arm)
    assert guard.armed(guard_of(world))
    hold.confirm(world.store, applied.txn)

    assert not guard.armed(guard_of(world))


STAND_IN = """#!/bin/sh
# A stand-in for systemd-run: waits as a timer would, then runs the command away from its caller.
echo "$@" > "{folder}/called"
while [ "${{1#--}}" != "$1" ]; do
    case "$1" in --on-active=*) wait="${{1#--on-active=}}" ;; esac
    shift
done
(sleep "${{wait%s}}"; exec "$@") > "{folder}/said" 2>&1 < /dev/null &
"""


def test_what_systemd_is_told_to_run_undoes_the_group(world, tmp_path, monkeypatch):
    """With a stand-in for systemd-run, which no machine of these tests has as its first process."""
    tool = tmp_path / "bin/systemd-run"
    tool.parent.mkdir()
    tool.write_text(STAND_IN.format(folder=tmp_path), encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")

    def arm(folder, db, txn, deadline_boot_ns):
        return guard._arm_systemd(guard.command(folder, db, txn), txn, deadline_boot_ns)

    applied = apply_step(world.store, world.step(), knobs=world.knobs(), guard=arm, hold_s=1)
    assert guard_of(world) == f"systemd:uncork-revert-{applied.txn}.timer"

    assert until(lambda: world.hold_state() == "undone")
    assert world.values() == ["0", "0", "0"]
    assert (tmp_path / "said").read_text(encoding="utf-8") == ""


def test_a_systemd_that_refuses_is_replaced_by_a_process(world, tmp_path, monkeypatch):
    tool = tmp_path / "bin/systemd-run"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(guard, "systemd", lambda: True)
    apply_step(world.store, world.step(), knobs=world.knobs(), guard=guard.arm, hold_s=600)

    assert guard_of(world).startswith("process:")
    assert guard.armed(guard_of(world))
