"""The hold outlives us: killed parents, closed terminals, upgrades, and a race with the confirm."""

import errno
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from fake_kernel import STEP, World, guard_of, no_guard, until

import uncork
from uncork.apply import chain, guard, hold, revert
from uncork.apply.lock import LockHeld, host_lock, locked
from uncork.apply.recover import needed, recover
from uncork.apply.transaction import apply_step
from uncork.errors import IllegalMove, Locked, Refused
from uncork.plan import database
from uncork.plan.store import Store, find


def process_guard(folder, db, txn, deadline_boot_ns):
    """The detached process, also where systemd would be taken."""
    return guard._arm_process(guard.command(folder, db, txn))


def test_the_timer_is_armed_before_the_first_write(world):
    seen = []

    def arm(folder, db, txn, deadline_boot_ns):
        seen.append((world.values(), len(world.rows("intent"))))
        return "none:"

    apply_step(world.store, world.step(), knobs=world.knobs(), guard=arm)

    assert seen == [(["0", "0", "0"], 3)]


def test_a_timer_that_cannot_be_armed_means_no_write(world):
    def arm(folder, db, txn, deadline_boot_ns):
        raise guard.NotArmed("no process could be made")

    with pytest.raises(Refused, match="could not be armed"):
        apply_step(world.store, world.step(), knobs=world.knobs(), guard=arm)

    assert world.values() == ["0", "0", "0"]
    assert (world.step().status, world.hold_state()) == ("failed", "undone")


def test_the_group_reverts_after_its_process_was_killed_and_its_terminal_closed(world):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        with Store(world.store.folder) as mine:
            step = find(mine.read(), STEP)
            apply_step(mine, step, knobs=world.knobs(), guard=process_guard, hold_s=1.5)
        os.killpg(0, signal.SIGKILL)
    os.waitpid(pid, 0)

    assert until(lambda: world.hold_state() == "undone")
    assert world.values() == ["0", "0", "0"]
    assert world.step().status == "reverted"
    assert world.step().reason == "not confirmed before its deadline"


def test_a_confirmed_group_stays_and_its_guard_ends(world):
    applied = apply_step(world.store, world.step(), knobs=world.knobs(), guard=process_guard, hold_s=600)
    assert guard.armed(guard_of(world))
    hold.confirm(world.store, applied.txn)

    assert until(lambda: not guard.armed(guard_of(world)))
    assert world.values() == ["5", "5", "5"]


def test_an_extended_deadline_is_the_one_that_counts(world):
    applied = apply_step(world.store, world.step(), knobs=world.knobs(), guard=process_guard, hold_s=8)
    hold.extend(world.store, applied.txn, 600)
    first_deadline_ns = applied.deadline_boot_ns
    assert until(lambda: database.boot_ns() > first_deadline_ns + 1_500_000_000)

    assert guard.armed(guard_of(world))
    assert (world.hold_state(), world.values()) == ("open", ["5", "5", "5"])


