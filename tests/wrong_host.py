"""A fast real server for the loop, and a host with one setting wrong."""

import contextlib
import fcntl
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from uncork.bench.reference_server import reference_server

OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
LOCK = Path(tempfile.gettempdir()) / "uncork-tests-host.lock"
RATIO = Path("/proc/sys/vm/overcommit_ratio")


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The project's own paced server: a first token after 5 ms, then one a millisecond."""
    with reference_server(ttft_us=5_000, itl_us=1_000) as server:
        yield server.url


@pytest.fixture
def strict_overcommit(tmp_path: Path) -> Iterator[str]:
    """vm.overcommit_memory set to 2, a P1 of the catalogue, with a ratio so high that nothing is refused."""
    if os.geteuid() != 0 or not os.access(OVERCOMMIT, os.W_OK):
        pytest.skip("needs root and a writable /proc/sys")
    with LOCK.open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other runs of these tests on this host wait here
        yield from _planted(tmp_path)


def _planted(states: Path) -> Iterator[str]:
    ratio, former = RATIO.read_text(encoding="ascii"), OVERCOMMIT.read_text(encoding="ascii")
    if former.strip() == "2":
        pytest.skip("this host has strict accounting already")
    RATIO.write_text("10000", encoding="ascii")
    OVERCOMMIT.write_text("2", encoding="ascii")
    try:
        yield "2"
    finally:
        _end_holds(states)
        OVERCOMMIT.write_text(former, encoding="ascii")
        RATIO.write_text(ratio, encoding="ascii")


def _end_holds(states: Path) -> None:
    """Put back what a test that failed has left held: its guard would write the wrong value again after us."""
    for path in states.rglob("state.db"):
        with contextlib.suppress(sqlite3.Error):
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                held = db.execute("SELECT 1 FROM hold WHERE state IN ('open', 'undoing')").fetchone()
            if held:
                env = os.environ | {"UNCORK_STATE": str(path.parent)}
                subprocess.run([sys.executable, "-m", "uncork.cli.main", "rollback"], env=env, check=False)
