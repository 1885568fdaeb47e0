"""What `uncork bench --noise N` prints."""

from collections.abc import Callable
from pathlib import Path

from uncork.bench.noise import FILE, measure_noise
from uncork.bench.spec import SuiteSpec
from uncork.bench.suite import Progress, Watch
from uncork.cli.show import clean, console, print_json
from uncork.state import state_dir, write_whole


def show_noise(
    spec: SuiteSpec,
    runs: int,
    folder: Path,
    progress: Callable[[Progress], None],
    watch: Watch,
    *,
    as_json: bool,
) -> None:
    """Measure the floor and print the smallest difference that so many repeats would show."""
    found = measure_noise(spec, runs, out=folder, progress=progress, watch=watch)
    # uncork run looks for it there: its before and after are one run each, and cannot know it by themselves.
    write_whole(state_dir() / FILE, (folder / FILE).read_bytes())
    if as_json:
        print_json(found)
        return
    out = console()
    out.print(
        f"{found.runs} runs of {found.repeats} repeats, nothing changed. Two runs differ by chance up to:\n"
    )
    counts = sorted({count for floor in found.floors for count in floor.smallest})
    out.print(f"{'repeats a run':<20}" + "".join(f"{count:>9}" for count in counts))
    for floor in found.floors:
        cells = (f"±{floor.smallest[n]:.1%}" if n in floor.smallest else "" for n in counts)
        out.print(f"{floor.metric:<20}" + "".join(f"{cell:>9}" for cell in cells))
    out.print(clean(f"\nkept in {folder / FILE}"), soft_wrap=True)
    out.print(f"  next: uncork compare BEFORE AFTER --noise {clean(str(folder / FILE))}", soft_wrap=True)
