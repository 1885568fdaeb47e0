"""A kernel that misbehaves: its knobs are files of a folder, and a write can do what real ones do.

Values are one digit long, since an undo writes as to a kernel file, without truncating.

This stands in for the kernel, not for any part of uncork: the engine, the journal and the undo are the real ones.
"""

import os
import signal
import time
from pathlib import Path

from plans import new_plan, until_approved

from uncork.knobs.base import RecipeKnob
from uncork.model.findings import Priority
from uncork.model.plan import Kind, Need, PlannedChange, StepDraft
from uncork.plan.store import Store, find

STEP = "apply-kernel-fake"


class FakeKnob(RecipeKnob):
    """Files of a folder. `faults` maps a target to what a write to it does: a word, or the errno it raises."""

    def __init__(self, folder: Path, faults: dict[str, str | int] | None = None, owners=()) -> None:
        super().__init__(str(folder))
        self.folder, self.faults, self._owners = folder, faults or {}, owners

    def recipe(self, target):
        return {"kind": "file", "path": str(self.folder / target), "compare": "words"}

    def owners(self, target):
        return tuple(self._owners)

    def write(self, target, value):
        path, fault = self.folder / target, self.faults.get(target)
        if isinstance(fault, int):
            raise OSError(fault, os.strerror(fault), str(path))
        getattr(self, f"_{fault}", self._plain)(path, value)

    def _plain(self, path, value):
        path.write_text(value + "\n", encoding="utf-8")

    def _clamp(self, path, value):
        self._plain(path, str(min(int(value), 3)))

    def _canonicalise(self, path, value):
        path.write_text(f"\t{int(value, 0)}  \n", encoding="utf-8")

    def _ignore(self, path, value):
        pass

    def _busy_twice(self, path, value):
        tries = path.with_name(path.name + ".tries")
        count = len(tries.read_text(encoding="utf-8")) if tries.exists() else 0
        tries.write_text("x" * (count + 1), encoding="utf-8")
        if count < 2:
            raise OSError(16, "Device or resource busy", str(path))
        self._plain(path, value)

    def _hang(self, path, value):
        while True:
            signal.pause()

    def _hang_after_writing(self, path, value):
        self._plain(path, value)
        self._hang(path, value)

    def _vanish(self, path, value):
        path.unlink()
        raise OSError(19, "No such device", str(path))

    def _third_party(self, path, value):
        self._plain(path, value)
        self._plain(path, "7")

    def _die(self, path, value):
        os.kill(os.getpid(), signal.SIGKILL)


def no_guard(folder, db, txn, deadline_boot_ns):
    return "none:"


class World:
    """Three knobs `a`, `b`, `c` that are 0, and an approved plan that sets them to 5."""

    def __init__(self, folder: Path, *, want="5", policy="all_or_nothing", names=("a", "b", "c")) -> None:
        self.host, self.names = folder / "host", names
        self.host.mkdir(parents=True)
        for name in names:
            (self.host / name).write_text("0\n", encoding="utf-8")
        (folder / "state").mkdir(exist_ok=True)
        self.store = Store(folder / "state")
        changes = tuple(PlannedChange("fake", name, want, before="0") for name in names)
        draft = StepDraft(
            *(STEP, Kind.APPLY, "Set three knobs", "", Priority.P1),
            needs=(Need("approve"),),
            changes=changes,
            policy=policy,
        )
        self.plan = until_approved(self.store, new_plan(self.store, draft))

    def knobs(self, faults=None, owners=()):
        return {"fake": FakeKnob(self.host, faults, owners)}

    def values(self):
        """What the knobs read; None for one that has vanished."""
        paths = [self.host / name for name in self.names]
        return [path.read_text(encoding="utf-8").strip() if path.exists() else None for path in paths]

    def step(self):
        return find(self.store.read(), STEP)

    def rows(self, *kinds):
        every = self.store.db.execute("SELECT kind, ord FROM journal ORDER BY seq").fetchall()
        return [(row["kind"], row["ord"]) for row in every if row["kind"] in kinds]

    def hold_state(self):
        row = self.store.db.execute("SELECT state FROM hold ORDER BY rowid DESC").fetchone()
        return row["state"] if row else None


PATIENCE_S = 60.0


def until(condition) -> bool:
    """Whether it came true before patience ran out; what is waited for is the work of another process."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.05)
    return True


def guard_of(world):
    return world.store.db.execute("SELECT guard FROM hold ORDER BY rowid DESC").fetchone()["guard"]
