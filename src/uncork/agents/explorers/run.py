"""Send out explorers side by side; one that loops, hangs or floods is cut off, and the others go on."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from openai import AsyncOpenAI
from pydantic_ai import Agent, NativeOutput, UsageLimits
from pydantic_ai.exceptions import AgentRunError, UserError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from uncork.agents.explorers.briefs import brief
from uncork.agents.explorers.claims import Report, SeenClaim, check
from uncork.agents.explorers.eyes import Eyes
from uncork.checks import load
from uncork.explorers import DIMENSIONS
from uncork.host import Host
from uncork.model.facts import Facts

Progress = Callable[[str, str], None]

# What the libraries let through of a strange server's answer (no choice in it, JSON a thousand deep, half a character).
# It costs one explorer; anything else is a bug here and is not hidden.
STRANGE = (LookupError, RecursionError, ValueError, OSError)


class Budget(msgspec.Struct, frozen=True):
    """What one explorer may use."""

    steps: int = 12
    seconds: float = 120.0
    tokens: int = 60_000
    answer_tokens: int = 1_500


class Served(msgspec.Struct, frozen=True):
    """A model at an OpenAI-compatible endpoint; `tools` is False where it cannot call any."""

    endpoint: str
    model: str
    api_key: str = "none"
    tools: bool = True


class Explored(msgspec.Struct, frozen=True):
    """What the explorers brought back: claims, how many were dropped, how each explorer ended, tools refused."""

    claims: tuple[SeenClaim, ...]
    dropped: int
    endings: dict[str, str]
    refused: int


def send_out(
    host: Host,
    facts: Facts,
    served: Served,
    *,
    dimensions: Sequence[str] = DIMENSIONS,
    budget: Budget | None = None,
    side_by_side: int = 14,
    progress: Progress = lambda name, state: None,
) -> Explored:
    """Run one explorer a dimension against an OpenAI-compatible endpoint and check what they claim."""
    return asyncio.run(_all(host, facts, served, dimensions, budget or Budget(), side_by_side, progress))


async def _all(
    host: Host,
    facts: Facts,
    served: Served,
    dimensions: Sequence[str],
    budget: Budget,
    side_by_side: int,
    progress: Progress,
) -> Explored:
    gate = asyncio.Semaphore(side_by_side)
    # Our own client, closed before the loop ends: the provider's would leave its sockets to the garbage collector.
    base_url = served.endpoint.rstrip("/").removesuffix("/v1") + "/v1"
    async with AsyncOpenAI(base_url=base_url, api_key=served.api_key) as client:
        model = OpenAIChatModel(served.model, provider=OpenAIProvider(openai_client=client))

        async def one(dimension: str) -> tuple[str, list[SeenClaim], int, str, int]:
            eyes = Eyes(host, facts)
            async with gate:
                progress(dimension, "running")
                agent = _agent(model, dimension, eyes, budget, progress, served.tools)
                claims, dropped, ending = await _explore(agent, dimension, eyes, budget)
            progress(dimension, ending)
            return dimension, claims, dropped, ending, eyes.refused

        found = await asyncio.gather(*(one(dimension) for dimension in dimensions))
    return Explored(
        claims=tuple(claim for _, claims, _, _, _ in found for claim in claims),
        dropped=sum(dropped for _, _, dropped, _, _ in found),
        endings={name: ending for name, _, _, ending, _ in found},
        refused=sum(refused for *_, refused in found),
    )


def _agent(
    model: OpenAIChatModel, dimension: str, eyes: Eyes, budget: Budget, progress: Progress, tools: bool
) -> Agent[None, Report]:
    """An explorer with its brief and eyes; one that can call no tool is given the facts and asked for JSON."""
    told = brief(dimension, load(), tools=tools)
    agent: Agent[None, Report] = Agent(
        model,
        output_type=Report if tools else NativeOutput(Report),
        instructions=told if tools else f"{told}\n\nfacts {dimension}:\n{eyes.facts(dimension)}",
        model_settings={"max_tokens": budget.answer_tokens, "temperature": 0.0},
        retries=1,
    )
    for tool in (eyes.read, eyes.glob, eyes.run, eyes.facts) if tools else ():
        agent.tool_plain(_counted(tool, dimension, eyes, progress))
    return agent


async def _explore(
    agent: Agent[None, Report], dimension: str, eyes: Eyes, budget: Budget
) -> tuple[list[SeenClaim], int, str]:
    """One explorer to its checked claims; every way it can fail becomes a sentence."""
    limits = UsageLimits(
        request_limit=budget.steps, tool_calls_limit=4 * budget.steps, total_tokens_limit=budget.tokens
    )
    try:
        task = agent.run(f"Explore the dimension {dimension}.", usage_limits=limits)
        result = await asyncio.wait_for(task, budget.seconds)
    except TimeoutError:
        return [], 0, f"cut off after {budget.seconds:g} s"
    except (AgentRunError, UserError) as error:
        return [], 0, f"ended without an answer: {_short(error)}"
    except STRANGE as error:
        return [], 0, f"failed: {type(error).__name__}: {_short(error)}"
    claims, dropped = check(result.output, eyes.seen, dimension)
    return claims, dropped, f"ok, {len(claims)} claims" + (f", {dropped} dropped" if dropped else "")


def _counted(tool: Callable[..., str], dimension: str, eyes: Eyes, progress: Progress) -> Callable[..., str]:
    """The tool itself, telling progress how many answers its explorer has had."""
    import functools

    @functools.wraps(tool)
    def call(*args: Any, **more: Any) -> str:
        progress(dimension, f"running, {len(eyes.seen) + 1} answers read")
        return tool(*args, **more)

    return call


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
