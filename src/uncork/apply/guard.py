"""Arm the revert timer of a hold: a systemd timer where systemd runs the host, else a detached process.

Both run the copy of revert.py that lies in the state folder, named by the hash of its files, with the base
interpreter and neither this process nor its virtual environment: an upgrade in the middle of a hold leaves the
copy, and so the undo, as it was when the hold began.
"""

import contextlib
import hashlib
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import uncork
from uncork.plan.database import boot_ns, reached, start_ticks, sync_folder

PACKAGE = Path(uncork.__file__).parent
FILES = (
    "__init__.py",
    "apply/chain.py",
    "apply/child.py",
    "apply/lock.py",
    "apply/revert.py",
    "plan/database.py",
)
FOLDERS = ("knobs/recipes",)
# Packages whose own __init__ would bring in more than the standard library are empty in the copy.
EMPTY = ("apply/__init__.py", "plan/__init__.py", "knobs/__init__.py")
LAUNCHER = """import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
from uncork.apply.revert import main

sys.exit(main(sys.argv[1:]))
"""
ARM_LIMIT_S = 20.0


class NotArmed(Exception):
    """The revert timer could not be started; nothing may be written."""


def program(folder: Path) -> Path:
    """The path of revert.py in the state folder, copied there if this version is not there yet."""
    texts = {name: (PACKAGE / name).read_bytes() for name in _names()}
    texts |= dict.fromkeys(EMPTY, b"")
    version = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:12]
    home = folder / "revert" / version
    if not (home / "revert.py").exists():
        _install(home, texts)
    return home / "revert.py"


def _names() -> list[str]:
    found = [path for name in FOLDERS for path in sorted((PACKAGE / name).glob("*.py"))]
    return [*FILES, *(str(path.relative_to(PACKAGE)) for path in found)]


def _install(home: Path, texts: dict[str, bytes]) -> None:
    """Write the copy beside its place and rename it there, so that a half one is never run."""
    draft = home.with_name(f"{home.name}.{os.getpid()}.new")
    try:
        _write_copy(draft, texts)
        reached("before-rename-revert")
        draft.rename(home)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not (home / "revert.py").exists():  # else another process was first
            raise
    reached("after-rename-revert")
    sync_folder(home.parent)


def _write_copy(draft: Path, texts: dict[str, bytes]) -> None:
    shutil.rmtree(draft, ignore_errors=True)
    for name, text in texts.items():
        _write(draft / "uncork" / name, text)
    _write(draft / "revert.py", LAUNCHER.encode())
    for place in sorted({draft, *(path.parent for path in draft.rglob("*.py"))}):
        sync_folder(place)


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def interpreter() -> str:
    """The real interpreter behind a virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def command(folder: Path, db: Path, txn: str) -> list[str]:
    """The command line that guards a hold, and, with `--now`, the one that undoes it by hand."""
    return [interpreter(), "-I", "-S", str(program(folder)), "--db", str(db), "--txn", txn]


def arm(folder: Path, db: Path, txn: str, deadline_boot_ns: int) -> str:
    """Start the timer; what it is called (`systemd:UNIT` or `process:PID:TICKS`). Raises `NotArmed`."""
    try:
        argv = command(folder, db, txn)
        if systemd():
            # A container may see the host's /run without its bus. Two timers would do no harm: one wins.
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                return _arm_systemd(argv, txn, deadline_boot_ns)
        return _arm_process(argv)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise NotArmed(str(error)) from error


def systemd() -> bool:
    """Whether systemd is the first process here and lets us make system units (sd_booted(3))."""
    return Path("/run/systemd/system").is_dir() and os.geteuid() == 0 and bool(shutil.which("systemd-run"))


def systemd_argv(argv: list[str], txn: str, left_s: float) -> list[str]:
    """The call that makes the transient timer. Timers are a minute vague unless AccuracySec says otherwise."""
    return [
        "systemd-run",
        f"--unit=uncork-revert-{txn}",
        f"--on-active={max(1, round(left_s))}s",
        "--timer-property=AccuracySec=1s",
        "--description=uncork: undo changes that were not confirmed",
        "--collect",
        "--quiet",
        *argv,
    ]


def _arm_systemd(argv: list[str], txn: str, deadline_boot_ns: int) -> str:
    left_s = (deadline_boot_ns - boot_ns()) / 1e9
    subprocess.run(
        systemd_argv(argv, txn, left_s), check=True, timeout=ARM_LIMIT_S, capture_output=True, cwd="/"
    )
    return f"systemd:uncork-revert-{txn}.timer"


def _arm_process(argv: list[str]) -> str:
    with subprocess.Popen(
        [*argv, "--detach"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    ) as launched:
        assert launched.stdout is not None
        ready, _, _ = select.select([launched.stdout], [], [], ARM_LIMIT_S)
        said = launched.stdout.readline().decode() if ready else ""
    words = said.split()
    if len(words) != 3 or words[0] != "armed":
        raise ValueError("the guard process did not say that it is armed")
    return f"process:{words[1]}:{words[2]}"


def armed(guard: str) -> bool:
    """Whether the timer of a hold still stands."""
    how, _, name = guard.partition(":")
    if how == "process":
        pid, _, ticks = name.partition(":")
        return start_ticks(int(pid)) == int(ticks)
    if how == "systemd":
        asked = subprocess.run(["systemctl", "is-active", "--quiet", name], check=False, timeout=ARM_LIMIT_S)
        return asked.returncode == 0
    return False


def disarm(guard: str) -> None:
    """Stop a systemd timer that has nothing left to do; a guard process sees that by itself."""
    how, _, name = guard.partition(":")
    if how == "systemd":
        subprocess.run(
            ["systemctl", "stop", name], check=False, timeout=ARM_LIMIT_S, capture_output=True, cwd="/"
        )
