"""A client that listens is told when the plan changes, whoever changed it; nobody looks while nobody listens."""

from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from mcp.client.client import Client
from tests.plan.plans import new_plan, pass_step

from uncork.agents import watching
from uncork.agents.mcp_server import build
from uncork.agents.watching import PlanBus, versions
from uncork.plan import directives
from uncork.plan.store import Store

CURRENT = "uncork://plan/current"


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("UNCORK_STATE", str(tmp_path))
    monkeypatch.setattr(watching, "LOOK_S", 0.05)
    return tmp_path


def told(state: Path, change: Any, *uris: str, seconds: float = 20.0) -> list[str]:
    """What a client that listens to these is told after `change`; empty where it is told nothing in time."""

    async def main() -> list[str]:
        async with Client(build(state=state)) as client, client.listen(resource_subscriptions=uris) as events:
            await anyio.sleep(0.2)
            change()
            with anyio.move_on_after(seconds):
                async for event in events:
                    return [str(event.uri)]
        return []

    return anyio.run(main)


def test_the_end_of_a_step_and_a_directive_are_told(state):
    with Store(state) as store:
        plan = new_plan(store)

    def end_a_step() -> None:
        with Store(state) as store:
            pass_step(store, plan, "explore")

    def pause() -> None:
        with Store(state) as store:
            directives.pause(store, store.read(), words="wait", by="a person")

    assert told(state, end_a_step, CURRENT) == [CURRENT]
    assert told(state, pause, f"uncork://plan/{plan.id}") == [f"uncork://plan/{plan.id}"]


def test_a_first_plan_is_told_and_so_is_its_record(state):
    def seal() -> None:
        with Store(state) as store:
            store.seal_record(store.read().id, "0" * 64)

    def draft() -> None:
        with Store(state) as store:
            new_plan(store)

    assert told(state, draft, CURRENT) == [CURRENT]
    assert told(state, seal, "uncork://record/current") == ["uncork://record/current"]


def test_who_listens_to_something_else_is_told_nothing(state):
    with Store(state) as store:
        new_plan(store)

    def pause() -> None:
        with Store(state) as store:
            directives.pause(store, store.read(), words="wait", by="a person")

    assert told(state, pause, "uncork://record/current", seconds=0.5) == []


def test_nobody_looks_before_the_first_and_after_the_last_listener(state, monkeypatch):
    looks = 0

    def count(folder: Path) -> dict[str, object]:
        nonlocal looks
        looks += 1
        return versions(folder)

    monkeypatch.setattr(watching, "versions", count)

    async def main() -> tuple[int, int, int]:
        bus = PlanBus(state)
        await anyio.sleep(0.2)
        before = looks
        leave, also = bus.subscribe(lambda event: None), bus.subscribe(lambda event: None)
        await anyio.sleep(0.2)
        leave()
        leave()  # leaving twice is leaving once
        one = looks
        await anyio.sleep(0.2)
        with_one = looks
        also()
        await anyio.sleep(0.2)
        return before, with_one - one, looks - with_one

    before, with_one, after = anyio.run(main)

    assert (before, after) == (0, 0)
    assert with_one > 0
