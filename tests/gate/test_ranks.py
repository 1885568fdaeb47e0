"""Processes under a deadline: one that hangs, dies or cannot be prepared costs only itself."""

import os
import select
import signal
import subprocess
import sys

import pytest

from uncork.gate.fabric import Ended, Stuck
from uncork.gate.ranks import Ranks

PROGRAM = """
import os, threading
def operations(index):
    def hang():
        threading.Event().wait()
    def die():
        os._exit(3)
    def fail():
        raise ValueError("broken")
    def echo(text, fds=()):
        return {"text": text, "pid": os.getpid(), "got": [os.read(fd, 10).decode() for fd in fds]}
    return {"hang": hang, "die": die, "fail": fail, "echo": echo}
"""


@pytest.fixture
def ranks(tmp_path):
    (tmp_path / "rank_program.py").write_text(PROGRAM)
    opened = Ranks("rank_program", 2, env={**os.environ, "PYTHONPATH": str(tmp_path)}, kill_wait_s=5)
    yield opened
    opened.close()


def test_every_rank_is_a_process_of_its_own(ranks):
    ask = {"op": "echo", "text": "hello"}

    replies = ranks.call({0: ask, 1: ask}, deadline_s=30)

    assert {reply.value["text"] for reply in replies.values()} == {"hello"}
    assert len({os.getpid(), *(reply.value["pid"] for reply in replies.values())}) == 3


def test_file_descriptors_travel_with_a_request(ranks):
    read, write = os.pipe()
    os.write(write, b"through")

    reply = ranks.call({0: {"op": "echo", "text": ""}}, deadline_s=30, fds={0: [read]})[0]

    assert reply.value["got"] == ["through"]
    os.close(read), os.close(write)


@pytest.mark.parametrize(
    ("op", "ended", "says"),
    [
        ("hang", Ended.HANG, "no answer within"),
        ("die", Ended.FAILED, "died"),
        ("fail", Ended.FAILED, "broken"),
    ],
)
def test_a_rank_that_ends_badly_is_replaced_and_the_others_are_not(op, ended, says, ranks):
    ranks.call({0: {"op": "echo", "text": ""}, 1: {"op": "echo", "text": ""}}, deadline_s=30)
    kept = ranks.pid(1)

    replies = ranks.call(
        {0: {"op": op}, 1: {"op": "echo", "text": "fine"}}, deadline_s=1 if op == "hang" else 30
    )
    again = ranks.call({0: {"op": "echo", "text": "new"}}, deadline_s=30)[0]

    assert replies[0].ended is ended
    assert says in replies[0].says
    assert (ranks.generation(0), ranks.generation(1), ranks.pid(1)) == (1, 0, kept)
    assert again.value["text"] == "new"


def test_all_bad_ranks_are_replaced_before_any_is_prepared(ranks):
    prepared = []
    ranks.on_start = lambda indices: prepared.append(list(indices))

    ranks.call({0: {"op": "hang"}, 1: {"op": "hang"}}, deadline_s=1)

    assert prepared == [[0, 1]]


def test_a_rank_that_fails_while_it_is_prepared_is_not_prepared_for_ever(ranks):
    prepared = []

    def prepare(indices):
        prepared.append(list(indices))
        ranks.call({0: {"op": "fail"}}, deadline_s=30)

    ranks.on_start = prepare
    ranks.call({0: {"op": "fail"}}, deadline_s=30)

    assert prepared == [[0]]


def test_a_rank_that_survives_sigkill_is_stuck(ranks):
    ranks._kill, ranks._kill_wait_s = (lambda pid: None), 0.1

    with pytest.raises(Stuck, match="survives SIGKILL"):
        ranks.call({0: {"op": "hang"}}, deadline_s=0.5)

    ranks._kill, ranks._kill_wait_s = (lambda pid: os.kill(pid, signal.SIGKILL)), 5


def test_ranks_end_with_their_coordinator(tmp_path):
    (tmp_path / "rank_program.py").write_text(PROGRAM)
    code = (
        "from uncork.gate.ranks import Ranks\n"
        "ranks = Ranks('rank_program', 1)\n"
        "print(ranks.call({0: {'op': 'echo', 'text': ''}}, deadline_s=30)[0].value['pid'], flush=True)\n"
        "import os; os._exit(0)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}

    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    try:
        handle = os.pidfd_open(int(done.stdout))
    except ProcessLookupError:
        return  # it has ended already

    ended, _, _ = select.select([handle], [], [], 60)

    os.close(handle)
    assert ended
