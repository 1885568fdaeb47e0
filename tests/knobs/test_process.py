"""Limits, CPUs and files of a real process of ours."""

import os
import resource
import subprocess

import pytest

from uncork.knobs import KNOBS
from uncork.knobs.recipes.process import start_ticks
from uncork.model.unknown import Unknown


@pytest.fixture
def child():
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_a_pattern_becomes_the_process_and_when_it_began(child):
    assert KNOBS["rlimit"].targets(f"{child.pid}:memlock") == (
        f"{child.pid}@{start_ticks(child.pid)}:memlock",
    )


def test_a_soft_limit_moves_and_returns(child):
    knob = KNOBS["rlimit"]
    (target,) = knob.targets(f"{child.pid}:nofile")
    before = knob.read(target)
    knob.write(target, "64")

    assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE)[0] == 64
    assert knob.same("64", knob.read(target))
    knob.write(target, before)
    assert knob.read(target) == before


def test_the_hard_limit_is_left_where_it_was(child):
    knob = KNOBS["rlimit"]
    hard = resource.prlimit(child.pid, resource.RLIMIT_NOFILE)[1]
    knob.write(f"{child.pid}:nofile", "64")

    assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE)[1] == hard


def test_the_command_to_paste_restores_the_limit(child):
    knob = KNOBS["rlimit"]
    before = knob.read(f"{child.pid}:nofile")
    knob.write(f"{child.pid}:nofile", "64")

    subprocess.run(["sh", "-c", knob.undo_command(f"{child.pid}:nofile", before)], check=True, timeout=30)

    assert knob.read(f"{child.pid}:nofile") == before


def test_a_reused_number_is_refused(child):
    knob = KNOBS["rlimit"]
    target = f"{child.pid}@{start_ticks(child.pid) + 1}:nofile"
    before = resource.prlimit(child.pid, resource.RLIMIT_NOFILE)

    found = knob.read(target)
    with pytest.raises(ProcessLookupError, match="reused"):
        knob.write(target, "64")

    assert isinstance(found, Unknown)
    assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE) == before


@pytest.mark.parametrize("target", ["1:speed", "self:nofile"])
def test_what_is_no_limit_is_refused(target):
    with pytest.raises(OSError):
        KNOBS["rlimit"].write(target, "64")


def test_affinity_of_every_thread_moves_and_returns(child):
    knob = KNOBS["affinity"]
    (target,) = knob.targets(str(child.pid))
    before = knob.read(target)
    one = str(min(os.sched_getaffinity(child.pid)))
    knob.write(target, one)

    assert os.sched_getaffinity(child.pid) == {int(one)}
    knob.write(target, before)
    assert knob.read(target) == before


def test_affinity_to_no_existing_cpu_is_refused(child):
    with pytest.raises(OSError):
        KNOBS["affinity"].write(str(child.pid), "4000")


def test_a_process_that_ended_has_no_targets(child):
    child.kill()
    child.wait()

    assert KNOBS["affinity"].targets(str(child.pid)) == ()
    assert KNOBS["rlimit"].targets(f"{child.pid}:memlock") == ()


def test_the_oom_score_moves_and_returns(child):
    knob = KNOBS["process"]
    (target,) = knob.targets(f"{child.pid}:oom_score_adj")
    before = knob.read(target)
    knob.write(target, "500")
    assert knob.read(target) == "500"

    knob.write(target, before)

    assert knob.read(target) == before


def test_only_known_files_of_a_process_are_written(child):
    with pytest.raises(OSError, match="not one of"):
        KNOBS["process"].write(f"{child.pid}:mem", "1")
