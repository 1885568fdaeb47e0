"""The event loop of the load generator: one thread, one epoll, plain sockets.

It does as little as possible while tokens arrive: read, keep the bytes and the kernel's stamp. Because the
stamp is the kernel's, the loop may look late on purpose (a tick of at most 2 ms serves many sockets in one
wake-up) and may take apart ended answers between looks; neither moves a measured time. What it could not
look at for too long is kept in `blind`, and its own lag is measured at every turn.
"""

from __future__ import annotations

import gc
import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from uncork.bench.digest import Digest
from uncork.bench.gauge import BLIND_NS, Gauge, LoopFigures
from uncork.bench.http1 import Head, ended, parse_head
from uncork.bench.plain import TRIES, Plain, latest_events
from uncork.bench.pool import Pool
from uncork.bench.reads import SLEEP_NS, Left, open_reads, sleep_until
from uncork.bench.records import Exchange, Record
from uncork.bench.sending import Job, LoopPlan, Progress
from uncork.bench.sockets import CONTROL_BYTES, READ_BYTES, Connection, user_stamp

IN, OUT = select.EPOLLIN, select.EPOLLOUT
HUNG_UP = select.EPOLLRDHUP | select.EPOLLHUP
TICK_FROM = 8  # connections; below, a wake-up per token costs little and a tick gains nothing
LOOK_NS, LOOK_OFTEN_NS = 500_000_000, 100_000_000


