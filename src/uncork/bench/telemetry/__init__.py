"""What host, GPUs and server did while a level ran, and what of it disturbed the level.

    watch = Telemetry(endpoint).watch            # hand it to run_suite(..., watch=watch)

A thread samples five times a second. Sums and means go to `LevelResult.telemetry`; what makes a level's figure
doubtful (stolen CPU, throttling, preemption, swapping, a hot GPU) goes to `disturbances` in words.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from uncork.bench.suite import Reading
from uncork.bench.telemetry.gpus import Gpus
from uncork.bench.telemetry.machine import Machine
from uncork.bench.telemetry.metrics_page import MetricsPage

PERIOD_S = 0.2


class Source(Protocol):
    """One thing that is sampled; a source that cannot be read has nothing to say."""

    def begin(self) -> None:
        """Take the counters before the level."""
        ...

    def sample(self) -> None:
        """Take one sample."""
        ...

    def end(self) -> tuple[dict[str, Any], list[str]]:
        """Figures of the level, and what disturbed it."""
        ...


class Telemetry:
    """Watches levels of one server."""

    def __init__(self, endpoint: str, *, period_s: float = PERIOD_S) -> None:
        self._endpoint, self._period_s = endpoint, period_s

    @contextmanager
    def watch(self, level: str, repeat: int) -> Iterator[Reading]:
        """Sample from now until the level has ended, then fill the reading."""
        sources: dict[str, Source] = {
            "host": Machine(),
            "gpus": Gpus(),
            "server": MetricsPage(self._endpoint),
        }
        reading, over = Reading(), threading.Event()
        for source in sources.values():
            source.begin()
        sampler = threading.Thread(target=self._run, args=(tuple(sources.values()), over), daemon=True)
        sampler.start()
        try:
            yield reading
        finally:
            over.set()
            sampler.join(timeout=5)
            ended = {name: source.end() for name, source in sources.items()}
            reading.telemetry = {name: figures for name, (figures, _) in ended.items() if figures}
            reading.disturbances = tuple(words for _, said in ended.values() for words in said)

    def _run(self, sources: tuple[Source, ...], over: threading.Event) -> None:
        while not over.wait(self._period_s):
            for source in sources:
                source.sample()