def test_the_undo_needs_neither_our_package_nor_our_environment(world, tmp_path):
    """An upgrade, or a removal, in the middle of a hold: the copy runs with the standard library alone."""
    applied = apply_step(world.store, world.step(), knobs=world.knobs(), guard=no_guard)
    argv = guard.command(world.store.folder, world.store.path, applied.txn)
    assert argv[1:3] == ["-I", "-S"]
    assert ".venv" not in argv[0]

    done = subprocess.run(
        [*argv, "--now"], capture_output=True, text=True, cwd="/", env={"PATH": "/nowhere"}, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert world.values() == ["0", "0", "0"]
    assert world.step().status == "reverted"


def test_the_copy_imports_nothing_but_the_standard_library(world):
    program = guard.program(world.store.folder)
    code = (
        f"import sys, runpy; sys.argv = ['revert.py', '--help']\n"
        f"try: runpy.run_path({str(program)!r}, run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print('MODULES', *(m.__file__ or '' for m in list(sys.modules.values()) if hasattr(m, '__file__')))"
    )
    done = subprocess.run(
        [guard.interpreter(), "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    files = [Path(word) for word in done.stdout.partition("MODULES")[2].split()]

    assert [f for f in files if "site-packages" in f.parts] == []
    assert [f for f in files if Path(uncork.__file__).parent in f.parents] == []
    assert any(program.parent in f.parents for f in files)


def test_a_hold_of_an_older_release_keeps_its_own_copy_of_the_undo(world, monkeypatch):
    """Both releases can undo it: the old copy by its timer, the new one by reading the older journal."""
    old = guard.program(world.store.folder)
    applied = apply_step(world.store, world.step(), knobs=world.knobs(), guard=no_guard)
    texts = {p: p.read_bytes() for p in old.parent.rglob("*.py")}
    upgraded = guard.PACKAGE / "apply/revert.py"
    monkeypatch.setattr(guard, "FILES", (*guard.FILES, "errors.py"))  # the next release has one more file

    new = guard.program(world.store.folder)
    assert (new != old, upgraded.exists()) == (True, True)
    assert {p: p.read_bytes() for p in old.parent.rglob("*.py")} == texts

    subprocess.run(
        [guard.interpreter(), "-I", "-S", old, "--db", world.store.path, "--txn", applied.txn, "--now"],
        check=True,
        capture_output=True,
    )
    assert world.values() == ["0", "0", "0"]


def test_a_lost_timer_is_armed_again_and_a_late_one_undone_at_once(world):
    applied = apply_step(world.store, world.step(), knobs=world.knobs(), guard=no_guard, hold_s=600)
    assert needed(world.store)
    (done,) = recover(world.store, guard=process_guard)
    assert "runs again" in done.did
    assert guard.armed(guard_of(world))
    assert not needed(world.store)
    hold.undo(world.store, applied.txn, why="test")
    assert recover(world.store) == []


def test_a_deadline_that_passed_while_nobody_watched_is_undone_by_recovery(world):
    apply_step(world.store, world.step(), knobs=world.knobs(), guard=no_guard, hold_s=0)
    (done,) = recover(world.store)

    assert done.did == "undone: its deadline passed"
    assert world.values() == ["0", "0", "0"]


@pytest.mark.parametrize("confirmed", [False, True])
def test_after_a_reboot_nothing_is_written(world, monkeypatch, tmp_path, confirmed):
    applied = apply_step(world.store, world.step(), knobs=world.knobs(), guard=no_guard)
    if confirmed:
        hold.confirm(world.store, applied.txn)
    other = tmp_path / "boot_id"
    other.write_text("11111111-2222-3333-4444-555555555555\n", encoding="ascii")
    monkeypatch.setattr(database, "BOOT_ID_FILE", other)
    (world.host / "b").write_text("8\n", encoding="utf-8")  # this boot's default

    assert world.step().shown == "drifted"
    recover(world.store)
    assert hold.undo(world.store, applied.txn, why="test") is None

    assert world.values() == ["5", "8", "5"]
    assert world.hold_state() == "lost_at_reboot"
    assert [ord for kind, ord in world.rows("lost_at_reboot")] == [0, 1, 2]


def test_a_reboot_in_the_middle_of_the_write_is_lost_at_reboot(world, monkeypatch, tmp_path):
    pid = os.fork()
    if pid == 0:
        with Store(world.store.folder) as mine:
            knobs = world.knobs({"b": "hang"})
            try:
                apply_step(mine, find(mine.read(), STEP), knobs=knobs, guard=no_guard, call_limit_s=3)
            finally:
                os._exit(0)
    os.waitpid(pid, 0)
    other = tmp_path / "boot_id"
    other.write_text("11111111-2222-3333-4444-555555555555\n", encoding="ascii")
    monkeypatch.setattr(database, "BOOT_ID_FILE", other)
    kill_stuck(world)
    recover(world.store)

    assert world.hold_state() == "lost_at_reboot"
    assert world.step().status == "reverted"


def kill_stuck(world):
    row = world.store.db.execute("SELECT body FROM journal WHERE kind = 'stuck'").fetchone()
    os.kill(json.loads(row["body"])["pid"], signal.SIGKILL)
    assert until(lambda: can_lock(world))


def can_lock(world):
    try:
        with locked(world.store.folder):
            return True
    except LockHeld:
        return False


def test_a_second_uncork_is_told_who_writes(world):
    with locked(world.store.folder), pytest.raises(Locked) as refused:
        apply_step(world.store, world.step(), knobs=world.knobs(), guard=no_guard)

    assert f"process {os.getpid()}" in refused.value.says
    assert world.step().status == "pending"
    assert world.values() == ["0", "0", "0"]


def test_a_second_uncork_with_a_state_folder_of_its_own_is_told_too(world, tmp_path, monkeypatch):
    """As root the host has one lock, whatever UNCORK_STATE says; others, who write nothing there, share none."""
    other = tmp_path / "other"
    other.mkdir()
    with locked(other), pytest.raises(Locked) as refused:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        with locked(other, name="again"):  # two names are two locks
            apply_step(world.store, world.step(), knobs=world.knobs(), guard=no_guard)

    assert f"process {os.getpid()}" in refused.value.says
    assert f"its state in {other}" in refused.value.says
    assert (world.step().status, world.values()) == ("pending", ["0", "0", "0"])


def test_who_is_not_root_takes_no_lock_of_the_host(world, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with locked(tmp_path / "other"), locked(world.store.folder):
        assert host_lock("lock") is None


def test_a_run_that_is_read_only_has_no_lock_to_share(world, tmp_path, monkeypatch):
    """Where root cannot make the file, as in a container whose /run is read-only, the state folder's lock counts."""
    monkeypatch.setenv("UNCORK_RUN", "/proc/1/uncork")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    real = os.open

    def refuse(path, *rest, **more):
        if str(path).startswith("/proc/1/"):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
    monkeypatch.setattr(os, "open", refuse)
    with locked(world.store.folder), pytest.raises(LockHeld), locked(world.store.folder):
        pass


def test_of_two_uncorks_one_applies_and_the_other_is_told(world):
    """Both start at once, in processes of their own; the journal has one group."""
    begin_read, begin_write = os.pipe()
    pids = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            status = 98
            try:
                with Store(world.store.folder) as mine:
                    step = find(mine.read(), STEP)
                    os.close(begin_write)
                    os.read(begin_read, 1)
                    apply_step(mine, step, knobs=world.knobs(), guard=no_guard)
                    status = 0
            except Refused as refused:
                status = refused.exit if refused.next else 99
            finally:
                os._exit(status)
        pids.append(pid)
    os.close(begin_write)
    statuses = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
    os.close(begin_read)

    assert statuses[0] == 0
    assert statuses[1] in (Locked.exit, 11, IllegalMove.exit)
    assert world.rows("hold") == [("hold", None)]
    assert world.values() == ["5", "5", "5"]


def test_the_guard_puts_the_host_back_even_if_its_disk_takes_no_rows(world, tmp_path):
    """The database turns read-only under the guard; the host is put back, the rows follow when they can."""
    applied = apply_step(world.store, world.step(), knobs=world.knobs(), guard=no_guard, hold_s=0)
    world.store.db.execute("PRAGMA query_only = ON")

    class Enough(Exception):
        pass

    def once(seconds):
        raise Enough

    plain, revert.time.sleep = revert.time.sleep, once
    try:
        with pytest.raises(Enough):
            revert.guard(world.store.db, world.store.folder, applied.txn)
    finally:
        revert.time.sleep = plain
    assert world.values() == ["0", "0", "0"]
    assert world.hold_state() == "open"
    world.store.db.execute("PRAGMA query_only = OFF")

    assert revert.guard(world.store.db, world.store.folder, applied.txn) == 0
    assert world.hold_state() == "undone"


def test_the_guard_puts_the_host_back_even_if_the_database_is_ruined(world):
    apply_step(world.store, world.step(), knobs=world.knobs(), guard=process_guard, hold_s=4)
    name = guard_of(world)
    world.store.close()
    for end in ("", "-wal"):
        (world.store.folder / f"state.db{end}").write_bytes(b"ruined " * 20_000)

    assert until(lambda: world.values() == ["0", "0", "0"])
    os.kill(int(name.split(":")[1]), signal.SIGKILL)
    for path in world.store.folder.glob("state.db*"):
        path.unlink()
    world.store = Store(world.store.folder)


def race(world, txn, deadline_ns):
    """One confirm against one expiry from another process, let go at the same moment; who won."""
    go_read, go_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            db = database.connect(world.store.path)
            os.close(go_write)
            os.read(go_read, 1)
            actor = chain.actor("guard")
            with locked(world.store.folder, wait_s=30):
                won = revert.undo(db, txn, why="expired", actor=actor, was=("open", "undoing"))
            status = 1 if won is not None else 0
        finally:
            os._exit(status)
    os.close(go_read)
    os.close(go_write)
    try:
        hold.confirm(world.store, txn)
        confirmed = 1
    except IllegalMove:
        confirmed = 0
    expired = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return confirmed, expired


@pytest.mark.parametrize("times", [60, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_confirm_against_expiry_has_one_winner_each_time(tmp_path, times):
    world = World(tmp_path, names=("a",))
    applied = apply_step(world.store, world.step(), knobs=world.knobs(), guard=no_guard, hold_s=3600)
    row = dict(world.store.db.execute("SELECT * FROM hold").fetchone())
    intent = world.store.db.execute("SELECT body FROM journal WHERE kind = 'intent'").fetchone()["body"]
    winners = []
    for n in range(times):
        txn = f"race{n}"
        (world.host / "a").write_text("5\n", encoding="utf-8")
        with world.store.writing() as db:
            db.execute(
                "INSERT INTO hold(txn, boot_id, deadline_boot_ns) VALUES (?, ?, ?)",
                (txn, row["boot_id"], row["deadline_boot_ns"]),
            )
            chain.append(db, txn, "intent", json.loads(intent), ord=0)
        confirmed, expired = race(world, txn, applied.deadline_boot_ns)
        winners.append((confirmed, expired))
        assert world.values() == (["5"] if confirmed else ["0"])

    assert set(winners) <= {(1, 0), (0, 1)}
    assert chain.broken(world.store.db) == []
    world.store.close()
