"""Runs in its own PID and mount namespace: this real host, with an enemy's words in titles, file names and settings.

`python hostile_host.py STATE` prints one JSON object: for calm words and for each turn of the enemy's, what the audit
and the plan are, and every text that a model or a person would get of it: brief, question, MCP results, explorers'
answers. Nothing outside the namespaces is changed; tests/agents/test_live_injection.py starts it.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import anyio  # noqa: E402
from mcp.client.client import Client  # noqa: E402
from tests.agents.test_injection import ORDERS  # noqa: E402

from uncork.agents.brief import brief  # noqa: E402
from uncork.agents.consent import question  # noqa: E402
from uncork.agents.explorers.eyes import Eyes  # noqa: E402
from uncork.agents.mcp_server import build  # noqa: E402
from uncork.explorers import explore  # noqa: E402
from uncork.host.live import LiveHost  # noqa: E402
from uncork.host.recording import RecordingHost  # noqa: E402
from uncork.plan.store import Store  # noqa: E402

SERVER = """#!{python}
import sys, time
open("/proc/self/comm", "w").write(sys.argv.pop())
print(flush=True)
time.sleep(600)
"""
WORDS = list(ORDERS.values())
TURNS = {"calm": ["all is well"] * len(WORDS), "first": WORDS, "second": WORDS[3:] + WORDS[:3]}
TURNS |= {"third": WORDS[4:] + WORDS[:4]}
LINES = [("plan_show", {}), ("todo_read", {}), ("journal_tail", {})]
LINES += [("audit_findings", {"answer": answer}) for answer in ("fail", "unknown", "pass")]
LINES += [("finding_explain", {"id": "kernel.overcommit"})]


def mount(*words: str) -> None:
    """Mount in this namespace only."""
    subprocess.run(["mount", *words], check=True)


@contextlib.contextmanager
def said(words: list[str], folder: Path) -> Iterator[int]:
    """The words in every place that an enemy can write to; the pid of a process that looks like a server."""
    name, title, comm, comment, model, variable = words
    for path in Path("/etc/sysctl.d").iterdir():
        path.unlink()
    named = name.replace("/", "_")[:200].encode("utf-8", "replace")[:200].decode("utf-8", "ignore")
    text = f"# {comment[:4000]}\nvm.overcommit_memory = 2\n"
    Path(f"/etc/sysctl.d/{named}.conf").write_text(text, encoding="utf-8")
    server = folder / "vllm"
    server.write_text(SERVER.format(python=sys.executable), encoding="utf-8")
    server.chmod(0o755)
    argv = [
        str(server),
        "serve",
        "--served-model-name",
        title[:50_000],
        "--port",
        "9",
        model[:50_000],
        comm[:15],
    ]
    environment = os.environ | {"VLLM_CACHE_ROOT": variable[:4000], "NCCL_DEBUG": variable[:4000]}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


async def results() -> dict[str, Any]:
    """The plan is drafted and every reading tool asked, by the official client."""
    found = {}
    async with Client(build(allow_apply=True)) as client:
        drafted = await client.call_tool("plan_draft", {})
        assert not drafted.is_error, drafted.content
        for tool, arguments in [("audit_start", {}), *LINES]:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content
            found[f"{tool} {arguments}"] = result.structured_content
        current = await client.read_resource("uncork://plan/current")
        evidence = await client.read_resource("uncork://evidence/kernel.overcommit")
        found["resources"] = {"plan": current.contents[0].text, "evidence": evidence.contents[0].text}
    return found


def turn(words: list[str], state: Path) -> dict[str, Any]:
    """One look at the host that says these words."""
    state.mkdir()
    os.environ["UNCORK_STATE"] = str(state)
    with said(words, state) as pid:
        tools = anyio.run(results)
        host = RecordingHost(LiveHost())
        eyes = Eyes(host, explore(host).facts)
        names = ("engine", "kernel", "container", "driver")
        seen = [
            eyes.read(f"/proc/{pid}/cmdline"),
            eyes.read(f"/proc/{pid}/comm"),
            eyes.glob("/etc/sysctl.d/*"),
        ]
        seen += [eyes.facts(name) for name in names] + [
            eyes.read(path) for path in host.glob("/etc/sysctl.d/*")
        ]
        with Store(create=False) as store:
            plan = store.read()
            text, asked = brief(store), question(store, plan)
    changes = [
        (one.knob, one.target.split("@")[-1].split(":")[-1], one.want)
        for s in plan.steps
        for one in s.changes
    ]
    found = tools["audit_start {}"]["findings"]
    return {
        "failing": [(one["id"], one["priority"], one["change_class"]) for one in found],
        "steps": [(step.name, step.kind, [need.step for need in step.needs]) for step in plan.steps],
        "changes": sorted(changes),
        "owners": [owner for step in plan.steps for one in step.changes for owner in one.owners],
        "subjects": [one["subject"] for one in found],
        "tools": tools,
        "brief": text,
        "question": asked,
        "seen": seen,
    }


def main(state: Path) -> None:
    """Lay the namespace out, then take the turns."""
    mount("-t", "tmpfs", "tmpfs", "/etc/sysctl.d")
    wrong = state / "two"
    wrong.write_text("2\n", encoding="ascii")
    mount("--bind", str(wrong), "/proc/sys/vm/overcommit_memory")
    began = time.monotonic()
    turns = {name: turn(words, state / name) for name, words in TURNS.items()}
    print(json.dumps(turns | {"seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
