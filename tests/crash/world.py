"""A host that is a folder, an approved plan for it, and a process that is killed at its n-th crash point."""

import contextlib
import mmap
import os
import select
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from plans import apply_step, new_plan, until_approved

from uncork.apply import chain
from uncork.knobs import knobs_at
from uncork.model.plan import PlannedChange
from uncork.plan import database
from uncork.plan.store import Store, find

# key, before, want; one is a list that the kernel prints with tabs.
KEYS = (
    ("vm.swappiness", "60", "1"),
    ("kernel.numa_balancing", "1", "0"),
    ("net.ipv4.tcp_rmem", "4096\t131072\t6291456", "4096 131072 67108864"),
)
STEP = "apply-kernel-sysctl"
LIMIT = 400


def make(folder: Path, policy: str = "all_or_nothing") -> Path:
    """A new world: `root` is the host, `state` the state folder, with the group approved and ready."""
    for key, before, _ in KEYS:
        path = folder / "root/proc/sys" / key.replace(".", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(before + "\n", encoding="utf-8")
    (folder / "state").mkdir()
    changes = tuple(
        PlannedChange("sysctl", key, want, before=" ".join(before.split())) for key, before, want in KEYS
    )
    with Store(folder / "state") as store:
        step = msgspec.structs.replace(apply_step(STEP, *changes), policy=policy)
        until_approved(store, new_plan(store, step))
    return folder


def values(folder: Path) -> list[str]:
    """What the host has now, spaces made one."""
    root = folder / "root/proc/sys"
    return [" ".join((root / k.replace(".", "/")).read_text(encoding="utf-8").split()) for k, _, _ in KEYS]


BEFORE = [" ".join(before.split()) for _, before, _ in KEYS]
AFTER = [want for _, _, want in KEYS]


def knobs(folder: Path):
    return knobs_at(str(folder / "root"))


def no_guard(folder: Path, db: Path, txn: str, deadline_boot_ns: int) -> str:
    """A timer that never fires: what is left to do is left to recovery."""
    return "none:"


def killed_at(n: int, act: Callable[[], None]) -> bool:
    """Run `act` in a process that is killed, with its children, at its n-th crash point; whether it was."""
    counter = mmap.mmap(-1, 8)

    def point(name: str) -> None:
        now = int.from_bytes(counter[:8], "little") + 1
        counter[:8] = now.to_bytes(8, "little")
        if now == n:
            os.killpg(0, signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            database.point = point
            act()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    _until_gone(pid)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def _until_gone(group: int) -> None:
    """Wait for the last process of a killed group: its writing child ends a moment later, and shares its locks."""
    alive = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _group(pid) == group]
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                assert select.select([handle], [], [], 60)[0], f"process {pid} survives SIGKILL"
            finally:
                os.close(handle)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def restore(saved: Path, live: Path) -> Path:
    """Put a saved world where it is lived in: the journal names files of the host by their full path."""
    shutil.rmtree(live, ignore_errors=True)
    return shutil.copytree(saved, live)


def each_crash(saved: Path, live: Path, act: Callable[[Path], None]) -> Iterator[int]:
    """Each crash point of `act`, with the world `live` as it is after `act` was killed there."""
    for n in range(1, LIMIT):
        restore(saved, live)
        if not killed_at(n, lambda: act(live)):
            assert n > 1
            return
        yield n
    raise AssertionError(f"more than {LIMIT} crash points")


def record(folder: Path) -> tuple[str, list[str]]:
    """What the record says: the step's status with its hold's state, and where the chain does not hold."""
    with Store(folder / "state") as store:
        step = find(store.read(), STEP)
        holds = [row["state"] for row in store.db.execute("SELECT state FROM hold ORDER BY rowid")]
        return f"{step.status} {' '.join(holds)}".strip(), chain.broken(store.db)


def unrecorded(folder: Path) -> list[str]:
    """Targets that differ from before although no durable intent says so: the one thing that must not be."""
    with Store(folder / "state") as store:
        rows = store.db.execute("SELECT ord FROM journal WHERE kind = 'intent'").fetchall()
    known = {row["ord"] for row in rows}
    now = values(folder)
    return [KEYS[i][0] for i in range(len(KEYS)) if now[i] != BEFORE[i] and i not in known]


def touched_without_intent(folder: Path, saved: Path) -> list[str]:
    """Files of the host that were written at all although no intent is durable, by their time of change."""
    with Store(folder / "state") as store:
        if store.db.execute("SELECT COUNT(*) FROM journal WHERE kind = 'intent'").fetchone()[0]:
            return []
    paths = ["root/proc/sys/" + key.replace(".", "/") for key, _, _ in KEYS]
    return [p for p in paths if (folder / p).stat().st_mtime_ns != (saved / p).stat().st_mtime_ns]
