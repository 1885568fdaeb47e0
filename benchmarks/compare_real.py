"""Verdicts on a real server: twenty comparisons of it with itself, twenty with itself slowed by a tenth.

    .venv/bin/python benchmarks/compare_real.py [COMPARISONS] [TURNS]

The server is the demo's (llama.cpp with SmolLM2-135M), held to one processor, the client to the others: threads of
llama.cpp that wait for one another turn a busy neighbour into noise of many times the effect. Each comparison measures
before and after by turns (ABBA), TURNS runs of two seconds a side, and is judged as `uncork compare A1,A2,… B1,B2,…`
judges. *Slowed* stops the server's process for 2 ms after each 20 ms that it ran (slowed.py), which makes every token
take 10 % longer whatever the server does; how much longer it took is printed beside each verdict (TPOT). About 100 s a
comparison with 20 turns. Exit status 1 where fewer than 19 of 20 A/A comparisons showed no difference, or fewer than
18 of 20 slowed servers were found.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from uncork.bench.compare import compare
from uncork.bench.merge import merged
from uncork.bench.spec import Level, SuiteSpec
from uncork.bench.suite import run_suite
from uncork.loop.demo import demo_server
from uncork.loop.server import Server
from uncork.model.bench import BenchRun
from uncork.model.comparison import Comparison, Judgement

SLOWER = 0.10
NO_DIFFERENCE = (Judgement.EQUIVALENT, Judgement.UNCLEAR)
RIGHT_OF_20 = {"A/A": 19, "slowed": 18}


def main(comparisons: int, turns: int) -> int:
    """Print every verdict and the counts."""
    began_s, right = time.monotonic(), {"A/A": 0, "slowed": 0}
    with tempfile.TemporaryDirectory() as folder, alone_on_one_cpu() as server:
        for number in range(-1, comparisons):
            for kind in right:
                result = one_comparison(server, Path(folder), kind, number, turns if number >= 0 else 2)
                if number >= 0:  # the first of each kind warms the server up
                    right[kind] += is_right(kind, result)
                    show(kind, number + 1, result)
    took_s = time.monotonic() - began_s
    for kind, count in right.items():
        print(f"{kind}: {count} of {comparisons} right (to reach: {RIGHT_OF_20[kind]} of 20)")
    print(f"{took_s / 60:.1f} minutes, load average now {os.getloadavg()[0]:.1f}")
    return int(any(count < comparisons * RIGHT_OF_20[kind] / 20 for kind, count in right.items()))


def is_right(kind: str, result: Comparison) -> bool:
    """Whether the verdict is what was made to happen."""
    return result.judgement is Judgement.WORSE if kind == "slowed" else result.judgement in NO_DIFFERENCE


def show(kind: str, number: int, result: Comparison) -> None:
    """One line a comparison, with what each figure showed."""
    figures = "; ".join(f"{one.metric} {one.ratio - 1:+.1%}" for one in result.overall)
    wrong = "" if is_right(kind, result) else "  WRONG"
    print(f"{kind:<7}{number:>3}  {result.judgement.value:<20}{figures}{wrong}", flush=True)
    if result.judgement is Judgement.NOT_COMPARABLE:
        print(f"           {result.says}", flush=True)


def one_comparison(server: Server, folder: Path, kind: str, number: int, turns: int) -> Comparison:
    """Measure both sides by turns and judge; the B side of an A/A comparison is the same server."""
    sides: tuple[list[BenchRun], list[BenchRun]] = ([], [])
    for turn in range(2 * turns):
        side = (turn + 1) // 2 % 2
        slow = slowed(server.pid) if side and kind == "slowed" else nullcontext()
        name = f"{kind.replace('/', '')}-{number}-{turn}"
        with slow:
            sides[side].append(measured(server, folder / name, seed=hash_of(name)))
    return compare(merged(sides[0]), merged(sides[1]))


def measured(server: Server, out: Path, *, seed: int) -> BenchRun:
    """One short run: five answers of 20 tokens, one after the other, none from the prefix cache.

    Which slot holds which prefix is a matter of chance and moved TTFT by a third.
    """
    return run_suite(
        SuiteSpec(
            endpoint=server.endpoint, model=server.model, levels=(Level(concurrency=1, requests=5),), input_len=16,
            output_len=20, repeats=1, seed=seed, body={"cache_prompt": False}, warmup=False, cooldown_s=0.0,
            processes=1,
        ),
        out=out,
    )  # fmt: skip


def hash_of(name: str) -> int:
    """A seed of its own for each run, the same in every invocation."""
    return int.from_bytes(name.encode()[-6:], "big")


@contextmanager
def alone_on_one_cpu() -> Iterator[Server]:
    """The demo's server on the last processor, this process on the others."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[-1:])
    with demo_server() as server:
        os.sched_setaffinity(0, cpus[:-1] or cpus)
        yield server


@contextmanager
def slowed(pid: int) -> Iterator[None]:
    """The process takes a tenth longer for everything until the block ends."""
    argv = [sys.executable, str(Path(__file__).with_name("slowed.py")), str(pid), str(SLOWER)]
    helper = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert helper.stdin and helper.stdout
    try:
        helper.stdout.readline()
        yield
    finally:
        helper.stdin.close()
        helper.stdout.close()
        helper.wait()
        os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    numbers = [int(one) for one in sys.argv[1:]]
    sys.exit(main(numbers[0] if numbers else 20, numbers[1] if len(numbers) > 1 else 20))
