"""The self-test: how exact the client is on this machine, and whether it tells every fault apart."""

from collections.abc import Callable, Iterator

import msgspec

from uncork.bench.exactness import Exactness, measure_exactness
from uncork.bench.level import prepare, run_level
from uncork.bench.reference_server import reference_server
from uncork.bench.spec import Level, SuiteSpec

STREAMS = (1, 64, 256, 1024)

# What each fault of the reference server must be recorded as: an outcome, and a flag where it completes.
EXPECTED = {
    "reset": ("reset", ""),
    "truncate": ("truncated", ""),
    "garbage": ("garbage", ""),
    "bad-chunk": ("garbage", ""),
    "error": ("in-band-error", ""),
    "429": ("http-status", ""),
    "503": ("http-status", ""),
    "empty": ("empty", ""),
    "hang": ("stalled", ""),
    "short": ("ok", "short"),
    "no-usage": ("ok", "no-usage"),
    "stall": ("ok", ""),
    "coalesce": ("ok", ""),
    "split": ("ok", ""),
    "slow-loris": ("ok", "short"),  # it gives up after the second token
}


class FaultCheck(msgspec.Struct, frozen=True):
    """One fault, given to every third of nine requests: what was expected and what was recorded."""

    fault: str
    expected: str
    recorded: str
    right: bool


class SelfTest(msgspec.Struct, frozen=True):
    """Exactness by number of streams, and the faults."""

    exactness: tuple[Exactness, ...]
    faults: tuple[FaultCheck, ...]

    @property
    def passed(self) -> bool:
        """Every level certified by its own check, every answer matched, every fault told apart."""
        exact = all(e.result.valid and not e.unmatched and not e.result.failed for e in self.exactness)
        return exact and all(check.right for check in self.faults)


def self_test(
    streams: tuple[int, ...] = STREAMS,
    *,
    tokens: int = 128,
    show: Callable[[str], None] = lambda what: None,
) -> SelfTest:
    """Run it; 6 s a number of streams. Raises `MeasureFailed` where the reference server cannot start."""
    exact = []
    for n in streams:
        show(f"{n} streams of {tokens} tokens at 20 ms")
        exact.append(measure_exactness(n, tokens=tokens))
    show("faults")
    return SelfTest(tuple(exact), tuple(check_faults()))


def check_faults(*, compiled: bool = True) -> Iterator[FaultCheck]:
    """Give each fault to three of nine requests; the other six must be untouched."""
    for fault, (outcome, flag) in EXPECTED.items():
        with reference_server(
            ttft_us=2_000, itl_us=1_000, stall_us=50_000, faults=(fault,), every=3, compiled=compiled
        ) as server:
            level = Level(concurrency=3, requests=9)
            spec = SuiteSpec(
                endpoint=server.url,
                levels=(level,),
                input_len=8,
                output_len=16,
                repeats=1,
                stall_timeout_s=1.0,
            )
            result = run_level(prepare(spec), level, 0, 0, 0, lambda ended, failed, in_flight: None).result
        failed = {} if outcome == "ok" else {outcome: 3}
        flags = {flag: 3} if flag else {}
        right = result.failed == failed and result.flags == flags
        recorded = ", ".join(f"{n} {name}" for name, n in {**result.failed, **result.flags}.items())
        yield FaultCheck(fault, flag or outcome, recorded or f"{result.completed} ok", right)
