"""The official client over both transports: stdio, and streamable HTTP on loopback behind a token."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

UNCORK = [sys.executable, "-m", "uncork.cli.main"]


@contextmanager
def served(tmp_path, *options):
    """`uncork mcp --http` in a process of its own; its URL and token."""
    argv = [*UNCORK, "mcp", "--http", "--json", *options]
    environment = {"PATH": "/usr/bin:/bin", "UNCORK_STATE": str(tmp_path / "state")}
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        try:
            lines = ""
            while True:  # one JSON value, printed over several lines
                line = process.stdout.readline().decode()
                assert line, "the server ended before it told where it listens"
                lines += line
                try:
                    said = json.loads(lines)
                except ValueError:
                    continue
                break
            if "token_file" in said:
                assert "token" not in said
                said["token"] = Path(said["token_file"]).read_text(encoding="ascii").strip()
            yield said["url"], said["token"]
        finally:
            process.terminate()


async def look_around(client: Client) -> set[str]:
    """List the tools and make two calls; the names of the tools."""
    tools = {tool.name for tool in (await client.list_tools()).tools}
    found = await client.call_tool("audit_start", {})
    assert not found.is_error, found.content
    assert found.structured_content["counts"]["pass"] > 0
    missing = await client.call_tool("plan_show", {})
    assert missing.is_error and "Next: uncork run" in missing.content[0].text
    return tools


def test_the_official_client_talks_over_standard_input_and_output(tmp_path):
    async def main() -> set[str]:
        server = StdioServerParameters(
            command=UNCORK[0], args=[*UNCORK[1:], "mcp"], env={"UNCORK_STATE": str(tmp_path / "state")}
        )
        async with Client(server) as client:
            return await look_around(client)

    tools = anyio.run(main)

    assert len(tools) == 12 and "step_start" not in tools


def test_the_official_client_talks_over_http_with_the_token(tmp_path):
    async def main(url: str, token: str) -> set[str]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            return await look_around(client)

    with served(tmp_path, "--allow-apply") as (url, token):
        tools = anyio.run(main, url, token)

    assert len(tools) == 16 and "step_start" in tools


def test_a_token_that_is_kept_in_a_file_is_good_after_the_next_start(tmp_path):
    def asked(url: str, token: str) -> int:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        return httpx2.post(
            url, headers={"Authorization": f"Bearer {token}"}, json=body, timeout=60
        ).status_code

    with served(tmp_path, "--token-file", str(tmp_path / "token")) as (url, token):
        assert asked(url, "another") == 401
        assert asked(url, token) != 401
    with served(tmp_path, "--token-file", str(tmp_path / "token")) as (url, again):
        assert again == token
        assert asked(url, token) != 401


def test_two_clients_at_once_see_one_plan(tmp_path):
    """What one does to the plan, the other sees; what it wants from an older revision is refused."""

    async def main(url: str, token: str) -> tuple[str, str]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http)) as one,
            Client(streamable_http_client(url, http_client=http)) as two,
        ):
            plan = (await one.call_tool("plan_draft", {"concurrency": "1"})).structured_content
            seen = (await two.call_tool("plan_show", {})).structured_content
            assert seen["id"] == plan["id"]
            ended: dict[str, Any] = {}

            async def redirect(client: Client, name: str) -> None:
                said = {"op": "pause", "words": name, "expected_revision": plan["revision"]}
                ended[name] = await client.call_tool("plan_redirect", said)

            async with anyio.create_task_group() as both:
                both.start_soon(redirect, one, "one")
                both.start_soon(redirect, two, "two")
            lost = [one for one in ended.values() if one.is_error]
            assert len(lost) == 1
            state = (await two.call_tool("plan_show", {})).structured_content["state"]
            return state, lost[0].content[0].text

    with served(tmp_path) as (url, token):
        state, refused = anyio.run(main, url, token)

    assert state == "paused"
    assert "stale-revision: " in refused


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Basic {token}"}, 401),
        ({"Authorization": "Bearer {token}", "Host": "evil.example:80"}, 421),
        ({"Authorization": "Bearer {token}", "Origin": "http://evil.example"}, 403),
    ],
)
def test_http_without_the_token_or_from_elsewhere_is_refused(http_server, headers, status):
    url, token = http_server
    headers = {name: value.replace("{token}", token) for name, value in headers.items()}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}

    answer = httpx2.post(url, headers=headers, json=body, timeout=60)

    assert answer.status_code == status
    assert "step_start" not in answer.text and "audit_start" not in answer.text


@pytest.fixture(scope="module")
def http_server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("mcp"), "--allow-apply") as address:
        yield address


def test_only_loopback_listens(http_server):
    assert http_server[0].startswith("http://127.0.0.1:")
