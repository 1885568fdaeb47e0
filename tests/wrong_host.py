"""A fast real server for the loop, and a host with one setting wrong."""

import fcntl
import os
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
def strict_overcommit() -> Iterator[str]:
    """vm.overcommit_memory set to 2, a P1 of the catalogue, with a ratio so high that nothing is refused."""
    if os.geteuid() != 0 or not os.access(OVERCOMMIT, os.W_OK):
        pytest.skip("needs root and a writable /proc/sys")
    with LOCK.open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other runs of these tests on this host wait here
        yield from _planted()


def _planted() -> Iterator[str]:
    ratio, former = RATIO.read_text(encoding="ascii"), OVERCOMMIT.read_text(encoding="ascii")
    if former.strip() == "2":
        pytest.skip("this host has strict accounting already")
    RATIO.write_text("10000", encoding="ascii")
    OVERCOMMIT.write_text("2", encoding="ascii")
    try:
        yield "2"
    finally:
        OVERCOMMIT.write_text(former, encoding="ascii")
        RATIO.write_text(ratio, encoding="ascii")
