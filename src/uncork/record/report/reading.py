"""From the folder of a run to its story: what is missing stays None, what is damaged is said."""

from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from uncork.bench.importers import read_results
from uncork.bench.store import LEVELS, SUMMARY, Finished
from uncork.errors import BadInput, Corrupt
from uncork.model.bench import BenchRun
from uncork.model.comparison import Comparison
from uncork.model.findings import Audit
from uncork.model.gate import GateResult
from uncork.model.plan import Plan
from uncork.record.report.story import Limits, Story
from uncork.record.seal import NAME
from uncork.record.topology import Topology

T = TypeVar("T")


def any_of(path: Path) -> Story:
    """The story of a folder of a run, a folder of `uncork bench`, or a summary.json or audit's JSON.

    Raises `BadInput` for anything else and `Corrupt` for a file of ours that is damaged.
    """
    if (path / "audit.json").exists():
        return from_folder(path)
    if (path / SUMMARY).exists():
        return Story(name=path.name, before=_bench(path))
    if path.is_file():
        return _from_file(path)
    raise BadInput(
        f"{path} is neither a plan nor a folder of a run or a benchmark; no report was written.",
        next="uncork record (lists the plans of this host)",
    )


def from_folder(
    folder: Path,
    *,
    plan: Plan | None = None,
    rows: tuple[dict[str, Any], ...] = (),
    chain_head: str = "",
    undo: dict[str, str] | None = None,
) -> Story:
    """The story of one run's folder; `plan` and `rows` come from the store where there is one. Raises `Corrupt`."""
    record = folder / NAME
    return Story(
        name=folder.name,
        plan=plan or _load(folder / "plan.json", Plan),
        audit=_load(folder / "audit.json", Audit),
        gate_before=_load(folder / "gate-before.json", GateResult),
        gate_after=_load(folder / "gate-after.json", GateResult),
        before=_newest_bench(folder, "before"),
        after=_newest_bench(folder, "after"),
        comparison=_load(folder / "comparison.json", Comparison),
        topology=_load(folder / "topology.json", Topology),
        limits=_load(folder / "bound.json", Limits),
        record=str(record) if record.exists() else "",
        chain_head=chain_head,
        rows=rows,
        undo=undo or _load(folder / "undo.json", dict[str, str]) or {},
    )


def _from_file(path: Path) -> Story:
    data = path.read_bytes()
    with suppress(msgspec.DecodeError):
        return Story(name=path.stem, before=msgspec.json.decode(data, type=BenchRun))
    with suppress(msgspec.DecodeError):
        return Story(name=path.stem, audit=msgspec.json.decode(data, type=Audit))
    try:
        return Story(name=path.stem, imported=read_results(path))
    except BadInput as error:
        raise BadInput(f"{error.says} No report was written.", next=error.next) from error


def _newest_bench(folder: Path, when: str) -> BenchRun | None:
    found = sorted(folder.glob(f"bench-{when}*/{SUMMARY}"), key=lambda path: path.stat().st_mtime_ns)
    return _bench(found[-1].parent) if found else None


def _bench(folder: Path) -> BenchRun | None:
    """A run as it stands; of one that still goes on, or was killed, the levels that were finished."""
    run = _load(folder / SUMMARY, BenchRun)
    if run is None or run.finished:
        return run
    parts = (_load(path, Finished) for path in sorted((folder / LEVELS).glob("*.json")))
    levels = tuple(part.result for part in parts if part)
    return msgspec.structs.replace(run, levels=levels) if len(levels) > len(run.levels) else run


def _load(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise Corrupt(
            f"{path} cannot be read: {error}; no report was written.", next="uncork record verify"
        ) from error
