"""Open loops, several processes, TLS, sockets without kernel stamps, broken-off connections."""

import os
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from tests.bench.streams import END, FINISH, HEAD, ROLE, answer, chunk, event, usage

from uncork import compiler
from uncork.bench import api, reads, sockets
from uncork.bench.clock import realtime_offset_ns, stamp_ns, to_monotonic
from uncork.bench.endpoint import parse_endpoints
from uncork.bench.gauge import BLIND_NS, SAMPLES, Gauge, LoopFigures
from uncork.bench.level import prepare, run_level
from uncork.bench.loop import Loop
from uncork.bench.pool import Pool
from uncork.bench.records import Reader, read_exchange
from uncork.bench.reference_server import reference_server
from uncork.bench.sending import LoopPlan
from uncork.bench.sockets import user_stamp
from uncork.bench.spec import Level, SuiteSpec
from uncork.errors import BadInput

FAST = {"ttft_us": 2_000, "itl_us": 1_000}
C = pytest.param("c", marks=pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler here"))


@pytest.fixture(params=[C, "python"], autouse=True)
def reader(request, monkeypatch):
    """Every test with the reads in C and with those in Python (workers are processes and choose by themselves)."""
    if request.param == "python":
        monkeypatch.setattr(reads, "_compiled", lambda: None)
    return request.param


def run(url, level, **fields):
    fields = {"input_len": 8, "output_len": 8, "repeats": 1, "processes": 1, **fields}
    spec = SuiteSpec(endpoint=url, levels=(level,), **fields)
    return run_level(prepare(spec), level, 0, 0, 0, lambda ended, failed, in_flight: None)


@pytest.mark.parametrize("arrival", ["constant", "poisson", "gamma"])
def test_an_open_loop_sends_at_its_own_times(arrival):
    with reference_server(**FAST) as server:
        outcome = run(server.url, Level(rate_s=200.0, arrival=arrival, requests=40))
    intended = [record.intended_ns for record in outcome.records]

    assert intended == sorted(intended)
    assert all(record.sent_ns >= record.intended_ns for record in outcome.records)
    assert outcome.result.completed == 40
    assert outcome.result.ttft_intended_ms.n == 40
    assert outcome.result.ttft_intended_ms.min >= outcome.result.ttft_ms.min
    assert outcome.result.client.dispatch_late_p99_ms is not None


def test_an_open_loop_does_not_wait_for_answers():
    with reference_server(ttft_us=1_000_000, itl_us=1_000) as server:
        outcome = run(server.url, Level(rate_s=100.0, arrival="constant", requests=20))
    sent = [record.sent_ns for record in outcome.records]
    first_answer = min(record.event_ns[0] for record in outcome.records)

    assert sum(at < first_answer for at in sent) >= 15


@pytest.mark.parametrize(
    "level", [Level(concurrency=6, requests=24), Level(rate_s=100.0, arrival="poisson", requests=24)]
)
def test_two_processes_send_each_request_once(level):
    with reference_server(**FAST) as server:
        outcome = run(server.url, level, processes=2)

    assert [record.index for record in outcome.records] == list(range(24))
    assert (outcome.result.completed, outcome.result.client.processes) == (24, 2)
    assert outcome.result.client.stamp_source == "kernel"


def test_tls(tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)),
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("openssl makes no certificate here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with reference_server(**FAST) as server, tls_front(server.url, context) as url:
        outcome = run(url, Level(concurrency=4, requests=12), insecure=True)

    assert (outcome.result.completed, outcome.result.output_tokens) == (12, 96)
    assert outcome.result.client.stamp_source == "kernel"


class tls_front:
    """A TLS front that passes bytes to and from a plain server, a thread a direction."""

    def __init__(self, url, context):
        self.port = int(url.rsplit(":", 1)[1])
        self.context = context
        self.listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return f"https://127.0.0.1:{self.listener.getsockname()[1]}"

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                raw, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(raw,), daemon=True).start()

    def serve(self, raw):
        # A client that goes away between two requests is no fault of the front.
        with raw, socket.create_connection(("127.0.0.1", self.port)) as back:
            try:
                with self.context.wrap_socket(raw, server_side=True) as front:
                    threading.Thread(target=self.copy, args=(front, back), daemon=True).start()
                    while data := back.recv(65536):
                        front.sendall(data)
            except OSError:
                pass

    def copy(self, front, back):
        try:
            while data := front.recv(65536):
                back.sendall(data)
            back.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def test_without_kernel_stamps_our_own_are_named(monkeypatch):
    monkeypatch.setattr(sockets, "ask_for_stamps", lambda sock: False)
    with reference_server(**FAST) as server:
        outcome = run(server.url, Level(concurrency=2, requests=6))

    assert outcome.result.client.stamp_source == "user"
    assert {record.stamp for record in outcome.records} == {"user"}
    assert outcome.result.completed == 6
    assert outcome.result.client.lag_p99_ms is None


def test_a_long_request_is_sent_in_pieces():
    with reference_server(**FAST) as server:
        outcome = run(server.url, Level(concurrency=2, requests=4), input_len=1_000_000)

    assert outcome.result.completed == 4
    assert outcome.result.input_tokens >= 4 * 1_000_000


