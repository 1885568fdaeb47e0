"""Read-only, one file a dimension: host → facts. Run side by side, each with a deadline."""

import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from uncork.host import Host
from uncork.model.facts import Facts
from uncork.model.unknown import Unknown, UnknownValue
from uncork.state import patience

DIMENSIONS = (
    "firmware",
    "container",
    "driver",
    "kernel",
    "kernel_version",
    "cuda_memory",
    "pcie",
    "power",
    "p2p",
    "numa",
    "engine",
    "nvlink",
    "network",
    "storage",
)
DEADLINE_S = 20.0 * patience()

Progress = Callable[[str, str], None]  # explorer's name, then "running", "ok" or why it failed


class Exploration(msgspec.Struct, frozen=True):
    """The facts of a host, and how each explorer ended (`ok`, or why its facts are missing)."""

    facts: Facts
    endings: dict[str, str]


def explore(
    host: Host,
    *,
    deadline_s: float = DEADLINE_S,
    progress: Progress = lambda name, state: None,
    explorers: dict[str, Callable[[Host], Any]] | None = None,
) -> Exploration:
    """Run all explorers side by side; a crash or a hang of one costs only its own facts.

    A hung explorer cannot be killed (a read in D state never returns): its daemon thread is left behind and
    its dimension becomes `Unknown`.
    """
    found: dict[str, Any] = {}
    endings: dict[str, str] = {}

    def one(name: str) -> None:
        progress(name, "running")
        try:
            run = explorers[name] if explorers else importlib.import_module(f"{__name__}.{name}").explore
            facts, ending = run(host), "ok"
        except UnknownValue as unknown:
            facts, ending = Unknown(unknown.reason), unknown.reason
        except Exception as error:
            ending = f"the {name} explorer crashed: {type(error).__name__}: {error}"
            facts = Unknown(ending)
        if name not in endings:
            found[name], endings[name] = facts, ending
            progress(name, ending)

    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in DIMENSIONS]
    for thread in threads:
        thread.start()
    end_s = time.monotonic() + deadline_s
    for name, thread in zip(DIMENSIONS, threads, strict=True):
        thread.join(max(0.0, end_s - time.monotonic()))
        if name not in endings:
            endings[name] = f"the {name} explorer did not finish within {deadline_s:g} s"
            found[name] = Unknown(endings[name])
            progress(name, endings[name])
    return Exploration(Facts(**found), {name: endings[name] for name in DIMENSIONS})
