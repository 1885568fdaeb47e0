"""How long the report of the largest run takes to build, and how large it is, against reading its input.

    python benchmarks/record_report.py

The largest run: 11 levels of 5 repeats before and after, 8 GPUs, every check answered on each of them. The
reference in the same run is encoding and decoding that input as JSON. CPU time is printed beside wall time,
since wall time on a busy machine says little; the first build pays for importing matplotlib.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def timed(what: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    what()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Build twice and print."""
    import msgspec
    from tests.record import largest

    from uncork import checks

    story = largest.story()
    size = 0

    def read() -> None:
        for part in (story.audit, story.before, story.after, story.gate_before, story.gate_after, story.plan):
            msgspec.json.decode(msgspec.json.encode(part), type=type(part))

    def build() -> None:
        nonlocal size
        from uncork.record.report.page import page

        size = len(page([story]).encode())

    reference = timed(read)
    first, again = timed(build), timed(build)
    from uncork.record.report.charts import available

    print(f"{len(checks.load())} checks on 8 GPUs, {len(story.before.levels) + len(story.after.levels)} levels,"  # type: ignore[union-attr]
          f" charts {'drawn' if available() else 'LEFT OUT: matplotlib is not installed'}")  # fmt: skip
    print(f"{'':<24}{'wall s':>9}{'CPU s':>9}{'x reading':>11}")
    for name, took in (
        ("read the input as JSON", reference),
        ("first build", first),
        ("second build", again),
    ):
        print(f"{name:<24}{took[0]:>9.2f}{took[1]:>9.2f}{took[1] / reference[1]:>11.1f}")
    print(f"page: {size / 1e6:.2f} MB of 2 MB;  first build: {first[1]:.2f} CPU s of 2 s")


if __name__ == "__main__":
    main()