def test_stamps_come_onto_the_monotonic_clock():
    offset = realtime_offset_ns()
    kernel = bytearray(b"".join(n.to_bytes(8, "little") for n in (1_700_000_000, 5, 1_700_000_001, 7)))
    own = bytearray(b"".join(n.to_bytes(8, "little") for n in (0, 42)))

    assert to_monotonic(kernel, offset)[0].tolist() == [
        1_700_000_000_000_000_005 - offset,
        1_700_000_001_000_000_007 - offset,
    ]
    assert to_monotonic(kernel, offset)[1] is True
    assert to_monotonic(own, offset) == (to_monotonic(own, 0)[0], False)
    assert to_monotonic(own, offset)[0].tolist() == [42]
    assert stamp_ns(kernel[:16]) == 1_700_000_000_000_000_005


def test_a_long_turn_makes_the_loop_blind():
    gauge = Gauge(LoopFigures())
    gauge.turned(b"", 10 * BLIND_NS, BLIND_NS + 1)
    gauge.turned(b"", 12 * BLIND_NS, BLIND_NS - 1)
    gauge.settle()

    assert gauge.blind == [(9 * BLIND_NS - 1, 10 * BLIND_NS)]
    assert gauge.figures.turn_max_ns == BLIND_NS + 1


def send_to_a_server_that_closes(reply, requests):
    """Requests to a server that closes after each answer without saying so (xllamacpp does): records and figures."""
    listener = socket.create_server(("127.0.0.1", 0))
    served = []

    def serve():
        while len(served) < requests:
            link, _ = listener.accept()
            with link:
                data = b""
                while b'"go"' not in data and (piece := link.recv(65536)):
                    data += piece
                if data:
                    served.append(data)
                    link.sendall(reply)

    threading.Thread(target=serve, daemon=True).start()
    endpoint = parse_endpoints(f"127.0.0.1:{listener.getsockname()[1]}")
    pool = Pool(endpoint, "/v1/chat/completions", {}, None)
    pool.open(1)
    dialect = api.load("chat")
    reader = Reader(dialect, "c1", 0, 0, False, True)
    kept = []

    def keep(exchange, offset_ns, blind):
        kept.append(read_exchange(exchange, reader, offset_ns, blind))
        return kept[-1]

    work = iter([(i, b'"go"', 5, 2) for i in range(requests)])
    figures = Loop(LoopPlan(concurrency=1), pool, work, keep, dialect.shape).run()
    pool.close()
    listener.close()
    return kept, figures


def test_a_connection_lost_between_requests_is_opened_again():
    kept, figures = send_to_a_server_that_closes(b"".join(answer([" a", " b"])), 6)

    assert [record.outcome for record in kept] == ["ok"] * 6
    assert sum("reconnected" in record.flags for record in kept) <= 2
    assert figures.died == ""


def test_an_answer_longer_than_a_read_and_the_end_behind_it_are_both_seen():
    """Poll names a socket once an arrival: what one read leaves must be asked for."""
    kept, figures = send_to_a_server_that_closes(b"".join(answer([" a"] * 3000)), 3)

    assert [(record.outcome, len(record.event_ns)) for record in kept] == [("ok", 3000)] * 3
    assert figures.ended_ns - figures.started_ns < 5e9


def test_the_first_word_after_the_reasoning_is_found_however_much_comes_at_once():
    thought = chunk(event(" hm").replace(b'"content"', b'"reasoning_content"'))
    reply = (
        HEAD + chunk(ROLE) + thought * 7 + chunk(event(" a")) * 9 + chunk(FINISH) + chunk(usage(5, 16)) + END
    )
    kept, _ = send_to_a_server_that_closes(reply, 2)

    assert [(r.outcome, len(r.event_ns), r.first_answer, r.output_tokens) for r in kept] == [
        ("ok", 16, 7, 16)
    ] * 2
    assert [r.merged for r in kept] == [15, 15]


def test_of_very_many_turns_a_sample_is_kept_and_the_longest():
    gauge = Gauge(LoopFigures())
    for start in range(0, 200_000, 100):
        for n in range(start, start + 100):
            gauge.turned(user_stamp(), n, n)
        gauge.settle()
    lengths = sorted(gauge.figures.turns_ns)

    assert 10_000 < len(lengths) <= SAMPLES
    assert gauge.figures.turn_max_ns == 199_999
    assert abs(lengths[len(lengths) // 2] - 100_000) < 1_000  # the whole time is in it, evenly


@pytest.mark.parametrize("text", ["", "ftp://x", "http://", "http://h:99999", "http://[::1"])
def test_what_is_no_address_is_said_so(text):
    with pytest.raises(BadInput, match="nothing was sent"):
        parse_endpoints(text)


def test_addresses():
    one, two = parse_endpoints("https://h/base/v1/, [::1]:8000")

    assert (one.url, one.port, one.tls, one.base) == ("https://h:443/base", 443, True, "/base")
    assert (two.authority, two.tls) == ("[::1]:8000", False)


def test_the_client_starts_cheaply():
    """CPU of a whole process that imports the client and asks one request: torch and its like stay out."""
    program = "import uncork.bench.suite, uncork.bench.level, sys; print(len(sys.modules))"
    before = os.times()
    done = subprocess.run(
        [Path(os.sys.executable), "-c", program], capture_output=True, text=True, check=True
    )
    after = os.times()

    assert int(done.stdout) < 260
    assert after.children_user - before.children_user < 2.0
