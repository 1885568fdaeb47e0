"""What happened during a level is on the level, and what disturbed it is said in words."""

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from uncork.bench.telemetry import Telemetry
from uncork.bench.telemetry.machine import Machine, _disturbances
from uncork.bench.telemetry.metrics_page import MetricsPage, parse_metrics

PAGE = """# HELP vllm:num_requests_running running
vllm:num_requests_running{model_name="m",engine="0"} 3
vllm:num_requests_running{model_name="m",engine="1"} 4
vllm:num_requests_waiting{model_name="m"} 2
vllm:num_preemptions_total{model_name="m"} %d
vllm:prefix_cache_queries_total 10
garbage line
"""


@pytest.fixture
def metrics():
    """A server whose preemption counter rises by one a scrape."""
    scrapes = 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            nonlocal scrapes
            scrapes += 1
            body = (PAGE % scrapes).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_labels_are_summed_and_garbage_is_left_out():
    page = parse_metrics(PAGE % 1)

    assert page["vllm:num_requests_running"] == 7
    assert "garbage" not in page


def test_a_preemption_during_a_level_disturbs_it(metrics):
    with Telemetry(metrics, period_s=0.01).watch("c1", 0) as reading:
        end_s = time.monotonic() + 5
        while "server" not in reading.telemetry and time.monotonic() < end_s:
            time.sleep(0.05)
            if threading.active_count() > 2:
                break

    assert reading.telemetry["server"]["preemptions"] >= 1
    assert any("preempted" in words for words in reading.disturbances)
    assert 0 <= reading.telemetry["host"]["steal_share"] <= 1


def test_a_server_without_the_page_has_no_figures():
    page = MetricsPage("http://127.0.0.1:9")
    page.begin()
    page.sample()

    assert page.end() == ({}, [])


def test_host_counters_move_with_the_work_of_this_process():
    machine = Machine()
    machine.begin()
    end_s = time.process_time() + 0.1
    while time.process_time() < end_s:
        pass
    machine.sample()

    figures, _ = machine.end()

    assert figures["seconds"] >= 0.1
    assert 0 < figures["cpu_busy_max"] <= 1


def test_steal_throttling_and_swapping_are_said():
    said = _disturbances({"steal_share": 0.1, "throttled_usec": 50_000, "pswpin": 3, "pswpout": 0})

    assert len(said) == 3
    assert _disturbances({"steal_share": 0.001}) == []