class Loop:
    """Sends jobs over a pool and gives every ended exchange to `keep`, which makes and stores its record.

    `shape` finds the bytes around the text of a plain token event (plain.py), None to keep all bytes.
    """

    def __init__(
        self,
        plan: LoopPlan,
        pool: Pool,
        jobs: Iterator[Job],
        keep: Callable[[Exchange, int, list[tuple[int, int]]], Record],
        shape: Callable[[bytes], tuple[bytes, bytes] | None] | None = None,
        progress: Progress = lambda ended, failed, in_flight: None,
    ) -> None:
        self.plan = plan
        self.pool = pool
        self.jobs = jobs
        self.shape = shape
        self.progress = progress
        self.figures = LoopFigures()
        self.gauge = Gauge(self.figures)
        self.reads = open_reads(pool, self.gauge)
        self.figures.reads = self.reads.kind
        self.digest = Digest(self.gauge, keep)
        self.due: deque[tuple[int, Connection | None]] = deque()
        self.ahead: deque[Job] = deque()
        self.in_flight = 0
        self.ended = 0
        self.failed = 0
        self.stop_ns = 0
        self.next_look_ns = 0
        self.no_more_jobs = False

    def run(self) -> LoopFigures:
        """Send everything, collect everything; returns when nothing is left or the limit has passed."""
        gc.disable()
        try:
            self.ahead.extend(islice(self.jobs, max(self.plan.concurrency, 64)))
            while (wait_ns := self.plan.start_at_ns - time.monotonic_ns()) > 0:
                time.sleep(wait_ns / 1e9)
            cpu_ns, thread_ns = time.process_time_ns(), time.thread_time_ns()
            self._start()
            self._turn_until_done()
            self.figures.ended_ns = time.monotonic_ns()
            self.digest.take_apart(until_ns=None)
            self.figures.cpu_ns = time.process_time_ns() - cpu_ns
            self.figures.thread_ns = time.thread_time_ns() - thread_ns
        finally:
            gc.enable()
            self.reads.close()
        return self.figures

    def _start(self) -> None:
        now = self.figures.started_ns = time.monotonic_ns()
        self.stop_ns = now + int(self.plan.limit_s * 1e9)
        self.next_look_ns = now + LOOK_OFTEN_NS
        if self.plan.arrivals_ns is None:
            slots = self.pool.take_all()
            step = self.plan.ramp_ns // max(1, len(slots))
            self.due.extend((now + i * step, link) for i, link in enumerate(slots))
        else:
            self.due.extend((now + at, None) for at in self.plan.arrivals_ns)

    def _turn_until_done(self) -> None:
        """Wait, read, take apart. With few streams every turn finds cold caches, so it does nothing needless."""
        due, digest, reads = self.due, self.digest, self.reads
        while self.in_flight or due:
            now = time.monotonic_ns()
            if (due or digest.waiting or now >= self.next_look_ns) and not self._prepare(now):
                break
            tick_ns = digest.tick_ns if digest.tick_ns > SLEEP_NS and self.in_flight >= TICK_FROM else 0
            left = reads.turn(now if digest.waiting else self._or_due(self.next_look_ns), tick_ns)
            if left:
                self._look_at(left)
            if tick_ns:
                self._idle(reads.back_ns + tick_ns)
            elif digest.waiting:
                digest.take_apart(until_ns=self._or_due(reads.back_ns + BLIND_NS // 4))

    def _prepare(self, now: int) -> bool:
        """What is due before the next wait; False where the level is over before its end."""
        self._send_due(now)
        if now < self.next_look_ns:
            return True
        self._look_round(now)
        return not (self.figures.died or (now > self.stop_ns and self._cancel_overdue(now)))

    def _or_due(self, until: int) -> int:
        """That time, or the next send if it is earlier."""
        return min(until, self.due[0][0]) if self.due else until

    def _idle(self, until: int) -> None:
        """Use the rest of a tick: take apart what has ended, then sleep."""
        until = self._or_due(until)
        if self.digest.waiting:
            self.digest.take_apart(until_ns=until)
        sleep_until(until)

    def _look_at(self, left: list[Left]) -> None:
        """The reads that are no plain events: heads, ends, errors, several events or pieces of them."""
        first_stamp = b""
        for link, mask, data, stamp in left:
            self.reads.collect(link)
            if data is None:
                stamp = self._read_any(link, mask)
            elif isinstance(data, OSError):
                self._failed(link, data)
            elif not data:
                self._closed(link)
            else:
                link.stamps += stamp
                self._keep(link, data, stamp)
            first_stamp = first_stamp or stamp
        self.gauge.first_stamp(first_stamp)

    def _read_any(self, link: Connection, mask: int) -> bytes:
        """Any read: a head, TLS, an answer whose plain event is not known, the end of a connection. Its stamp."""
        if mask & OUT and (not self._writable(link) or mask == OUT):
            return b""
        try:
            data, control, _, _ = link.recvmsg(READ_BYTES, CONTROL_BYTES)
        except OSError as error:
            self._failed(link, error)
            return b""
        exchange = link.exchange
        if not data:
            self._closed(link)
            return b""
        if mask & HUNG_UP or len(data) == READ_BYTES:
            self.pool.look_again(link)
        stamp: bytes = control[0][2] if control else user_stamp()
        if link.tls is not None:
            data = link.tls.decrypt(data)
        if exchange is None or not data:
            return b""
        exchange.stamps += stamp
        if link.head is None:
            self._head(link, data, stamp)
        else:
            self._keep(link, data, stamp)
        return stamp

    def _failed(self, link: Connection, error: OSError) -> None:
        if not isinstance(error, BlockingIOError):
            self._lost(link, error.strerror or type(error).__name__)

    def _head(self, link: Connection, data: bytes, stamp: bytes) -> None:
        """Bytes of an answer whose head is not whole yet."""
        exchange = link.exchange
        assert exchange is not None
        try:
            link.head = parse_head(b"".join([*exchange.parts, data]))
        except ValueError as error:
            exchange.keep(data)
            self._end(link, "garbage", str(error), reuse=False)
            return
        if link.head is None:
            exchange.keep(data)
        else:
            self._keep(link, data, stamp)

    def _keep(self, link: Connection, data: bytes, stamp: bytes) -> None:
        """A read of an answer that is not one plain event: several of them, or bytes to be decoded at its end."""
        exchange, head = link.exchange, link.head
        assert exchange is not None and head is not None
        before, events, behind = self._cut(link, head, data)
        if before:
            exchange.keep(before)
        exchange.stamps += stamp * (events if before else events - 1)  # one stamp: they came together
        if behind:
            exchange.stamps += stamp
            exchange.keep(behind)
        if not head.chunked or data[-4:] == b"\r\n\r\n" or len(data) < 5:
            self._maybe_ended(link)

    def _cut(self, link: Connection, head: Head, data: bytes) -> tuple[bytes, int, bytes]:
        """Plain events and the bytes before and behind; the first of a new kind stays with those before."""
        if link.plain is not None:
            return link.plain.cut(data)
        if self.shape is None or not head.chunked or link.tries >= TRIES or link.tls is not None:
            return data, 0, b""
        link.tries += 1
        around = next(filter(None, map(self.shape, latest_events(data))), None)
        if around is None:
            return data, 0, b""
        assert link.exchange is not None
        link.plain, link.stamps = Plain(*around), link.exchange.stamps
        self.reads.arm(link)
        return link.plain.cut(data, keep=1)

    def _maybe_ended(self, link: Connection) -> None:
        assert link.exchange is not None and link.head is not None
        if ended(link.exchange.parts, link.head):
            self._end(link, "", "", reuse=link.head.keep_alive)

    def _closed(self, link: Connection) -> None:
        exchange = link.exchange
        head = link.head
        if exchange is None:
            self.pool.drop(link)
        elif head is not None and not head.chunked and head.content_length < 0:
            self._end(link, "", "", reuse=False)  # a body that ends with the connection
        elif exchange.parts:
            self._end(link, "truncated", "the connection closed in the middle", reuse=False)
        else:
            self._lost(link, "the server closed the connection")

    def _lost(self, link: Connection, why: str) -> None:
        """A connection broke. A kept-alive one that broke before its first byte is tried once more anew."""
        exchange = link.exchange
        if exchange is None:
            self.pool.drop(link)
        elif not exchange.parts and link.used > 1 and not exchange.reconnected and link.unsent is None:
            exchange.reconnected = True
            self.pool.one_shot.add(link.endpoint)
            wire = exchange.wire
            fresh = self._replace(link)
            if fresh is None:
                self._over(exchange, "connect", self.figures.died)
                return
            fresh.exchange = exchange
            self._write(fresh, wire)
        else:
            self._end(link, "reset", why, reuse=False)

    def _replace(self, link: Connection) -> Connection | None:
        self.pool.drop(link)
        try:
            return self.pool.reopen(link.endpoint)
        except OSError as error:
            self.figures.died = self.pool.describe(link.endpoint, error)
            return None

    def _end(self, link: Connection, outcome: str, detail: str, *, reuse: bool) -> None:
        """An exchange is over; its slot goes on with the next job at once."""
        exchange = link.exchange
        assert exchange is not None
        self.reads.collect(link)
        self.reads.disarm(link)
        link.exchange = link.head = link.unsent = link.plain = None
        link.tries = 0
        self._over(exchange, outcome, detail)
        if not reuse or link.endpoint in self.pool.one_shot:
            fresh = None if self._nothing_left() else self._replace(link)
            if fresh is None:
                self.pool.drop(link)
                return
            link = fresh
        if self.plan.arrivals_ns is None:
            self._next(link, time.monotonic_ns())
        else:
            self.pool.rest(link)

    def _over(self, exchange: Exchange, outcome: str, detail: str) -> None:
        exchange.outcome, exchange.detail = outcome, detail
        exchange.wire = b""
        self.in_flight -= 1
        self.ended += 1
        self.failed += bool(outcome)
        self.digest.waiting.append(exchange)

    def _nothing_left(self) -> bool:
        return not self.ahead and (self.no_more_jobs or not self._fetch())

    def _fetch(self) -> bool:
        job = next(self.jobs, None)
        if job is None:
            self.no_more_jobs = True
            return False
        self.ahead.append(job)
        return True

    def _send_due(self, now: int) -> None:
        due = self.due
        while due and due[0][0] <= now:
            intended, link = due.popleft()
            if link is None:
                try:
                    link = self.pool.take()
                except OSError as error:
                    self.figures.died = self.pool.describe(0, error)
                    due.clear()
                    return
            self._next(link, intended)

    def _next(self, link: Connection, intended: int) -> None:
        if self._nothing_left() or (intended > self.stop_ns and self.plan.arrivals_ns is None):
            self.figures.limited |= intended > self.stop_ns
            return
        index, body, asked, target = self.ahead.popleft()
        exchange = Exchange(index, target, asked, intended)
        exchange.endpoint = link.endpoint
        exchange.first_connect = link.inline
        link.inline = False
        link.exchange = exchange
        self.in_flight += 1
        self._write(link, self.pool.wire(link.endpoint, body))

    def _write(self, link: Connection, wire: bytes) -> None:
        exchange = link.exchange
        assert exchange is not None
        exchange.wire = wire
        link.used += 1
        data = link.tls.encrypt(wire) if link.tls is not None else wire
        exchange.sent_ns = time.monotonic_ns()
        try:
            sent = link.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._lost(link, error.strerror or type(error).__name__)
            return
        if sent < len(data):
            link.unsent = memoryview(data)[sent:]
            self.pool.epoll.modify(link.fd, IN | OUT)  # until it is out, not only at an edge

    def _writable(self, link: Connection) -> bool:
        """Send the rest of a long request; False where that broke the connection."""
        if link.unsent is not None:
            try:
                link.unsent = link.unsent[link.sock.send(link.unsent) :]
            except BlockingIOError:
                return True
            except OSError as error:
                link.unsent = None
                self._lost(link, error.strerror or type(error).__name__)
                return False
            if len(link.unsent):
                return True
            link.unsent = None
        self.pool.look_again(link)
        return True

    def _look_round(self, now: int) -> None:
        """Twice a second: wall clock, stalls, progress, jobs ahead.

        More often where it matters: an open loop needs spare connections in time, a young one its tick.
        """
        often = self.plan.arrivals_ns is not None or not self.digest.tick_known
        self.next_look_ns = now + (LOOK_OFTEN_NS if often else LOOK_NS)
        self.gauge.settle()
        self.gauge.check_clock()
        self.progress(self.ended, self.failed, self.in_flight)
        while len(self.ahead) < 64 and not self.no_more_jobs:
            self._fetch()
        self.pool.keep_spares(self.in_flight)
        links = list(self.pool.links.values())
        for link in links:
            self.reads.collect(link)
            self._check_stall(link, now)
        if self.ended == 0:
            self.digest.guess_tick(links[:16])

    def _check_stall(self, link: Connection, now: int) -> None:
        exchange = link.exchange
        if exchange is None:
            return
        if exchange.sent_ns and now - exchange.sent_ns > self.plan.request_timeout_s * 1e9:
            self._end(link, "timeout", f"no end after {self.plan.request_timeout_s:g} s", reuse=False)
        elif len(exchange.stamps) != link.seen or exchange.index != link.seen_index:
            link.seen, link.seen_index, link.seen_ns = len(exchange.stamps), exchange.index, now
        elif now - link.seen_ns > self.plan.stall_timeout_s * 1e9:
            self._end(link, "stalled", f"nothing came for {self.plan.stall_timeout_s:g} s", reuse=False)

    def _cancel_overdue(self, now: int) -> bool:
        """Past the limit: nothing new is sent, and after a quarter more what still runs is given up."""
        self.figures.limited = True
        self.due.clear()
        self.ahead.clear()
        self.no_more_jobs = True
        if now < self.stop_ns + int(self.plan.limit_s * 0.25e9):
            return False
        for link in list(self.pool.links.values()):
            if link.exchange is not None:
                self._end(link, "cancelled", "the level's time limit", reuse=False)
        return True
