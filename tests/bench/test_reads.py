"""The reads of the loop, in Python and in C: the same stamps, the same rest left to the loop."""

import select
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.bench.streams import DONE, END, FINISH, chunk, event

from uncork import compiler
from uncork.bench import reads
from uncork.bench.gauge import Gauge, LoopFigures
from uncork.bench.plain import Plain
from uncork.bench.pool import WATCH, Pool
from uncork.bench.reads import CompiledReads, Reads
from uncork.bench.records import Exchange
from uncork.bench.sockets import Connection, ask_for_stamps, keep_stamps_on

needs_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler here")
PLAIN = Plain(*event("@").split(b"@"))
KINDS = [pytest.param("c", marks=needs_compiler), "python"]


@contextmanager
def reading(kind, connections=1):
    """Reads of some connections that are in the middle of an answer, and the server's ends of them."""
    pool = Pool((), "/", {}, None)
    gauge = Gauge(LoopFigures())
    ends = []
    with socket.create_server(("127.0.0.1", 0)) as listener, keep_stamps_on():
        for _ in range(connections):
            client = socket.create_connection(listener.getsockname())
            ask_for_stamps(client)
            client.setblocking(False)
            ends.append(listener.accept()[0])
            link = Connection(client, 0)
            pool.links[link.fd] = link
            pool.epoll.register(link.fd, WATCH)
        made = Reads(pool, gauge) if kind == "python" else CompiledReads(pool, gauge, reads._compiled())
        for link in pool.links.values():
            link.exchange = Exchange(0, 8, 8, 0)
            link.stamps, link.plain = link.exchange.stamps, PLAIN
            made.arm(link)
        try:
            yield made, ends
        finally:
            made.close()
            for end in ends:
                end.close()
            pool.close()


