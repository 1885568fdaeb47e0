"""What a journalled change costs, without the knob itself: `python benchmarks/apply_journal.py [FOLDER]`.

Reference in the same run, on the same disk: one 200-byte record appended to a plain file and synced with
fdatasync, which is the least that any durable change log can do. Also said: the fixed cost of a group (lock,
hold, timer, child), and what the whole engine costs a change for groups of several sizes, with and without the
child process that makes the knob's calls: a fork costs what the memory of its parent costs to share.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from uncork.apply import chain, guard, transaction
from uncork.apply.transaction import apply_step
from uncork.knobs.base import RecipeKnob
from uncork.model.plan import Kind, PlanDraft, PlannedChange, StepDraft
from uncork.plan import directives
from uncork.plan.approvals import approve
from uncork.plan.store import Store

ROUNDS = 200
GROUPS = 15


class NoCost(RecipeKnob):
    """A knob in memory: what is left is the engine. The child that writes keeps it, as it keeps the kernel's."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}

    def recipe(self, target: str) -> dict[str, str]:
        return {"kind": "file", "path": f"/nowhere/{target}"}

    def read(self, target: str) -> str:
        return self.values.get(target, "0")

    def write(self, target: str, value: str) -> None:
        self.values[target] = value


class Here:
    """In place of the child: the knob's calls are made in this process, without a time limit."""

    pid = 0

    def __init__(self, serve: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.serve = serve

    def ask(self, request: dict[str, Any], timeout_s: float) -> object:
        return self.serve(request).get("value")

    def start(self) -> None:
        pass

    end = close = start


def times_ms(act: Callable[[], None], rounds: int) -> list[float]:
    took = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        act()
        took.append((time.perf_counter_ns() - began) / 1e6)
    return took


def reference(folder: Path) -> list[float]:
    """Append and fdatasync."""
    handle = os.open(folder / "reference", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    line = b"x" * 199 + b"\n"

    def one() -> None:
        os.write(handle, line)
        os.fdatasync(handle)

    took = times_ms(one, ROUNDS)
    os.close(handle)
    return took


def journalled(store: Store) -> list[float]:
    """The two durable rows of one change: its intent before, and what was read back after."""
    body = {"knob": "sysctl", "target": "vm.swappiness", "before": "60", "want": "1", "actor": chain.actor()}

    def one() -> None:
        with store.writing() as db:
            chain.append(db, "benchmark", "intent", body, ord=0)
        with store.writing() as db:
            chain.append(db, "benchmark", "applied", {"target": "vm.swappiness", "got": "1"}, ord=0)

    return times_ms(one, ROUNDS)


def group(store: Store, size: int) -> float:
    """One whole group through the engine, without the start of the timer's process; ms."""
    changes = tuple(PlannedChange("none", f"t{n}", "1", before="0") for n in range(size))
    plan = store.create(PlanDraft("host", (StepDraft("apply", Kind.APPLY, "apply", changes=changes),)))
    store.seal_record(plan.id, "0" * 64)
    approve(store, plan, plan.digest, by="benchmark", how="benchmark")
    step = store.read().steps[0]
    began = time.perf_counter_ns()
    apply_step(store, step, knobs={"none": NoCost()}, guard=lambda *_: "none:")  # type: ignore[dict-item]
    took = (time.perf_counter_ns() - began) / 1e6
    directives.abort(store, store.read(), words="benchmark", by="benchmark")
    return took


def armed(store: Store) -> list[float]:
    """Start a guard process, as where there is no systemd, and wait until it says that it is armed."""
    argv = guard.command(store.folder, store.path, "no-such-hold")  # so that it ends at once
    return times_ms(lambda: guard._arm_process(argv) and None, 10)


def main() -> None:
    """Print medians, 90th percentiles and ratios to the reference."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        folder = Path(name)
        os.environ["UNCORK_RUN"] = str(folder / "run")
        (folder / "state").mkdir()
        with Store(folder / "state") as store:
            base = reference(folder)
            base_ms = statistics.median(base)
            print(f"{'':44} median ms   p90 ms   x reference")
            line("reference: append + fdatasync", base, base_ms)
            line("journalled change: intent and result durable", journalled(store), base_ms)
            sizes = {n: [group(store, n) for _ in range(GROUPS)] for n in (1, 16, 64)}
            for size, took in sizes.items():
                line(f"whole engine, group of {size}, a change", [ms / size for ms in took], base_ms)
            with patch.object(transaction, "Child", Here):
                line(
                    "the same without the child, group of 1",
                    [group(store, 1) for _ in range(GROUPS)],
                    base_ms,
                )
            fixed = statistics.median(sizes[1]) - statistics.median(sizes[64]) / 64
            print(f"fixed cost of a group: about {fixed:.1f} ms (lock, start, hold, child, end)")
            line("revert timer: start the detached process", armed(store), base_ms)
            print(f"load average while measuring: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")


def line(name: str, took: list[float], base_ms: float) -> None:
    median = statistics.median(took)
    p90 = statistics.quantiles(took, n=10)[-1]
    print(f"{name:44} {median:9.3f} {p90:8.3f} {median / base_ms:11.1f}")


if __name__ == "__main__":
    main()
