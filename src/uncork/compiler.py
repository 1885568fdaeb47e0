"""The machine's own C compiler: text to a library or a program, kept in the state folder."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from uncork.errors import UncorkError
from uncork.state import state_dir

FLAGS = ("-O3", "-march=native", "-fPIC", "-pthread")
COMPILE_TIMEOUT_S = 60


def compiler() -> str | None:
    """The C compiler that would be used: `CC`, then cc, gcc, clang."""
    named = os.environ.get("CC")
    return next(
        (path for name in (named, "cc", "gcc", "clang") if name and (path := shutil.which(name))), None
    )


def library(source: str, name: str, *, cache: Path | None = None) -> Path | None:
    """C text as a shared library, compiled once per text, compiler and CPU; None where that cannot be done."""
    return _build(source, f"{name}.so", (*FLAGS, "-shared"), cache)


def program(source: str, name: str, *, cache: Path | None = None) -> Path | None:
    """C text as a program, likewise."""
    return _build(source, name, FLAGS, cache)


def _build(source: str, name: str, flags: tuple[str, ...], cache: Path | None) -> Path | None:
    cc = compiler()
    if cc is None:
        return None
    try:
        folder = (cache or state_dir()) / "cache"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # -march=native: what was built on one CPU may hold instructions that another lacks.
        about = source.encode() + _of_compiler(cc) + " ".join(flags).encode() + _cpu_flags()
        path = folder / f"{hashlib.sha256(about).hexdigest()[:16]}-{name}"
        if not path.exists():
            _compile(cc, flags, source, path)
    except (OSError, subprocess.SubprocessError, UncorkError):
        return None
    return path


def _compile(cc: str, flags: tuple[str, ...], source: str, path: Path) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        subprocess.run(
            [cc, *flags, "-x", "c", "-", "-o", str(fresh)],
            input=source.encode(),
            capture_output=True,
            timeout=COMPILE_TIMEOUT_S,
            check=True,
        )
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _of_compiler(cc: str) -> bytes:
    """Which file it is, and of when: asking it for its version would cost each start a process."""
    found = os.stat(cc)
    return f"{os.path.realpath(cc)} {found.st_size} {found.st_mtime_ns}".encode()


def _cpu_flags() -> bytes:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return b""
    return next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "").encode()
