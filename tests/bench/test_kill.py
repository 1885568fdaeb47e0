"""kill -9 between any two writes of a run: no finished level is lost, and the run goes on to be whole."""

import json
import os
import signal

import pytest
from tests.bench.test_suite import FAST, spec_for

from uncork.bench.reference_server import reference_server
from uncork.bench.spec import parse_levels
from uncork.bench.store import Store
from uncork.bench.suite import run_suite

LEVELS = {"levels": parse_levels("1,2"), "requests": 3, "repeats": 1, "output_len": 4}


@pytest.fixture(scope="module")
def url():
    with reference_server(**FAST) as server:
        yield server.url


def run_until(url, out, place: int | None) -> tuple[bool, int]:
    """Run in a process of its own that is killed before its write number `place`; whether it was, and its writes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        count = 0

        def counted(real):
            def call(*args, **more):
                nonlocal count
                count += 1
                if count == place:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **more)

            return call

        os.fsync, os.replace, os.truncate = map(counted, (os.fsync, os.replace, os.truncate))
        try:
            run_suite(spec_for(url, **LEVELS), out=out)
        finally:
            os.write(writing, str(count).encode())
            os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as told:
        return os.WIFSIGNALED(status), int(told.read() or 0)


def test_a_kill_before_each_write(url, tmp_path):
    killed, writes = run_until(url, tmp_path / "whole", None)
    assert not killed
    assert writes >= 8

    for place in range(1, writes + 1):
        out = tmp_path / str(place)
        killed, _ = run_until(url, out, place)
        kept = Store(out).finished()
        run = run_suite(spec_for(url, **LEVELS), out=out)
        lines = [
            json.loads(line) for line in (out / "requests.jsonl").read_text(encoding="utf-8").splitlines()
        ]

        assert killed
        assert {(level.level, level.repeat): level for level in run.levels}.items() >= kept.items()
        assert run.finished
        assert sorted((line["level"], line["index"]) for line in lines) == [
            (level, index) for level in ("c1", "c2") for index in range(3)
        ]


def test_a_second_kill_while_it_goes_on_costs_nothing_either(url, tmp_path):
    run_until(url, tmp_path, 8)
    first = Store(tmp_path).finished()
    run_until(url, tmp_path, 4)
    second = Store(tmp_path).finished()
    run = run_suite(spec_for(url, **LEVELS), out=tmp_path)

    assert first
    assert second.items() >= first.items()
    assert {(level.level, level.repeat): level for level in run.levels}.items() >= second.items()
