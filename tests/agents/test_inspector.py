"""The protocol's own inspector lists the tools with their schemas; skipped where it is not installed (never fetched).

`npm install -g @modelcontextprotocol/inspector` puts `mcp-inspector` on the path.
"""

import json
import shutil
import subprocess
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from tests.agents.test_mcp import READING, WRITING
from tests.agents.test_transports import UNCORK, served

INSPECTOR = shutil.which("mcp-inspector")

STRICT = ("tools/list", "--strict")  # a schema that some clients do not take is an error

pytestmark = pytest.mark.skipif(not INSPECTOR, reason="mcp-inspector is not on the path")


def inspect(*words: str) -> dict[str, Any]:
    """What `mcp-inspector --cli` prints, as an object."""
    argv = [str(INSPECTOR), "--cli", *words]
    ended = subprocess.run(argv, capture_output=True, encoding="utf-8", timeout=100, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


def listed(said: dict[str, Any]) -> set[str]:
    """The names of the tools, each of which has its schemas, a description and annotations."""
    for tool in said["tools"]:
        assert tool["description"] and tool["inputSchema"]["type"] == "object"
        assert tool["outputSchema"]["properties"]["plan"]["type"] == "string"
        assert tool["annotations"]["readOnlyHint"] is not None
    return {tool["name"] for tool in said["tools"]}


def test_it_lists_the_tools_over_standard_input_and_output(tmp_path):
    state = ("-e", f"UNCORK_STATE={tmp_path / 'state'}")

    assert listed(inspect(*state, *UNCORK, "mcp", "--method", *STRICT)) == READING


def test_it_lists_the_tools_over_http_with_the_token(tmp_path):
    with served(tmp_path, "--allow-apply") as (url, token):
        words = (url, "--transport", "http", "--header", f"Authorization: Bearer {token}")

        assert listed(inspect(*words, "--method", *STRICT)) == READING | WRITING
        named = inspect(*words, "--method", "resources/templates/list")["resourceTemplates"]

    assert {one["uriTemplate"] for one in named} == {
        "uncork://plan/{id}",
        "uncork://record/{id}",
        "uncork://evidence/{check}",
    }
