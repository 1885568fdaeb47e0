"""Runs in the guest: the official MCP client drives `uncork mcp --allow-apply` from the audit to the undo.

The person who is asked says yes; where uncork wants a person at a terminal, `uncork approve` is run. What other
programs say of the host (argument 1, a line of shell) is noted before, with the changes in force, and at the end.
Prints one JSON object.
"""

import json
import os
import subprocess
import sys
from typing import Any

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import ElicitResult

from uncork.bench.reference_server import reference_server

UNCORK = [sys.executable, "-m", "uncork.cli.main"]
DRAFT = {"concurrency": "1", "repeats": 2, "requests": 2, "input_len": 8, "output_len": 4, "gate": "quick"}
ENDED = ("completed", "failed", "reverted", "unconfirmed", "skipped", "cancelled", "blocked")


class Conversation:
    """One conversation with the server, and what came of it."""

    def __init__(self, client: Client, look: str) -> None:
        self.client, self.look = client, look
        self.seen: dict[str, Any] = {"ends": {}, "refused": {}}

    def note(self, when: str) -> None:
        """What programs that know nothing of uncork say now."""
        done = subprocess.run(["bash", "-c", self.look], capture_output=True, encoding="utf-8", check=True)
        self.seen[when] = done.stdout.strip()

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A call that must succeed."""
        result = await self.client.call_tool(tool, arguments)
        if result.is_error:
            raise SystemExit(f"{tool}: {result.content[0].text}")
        return result.structured_content

    async def refusal(self, name: str, tool: str, **arguments: Any) -> str:
        """A call that must be refused; kept under `name`."""
        result = await self.client.call_tool(tool, arguments)
        if not result.is_error:
            raise SystemExit(f"{tool}({arguments}) was not refused")
        self.seen["refused"][name] = result.content[0].text
        return str(result.content[0].text)

    async def step(self, name: str) -> None:
        """Start a step and wait for its end."""
        plan = await self.call("plan_show")
        said: dict[str, Any] = {"step": name, "expected_revision": plan["revision"]}
        if name == "approve":
            said["digest"] = plan["digest"][:8]
            result = await self.client.call_tool("step_start", said)
            if result.is_error:
                self.seen["refused"]["approve"] = result.content[0].text
                argv = [*UNCORK, "approve", plan["digest"][:8]]  # the person at the terminal
                subprocess.run(argv, check=True, capture_output=True)
                await self.call("step_start", **said)
        else:
            await self.call("step_start", **said)
        await self.wait(name, plan["revision"])

    async def wait(self, name: str, revision: int) -> None:
        """Until the step has ended."""
        for _ in range(90):
            waited = await self.call("plan_wait", revision=revision, seconds=20)
            revision = waited["revision"]
            if waited["statuses"][name] in ENDED:
                self.seen["ends"][name] = waited["statuses"][name]
                return
        raise SystemExit(f"{name} did not end")

    async def drive(self, endpoint: str) -> None:
        """The whole loop, and the undo of every group."""
        self.note("before")
        found = await self.call("audit_start")
        self.seen["counts"] = found["counts"]
        plan = await self.call("plan_draft", endpoint=endpoint, **DRAFT)
        self.seen["changes"] = {step["name"]: step["changes"] for step in plan["steps"] if step["changes"]}
        await self.refusal("gate", "step_start", step="gate", expected_revision=plan["revision"])
        for name in ("gate-before", "benchmark-before", "document"):
            await self.step(name)
        await self.step("approve")
        for name in self.seen["changes"]:
            await self.step(name)
            await self.call("hold_extend", step=name, seconds=3600)  # these CPUs are emulated
        self.note("during")
        await self.refusal("confirm", "hold_confirm")
        for name in ("gate", "confirm", "benchmark", "compare", "decide", "close"):
            await self.step(name)
        self.seen["compared"] = await self.call("compare_show")
        self.seen["record"] = (await self.call("record_read"))["total_chars"]
        for name in reversed(self.seen["changes"]):
            await self.call("step_revert", step=name)
        self.note("after")
        self.seen["intact"] = (await self.call("journal_tail", rows=1))["intact"]


async def main(look: str) -> dict[str, Any]:
    """Serve, talk, and what was seen."""
    asked: list[str] = []

    async def person(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"yes": True})

    server = StdioServerParameters(
        command=UNCORK[0], args=[*UNCORK[1:], "mcp", "--allow-apply"], env=dict(os.environ)
    )
    with reference_server(ttft_us=20_000, itl_us=5_000) as paced:
        async with Client(server, elicitation_callback=person) as client:
            talk = Conversation(client, look)
            await talk.drive(paced.url)
    return talk.seen | {"asked": asked}


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, sys.argv[1])))
