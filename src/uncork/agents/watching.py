"""Tells clients that listen (`subscriptions/listen`) when the plan or its record has changed."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.subscriptions import ResourceUpdated, ServerEvent

from uncork.agents.digest import runs
from uncork.errors import UncorkError
from uncork.model.plan import Plan
from uncork.plan.store import Store

LOOK_S = 1.0


class PlanBus(InMemorySubscriptionBus):
    """A bus that looks at the store once a second while somebody listens, since other processes write the plan."""

    def __init__(self, state: Path | None) -> None:
        super().__init__()
        self._state = state
        self._listening = 0
        self._looking: asyncio.Task[None] | None = None

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a listener; the first one starts the looking, the last one to leave ends it."""
        leave = super().subscribe(listener)
        self._listening += 1
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        left = False

        def unsubscribe() -> None:
            nonlocal left
            if left:
                return
            left = True
            leave()
            self._listening -= 1
            if not self._listening and self._looking:
                self._looking.cancel()
                self._looking = None

        return unsubscribe

    async def _look(self) -> None:
        seen = versions(self._state)
        while True:
            await asyncio.sleep(LOOK_S)
            now = versions(self._state)
            for uri in (uri for uri, version in now.items() if seen.get(uri) != version):
                await self.publish(ResourceUpdated(uri=uri))
            seen = now


def versions(state: Path | None) -> dict[str, object]:
    """A value for each resource that changes when it does; nothing where the plan cannot be read."""
    try:
        with Store(state, create=False) as store:
            plan = store.read()
    except UncorkError:
        return {}
    named = {"plan": _version(plan), "record": (plan.id, plan.record_sha256, plan.state == "closed")}
    return {f"uncork://{kind}/{which}": one for kind, one in named.items() for which in ("current", plan.id)}


def _version(plan: Plan) -> object:
    steps = tuple((step.name, runs(step), step.shown, step.position) for step in plan.steps)
    return plan.id, plan.revision, plan.state, steps
