"""The journal's disk fills up or fails: then nothing is written to the host, or what was written is put back."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_crash_points import apply, damage, put_in_order
from world import AFTER, BEFORE, make, restore, touched_without_intent, unrecorded, values

from uncork.errors import StateUnwritable, UncorkError
from uncork.plan import database
from uncork.plan.store import Store

ACT = Path(__file__).with_name("act.py")
STRACE = shutil.which("strace")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    live = tmp_path_factory.mktemp("disk") / "live"
    return live, shutil.copytree(make(live), tmp_path_factory.mktemp("saved") / "approved")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 512 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "none", place], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("this container may not mount a small file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def outcome_when_full_at(n: int, world: Path, place: Path) -> tuple[int, bool]:
    """Exit status of an apply whose disk is full from its n-th point on, and whether that point was reached."""
    count = [0]

    def point(name: str) -> None:
        count[0] += 1
        if count[0] == n:
            fill(place)

    pid = os.fork()
    if pid == 0:
        database.point = point
        status = 0
        try:
            apply(world)
        except UncorkError as error:
            status = error.exit
        except BaseException:
            import traceback

            traceback.print_exc()
            status = 99
        os._exit(status if count[0] >= n else 100 + status)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code % 100, code < 100


def test_a_disk_that_fills_at_any_point_leaves_the_host_as_it_was(saved, small_disk):
    live, approved = saved
    statuses, wrong = [], []
    for n in range(1, 200):
        restore(approved, live)
        shutil.rmtree(live / "state")
        (small_disk / "filler").unlink(missing_ok=True)
        shutil.rmtree(small_disk / "state", ignore_errors=True)
        shutil.copytree(approved / "state", small_disk / "state")
        (live / "state").symlink_to(small_disk / "state")
        status, reached = outcome_when_full_at(n, live, small_disk)
        if not reached:
            assert status == 0
            break
        statuses.append(status)
        wanted = AFTER if status == 0 else BEFORE
        if values(live) != wanted or status not in (0, StateUnwritable.exit):
            wrong.append((n, status, values(live)))
        (small_disk / "filler").unlink()
        wrong += [(n, "unrecorded", name) for name in unrecorded(live)]
        wrong += [(n, "written without intent", name) for name in touched_without_intent(live, approved)]
        put_in_order(live)
        wrong += [(n, line) for line in damage(live)]
    (live / "state").unlink()

    assert wrong == []
    assert statuses.count(StateUnwritable.exit) > 10


def strace(world: Path, verb: str, calls: str, inject: str) -> subprocess.CompletedProcess[str]:
    """Run a verb with faults put into the system calls that touch its database."""
    state = world / "state"
    return subprocess.run(
        [
            *(STRACE or "strace", "-f", "-qq", "-o", "/dev/null"),
            *("-P", state / "state.db", "-P", state / "state.db-wal"),
            *("-e", f"trace={calls}", "-e", f"inject={calls}:{inject}"),
            *(sys.executable, ACT, world, verb),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


def strace_or_skip(live: Path) -> None:
    if STRACE is None or subprocess.run([STRACE, "-qq", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace cannot trace here")


CALLS = "pwrite64,fdatasync,fsync"
SOME = (1, 2, 3, 5, 8, 13, 21, 34)


@pytest.mark.parametrize("points", [SOME, pytest.param(range(1, 200), marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_a_disk_that_fails_from_any_call_on_leaves_the_host_as_it_was(saved, points):
    """EIO from the n-th write or sync of the database on, injected by strace into the real calls."""
    live, approved = saved
    strace_or_skip(live)
    statuses, wrong = [], []
    for n in points:
        restore(approved, live)
        done = strace(live, "apply", CALLS, f"error=EIO:when={n}+")
        statuses.append(done.returncode)
        if done.returncode == 0:
            assert values(live) == AFTER
            break
        if values(live) != BEFORE or done.returncode != StateUnwritable.exit:
            wrong.append((n, done.returncode, values(live), done.stderr))
        wrong += [(n, "written without intent", name) for name in touched_without_intent(live, approved)]
        put_in_order(live)
        wrong += [(n, line) for line in damage(live)]

    assert wrong == []
    assert statuses.count(StateUnwritable.exit) >= 7


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("verb", ["apply", "rollback"])
def test_killed_at_any_system_call_on_the_database_is_put_in_order(saved, verb):
    """The crash points below ours: each write, sync and truncation inside SQLite."""
    live, approved = saved
    strace_or_skip(live)
    calls = "pwrite64,fdatasync,fsync,ftruncate,unlink,openat"
    points, wrong = 0, []
    restore(approved, live)
    if verb == "rollback":
        apply(live)
    start = shutil.copytree(live, approved.parent / f"start-{verb}")
    for n in range(1, 300):
        restore(start, live)
        if strace(live, verb, calls, f"signal=KILL:when={n}").returncode == 0:
            break
        points += 1
        assert all(now in pair for now, *pair in zip(values(live), BEFORE, AFTER, strict=True))
        wrong += [(n, "unrecorded", name) for name in unrecorded(live)]
        put_in_order(live)
        wrong += [(n, line) for line in damage(live)]

    assert wrong == []
    assert points > 20


def test_a_full_disk_is_a_refusal_before_anything_is_read(tmp_path, small_disk):
    fill(small_disk)
    with pytest.raises(StateUnwritable) as raised:
        Store(small_disk / "state" if (small_disk / "state").exists() else small_disk)

    assert "nothing was attempted" in raised.value.says
