"""Print what the official MCP client says to `uncork mcp` on this host, from the audit to the comparison.

Needs root. It sets vm.overcommit_memory to 2 first (a P1 of the catalogue), serves the project's own paced server,
answers the question for consent with yes, and puts the former values back at the end whatever happens.

    sudo .venv/bin/python scripts/mcp_transcript.py
"""

import fcntl
import json
import sys
import tempfile
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import ElicitResult

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.wrong_host import LOCK, OVERCOMMIT, _planted  # noqa: E402

from uncork.bench.reference_server import reference_server  # noqa: E402

SMALL = {"concurrency": "1,2", "repeats": 2, "requests": 3, "input_len": 16, "output_len": 8}
ENDED = ("completed", "failed", "reverted", "unconfirmed", "skipped", "cancelled", "blocked")


def say(sign: str, text: str) -> None:
    """Print a line of the conversation, at most 96 columns wide."""
    for line in text.splitlines():
        first = f"{sign} " if line == text.splitlines()[0] else "  "
        print(textwrap.fill(line, 96, initial_indent=first, subsequent_indent="    "), flush=True)


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool and print the call; a refusal is printed and returned empty."""
    shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in arguments.items())
    say(">", f"{tool}({shown})")
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        say("!", result.content[0].text.removeprefix(f"Error executing tool {tool}: ").splitlines()[0])
        return {}
    return result.structured_content or {}


async def person(context: Any, params: Any) -> ElicitResult:
    """The person at the client: here the script, which says yes."""
    say("?", params.message)
    say("=", "yes")
    return ElicitResult(action="accept", content={"yes": True})


async def step(client: Client, name: str, plan: dict[str, Any]) -> str:
    """Start a step and wait for its end; how it ended."""
    which = {"digest": plan["digest"][:8]} if name == "approve" else {}
    await call(client, "step_start", step=name, expected_revision=plan["revision"], **which)
    revision = plan["revision"]
    for _ in range(60):
        result = await client.call_tool("plan_wait", {"revision": revision, "seconds": 20})
        waited = result.structured_content or {}
        revision, status = waited["revision"], waited["statuses"][name]
        if status in ENDED:
            say(">", f"plan_wait(...): {name} is {status}")
            shown = await client.call_tool("plan_show", {"step": name})
            for line in (shown.structured_content or {})["steps"][0]["evidence"]:
                say("<", line)
            return str(status)
    raise SystemExit(f"{name} did not end")


async def converse(endpoint: str, state: str) -> None:
    """The conversation."""
    argv = ["-m", "uncork.cli.main", "mcp", "--allow-apply"]
    server = StdioServerParameters(command=sys.executable, args=argv, env={"UNCORK_STATE": state})
    async with Client(server, elicitation_callback=person) as client:
        found = await call(client, "audit_start")
        say("<", ", ".join(f"{count} {answer}" for answer, count in sorted(found["counts"].items())))
        for one in found["findings"][:2]:
            say("<", f"{one['priority']} {one['id']}: {one['says']}")
        plan = await call(client, "plan_draft", endpoint=endpoint, **SMALL)
        say("<", plan["plan"])
        await call(client, "step_start", step="gate", expected_revision=plan["revision"])
        while ready := [one["name"] for one in plan["steps"] if one["shown"] == "ready"]:
            await step(client, ready[0], plan)
            plan = (await client.call_tool("plan_show", {})).structured_content or {}
        compared = await call(client, "compare_show")
        say("<", compared.get("says", ""))
        say("<", compared.get("plan", ""))
        intact = (await call(client, "journal_tail", rows=1))["intact"]
        say("<", f"the hash chain of the journal is {'intact' if intact else 'broken'}")
        say("#", f"vm.overcommit_memory is {OVERCOMMIT.read_text(encoding='ascii').strip()} on this host")
        undone = await call(client, "step_revert", step="apply-kernel-sysctl")
        say("<", undone.get("done", ""))
        say("#", f"vm.overcommit_memory is {OVERCOMMIT.read_text(encoding='ascii').strip()} on this host")


def main() -> None:
    """Set the host wrong, talk, put it back."""
    with LOCK.open("w", encoding="ascii") as lock, tempfile.TemporaryDirectory() as state:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests that change this host wait here
        with contextmanager(_planted)(Path(state)), reference_server(ttft_us=5_000, itl_us=1_000) as paced:
            anyio.run(converse, paced.url, state)


if __name__ == "__main__":
    main()