def look(made, *, within_s=0.0, tick_ns=0):
    """What one turn leaves: data by connection, and how many stamps each connection has since the last look."""
    left = made.turn(time.monotonic_ns() + int(within_s * 1e9), tick_ns)
    counts = []
    for link in made.pool.links.values():
        made.collect(link)
        counts.append(len(link.stamps) // 16)
        link.stamps.clear()
    return [data for _, _, data, _ in left], counts


def seen_by(kind, pieces):
    """What is left, and how many stamps were kept, of pieces that come one after the other."""
    found = []
    with reading(kind) as (made, (end,)):
        for piece in pieces:
            end.sendall(piece)
            select.select(list(made.pool.links), [], [], 60)
            left, counts = look(made)
            events, rest = sum(counts), []
            for data in left:
                # C takes the events that a read begins with; what is left is cut by the loop.
                before, more, behind = PLAIN.cut(data) if data else (data, 0, b"")
                events += more
                rest += [piece for piece in (before, behind) if piece]
            found.append((events, rest))
            made.turn(time.monotonic_ns(), 0)
    return found


texts = st.text(st.sampled_from('ab é{}"\\\r\n:,'), max_size=12).map(
    lambda text: text.encode().decode("latin-1")
)
wire = st.one_of(
    texts.map(lambda text: chunk(event(text))),
    st.integers(1, 3).map(lambda n: chunk(event(" a")) * n),
    st.sampled_from([chunk(FINISH), chunk(DONE), END, chunk(FINISH) + END, chunk(b": ping\n\n")]),
    st.tuples(st.integers(1, 200), texts).map(lambda cut: chunk(event(cut[1]))[: cut[0]]),
    st.binary(min_size=1, max_size=200),
)


@needs_compiler
@settings(max_examples=60)
@given(st.lists(wire, min_size=1, max_size=6))
@example([chunk(event(" a"))])
@example([chunk(event(" a")) * 2 + chunk(FINISH)])
@example([chunk(event("x" * 5000))])
@example([b"0" * 6 + chunk(event(" a"))])
@example([b"\r\n", b"5", b"fffffff\r\n" + event(" a")])
def test_c_and_python_keep_and_leave_the_same(pieces):
    assert seen_by("c", pieces) == seen_by("python", pieces)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_events_are_stamped_by_the_kernel_and_not_left(kind):
    with reading(kind) as (made, (end,)):
        for _ in range(3):
            end.sendall(chunk(event(" a")))
            assert made.turn(time.monotonic_ns() + 20_000_000, 0) == []
        (link,) = made.pool.links.values()
        made.collect(link)
        made.gauge.settle()

        stamps = memoryview(link.stamps).cast("q").tolist()
        assert len(stamps) == 6
        assert all(abs(time.time() - seconds) < 5 for seconds in stamps[::2])
        assert len(made.gauge.figures.lags_ns) == 3
        assert all(0 <= lag < 5e9 for lag in made.gauge.figures.lags_ns)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tick_ns", [0, 2_000_000])
def test_it_goes_on_by_itself_until_something_is_left_or_the_time_has_come(kind, tick_ns):
    """A process of its own sends: a token each 2 ms, then the finish."""
    sender = (
        "import socket, sys, time\n"
        "link = socket.socket(fileno=int(sys.argv[1])); token, finish = map(bytes.fromhex, sys.argv[2:])\n"
        "for _ in range(40): link.sendall(token); time.sleep(0.002)\n"
        "link.sendall(finish); sys.stdin.read()\n"
    )
    with reading(kind) as (made, (end,)):
        words = [str(end.fileno()), chunk(event(" a")).hex(), chunk(FINISH).hex()]
        with subprocess.Popen(
            [sys.executable, "-c", sender, *words], pass_fds=[end.fileno()], stdin=subprocess.PIPE
        ):
            left, stamps = [], 0
            until = time.monotonic() + 60
            while chunk(FINISH) not in b"".join(left) and time.monotonic() < until:
                more, counts = look(made, within_s=5, tick_ns=tick_ns)
                left += more
                stamps += sum(counts)
    events = b"".join(left).count(chunk(event(" a")))  # read together with the finish, on a busy machine

    assert stamps + events == 40


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_comes_and_the_time_passes(kind):
    with reading(kind) as (made, _):
        before = time.monotonic()
        assert look(made, within_s=0.0304) == ([], [0])
        assert time.monotonic() - before >= 0.0304


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_connection_and_a_reset_are_left_to_the_loop(kind):
    with reading(kind, connections=2) as (made, (first, second)):
        first.shutdown(socket.SHUT_WR)
        second.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        second.close()
        left = made.turn(time.monotonic_ns() + 1_000_000_000, 0)
        left += made.turn(time.monotonic_ns(), 0)

        masks = {link.fd: mask for link, mask, data, _ in left if data is None}
        assert list(masks) and set(masks) == set(made.pool.links)
        assert all(mask & (select.EPOLLRDHUP | select.EPOLLHUP) for mask in masks.values())


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_whose_shape_is_not_known_any_more_is_not_read(kind):
    with reading(kind) as (made, (end,)):
        (link,) = made.pool.links.values()
        made.disarm(link)
        link.plain = None
        end.sendall(chunk(event(" a")))

        assert look(made, within_s=1) == ([None], [0])


@needs_compiler
def test_more_than_the_shared_memory_holds_stays_unread_for_the_loop():
    big = b"x" * 65536
    with reading("c", connections=40) as (made, ends):
        for end in ends:
            end.sendall(big)
        left, _ = look(made, within_s=1)

    assert len(left) == 40
    assert left.count(None) == 40 - 32
    assert [data for data in left if data is not None] == [big] * 32


@needs_compiler
def test_of_a_long_answer_every_stamp_is_kept():
    with reading("c") as (made, (end,)):
        for _ in range(500):
            end.sendall(chunk(event(" a")))
            assert made.turn(time.monotonic_ns(), 0) == []
        assert look(made, within_s=0.01) == ([], [500])


def test_without_a_compiler_python_reads(monkeypatch):
    monkeypatch.setattr(reads, "_compiled", lambda: None)
    made = reads.open_reads(Pool((), "/", {}, None), Gauge(LoopFigures()))

    assert made.kind == "python"
