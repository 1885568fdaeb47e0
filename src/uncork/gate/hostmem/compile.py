"""The machine's own C compiler: text to a shared library, kept in the state folder."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from uncork.errors import UncorkError
from uncork.state import state_dir

FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-pthread")
COMPILE_TIMEOUT_S = 60


def compiler() -> str | None:
    """The C compiler that would be used: `CC`, then cc, gcc, clang."""
    named = os.environ.get("CC")
    return next(
        (path for name in (named, "cc", "gcc", "clang") if name and (path := shutil.which(name))), None
    )


def build(source: str, name: str, *, cache: Path | None = None) -> Path | None:
    """Compile C text to a shared library, once per text, compiler and CPU; None where it cannot be done."""
    cc = compiler()
    if cc is None:
        return None
    try:
        folder = (cache or state_dir()) / "cache"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        said = _run(cc, "--version")
        # -march=native: a library built on one CPU may hold instructions that another lacks.
        about = source.encode() + said + " ".join(FLAGS).encode() + _cpu_flags()
        library = folder / f"{name}-{hashlib.sha256(about).hexdigest()[:16]}.so"
        if not library.exists():
            _compile(cc, source, library)
    except (OSError, subprocess.SubprocessError, UncorkError):
        return None
    return library


def _compile(cc: str, source: str, library: Path) -> None:
    code = library.with_suffix(f".{os.getpid()}.c")
    fresh = code.with_suffix(".so")
    code.write_text(source, encoding="utf-8")
    try:
        _run(cc, *FLAGS, str(code), "-o", str(fresh))
        fresh.replace(library)
    finally:
        code.unlink(missing_ok=True)
        fresh.unlink(missing_ok=True)


def _run(*argv: str) -> bytes:
    return subprocess.run(argv, capture_output=True, timeout=COMPILE_TIMEOUT_S, check=True).stdout


def _cpu_flags() -> bytes:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return b""
    return next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "").encode()
