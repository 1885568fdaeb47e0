"""uncork watch: the live page is for the person who was given its address, and only reads."""

import html
import http.client
import threading
from collections.abc import Iterator

import pytest

from uncork.cli.watch import Server, serve
from uncork.errors import BadInput, NotFound
from uncork.model.plan import Kind, PlanDraft, StepDraft
from uncork.plan.store import Store, find

STEPS = (StepDraft("explore", Kind.EXPLORE, "Look at <this> host"), StepDraft("close", Kind.CLOSE, "End"))


@pytest.fixture
def store(tmp_path, monkeypatch) -> Iterator[Store]:
    monkeypatch.setenv("UNCORK_STATE", str(tmp_path))
    with Store(tmp_path) as one:
        one.create(PlanDraft("node-17", STEPS))
        yield one


@pytest.fixture
def server(store) -> Iterator[Server]:
    one = serve(None, 0)
    thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield one
    one.shutdown()
    thread.join()
    one.server_close()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    try:
        connection.request(
            method, path, headers={name.replace("_", "-"): said for name, said in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def test_the_address_with_its_token_shows_the_plan(server):
    status, text, headers = ask(server, f"/?token={server.token}")

    assert status == 200
    assert "Next: Look at &lt;this&gt; host" in text
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "script-src 'nonce-" in html.unescape(text)


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=wrong", "/body", "/body?token=wrong&seen=1"])
def test_without_the_token_there_is_nothing(server, path):
    status, text, _ = ask(server, path)

    assert status == 403
    assert "node-17" not in text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:80"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
def test_a_foreign_host_or_origin_is_refused_even_with_the_token(server, headers):
    status, text, _ = ask(server, f"/body?token={server.token}", **headers)

    assert status == 403
    assert "node-17" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_only_reads(server, method):
    status, _, _ = ask(server, f"/?token={server.token}", method)

    assert status == 501


def test_the_body_is_sent_again_only_when_something_changed(server, store):
    first, text, headers = ask(server, f"/body?token={server.token}")
    again, nothing, _ = ask(server, f"/body?token={server.token}&seen={headers['ETag']}")
    store.start(find(store.read(), "explore"))
    later, running, _ = ask(server, f"/body?token={server.token}&seen={headers['ETag']}")

    assert (first, again, later) == (200, 204, 200)
    assert "Next: Look at" in text
    assert nothing == ""
    assert "Running: Look at" in running


def test_without_a_plan_nothing_is_served(tmp_path, monkeypatch):
    monkeypatch.setenv("UNCORK_STATE", str(tmp_path))

    with pytest.raises(NotFound):
        serve(None, 0)


def test_a_port_that_cannot_be_used_is_a_sentence(server):
    with pytest.raises(BadInput, match="cannot be used"):
        serve(None, server.server_port)
