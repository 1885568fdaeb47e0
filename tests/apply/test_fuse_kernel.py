"""The fault table once more through real system calls: the unmodified engine and knobs on files that misbehave.

The files are served by /dev/fuse and bound over /proc/sys in a private mount namespace; the machine's own values
are not touched. A write that hangs sleeps in the kernel, as with a broken driver.
"""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fuse_kernel import Kernel, mount, unmount
from plans import apply_step as draft_step
from plans import new_plan, until_approved

from uncork.errors import BadValue, Busy, NotPermitted, ReadbackDiffers, Stuck, Vanished
from uncork.model.plan import PlannedChange
from uncork.plan.store import Store

KEYS = ("vm.swappiness", "vm.dirty_expire_centisecs", "vm.stat_interval")
BEFORE, AFTER = ["20", "20", "20"], ["50", "50", "50"]
DRIVE = Path(__file__).with_name("fuse_drive.py")
PATIENCE_S = 60.0


def possible() -> str:
    """Why these tests cannot run here; empty where they can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if not Path("/dev/fuse").exists() or shutil.which("unshare") is None:
        return "no /dev/fuse or no unshare here"
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "this container may not make a mount namespace"


pytestmark = pytest.mark.skipif(bool(possible()), reason=possible() or "possible")


class Served:
    """A running stand-in kernel, and an approved plan to set its three values."""

    def __init__(self, folder: Path, rules: dict[str, str | int]) -> None:
        self.place, self.state, self.log = folder / "files", folder / "state", folder / "log"
        self.place.mkdir()
        self.state.mkdir()
        self.log.touch()
        handle = mount(self.place)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                Kernel(handle, dict.fromkeys(KEYS, "20\n"), rules, self.log).serve()
            finally:
                os._exit(0)
        os.close(handle)
        with Store(self.state) as store:
            changes = tuple(PlannedChange("sysctl", key, "50", before="20") for key in KEYS)
            until_approved(store, new_plan(store, draft_step("apply-kernel-sysctl", *changes)))

    def run(self, verb: str, limit_s: float = 20.0) -> subprocess.CompletedProcess[str]:
        argv = [
            "unshare",
            "-m",
            sys.executable,
            DRIVE,
            self.state,
            self.place,
            ",".join(KEYS),
            verb,
            str(limit_s),
        ]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def values(self) -> list[str | None]:
        return [self._value(self.place / key) for key in KEYS]

    def _value(self, path: Path) -> str | None:
        try:
            return path.read_text(encoding="utf-8").strip()
        except OSError:
            return None

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        unmount(self.place)


@pytest.fixture
def serve(tmp_path):
    made = []

    def start(**rules):
        try:
            made.append(Served(tmp_path, {KEYS[int(name[1])]: rule for name, rule in rules.items()}))
        except OSError as error:
            pytest.skip(f"/dev/fuse cannot be mounted here: {error}")
        return made[-1]

    yield start
    for one in made:
        one.stop()


def state_of(served) -> tuple[str, str]:
    with Store(served.state) as store:
        hold = store.db.execute("SELECT state FROM hold").fetchone()
        return store.read().state, hold["state"]


def test_a_willing_kernel_is_changed_and_rolled_back(serve):
    served = serve()
    done = served.run("apply")
    assert (done.returncode, done.stderr) == (0, "")
    assert served.values() == AFTER

    assert served.run("rollback").returncode == 0
    assert served.values() == BEFORE


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        (errno.EINVAL, BadValue),
        (errno.EPERM, NotPermitted),
        (errno.EROFS, NotPermitted),
        (errno.EBUSY, Busy),
        ("clamp", ReadbackDiffers),
        ("ignore", ReadbackDiffers),
    ],
)
def test_a_refusing_kernel_ends_as_it_was(serve, rule, error):
    served = serve(k1=rule)
    done = served.run("apply")

    assert (done.returncode, done.stderr) == (error.exit, "")
    assert served.values() == BEFORE
    assert state_of(served) == ("active", "undone")
    # The first was written and put back; the third was never written.
    lines = served.log.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith(KEYS[0])] == [f"{KEYS[0]}=50", f"{KEYS[0]}=20"]
    assert [line for line in lines if line.startswith(KEYS[2])] == []


def test_busy_twice_is_tried_a_third_time(serve):
    served = serve(k1="busy_twice")
    assert served.run("apply").returncode == 0
    assert served.values() == AFTER


def test_a_device_that_vanishes_leaves_the_others_as_they_were(serve):
    served = serve(k1="vanish")
    assert served.run("apply").returncode == Vanished.exit
    assert served.values() == ["20", None, "20"]
    assert state_of(served) == ("active", "undone")


def test_a_write_that_sleeps_in_the_kernel_freezes_the_plan(serve):
    served = serve(k1="hang")
    done = served.run("apply", limit_s=3)

    assert (done.returncode, done.stderr) == (Stuck.exit, "")
    assert served.values() == BEFORE
    assert state_of(served) == ("frozen", "stuck")
    with Store(served.state) as store:
        row = store.db.execute("SELECT body FROM journal WHERE kind = 'stuck'").fetchone()
    stuck = json.loads(row["body"])["pid"]
    # SIGKILL does not end it: the call is in the kernel until the device answers or is gone.
    os.kill(stuck, signal.SIGKILL)
    assert Path(f"/proc/{stuck}/stat").exists()
    os.kill(served.pid, signal.SIGKILL)
    end_s = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{stuck}/stat").exists() and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not Path(f"/proc/{stuck}/stat").exists() or _zombie(stuck)


def _zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
