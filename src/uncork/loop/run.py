"""One run of the loop: what it was asked for, where its artefacts lie, and what it has found so far."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from uncork.errors import Corrupt, NotFound, StateUnwritable
from uncork.host import Host
from uncork.loop.say import Say
from uncork.loop.server import Server
from uncork.model.attribution import Attribution
from uncork.model.bench import BenchRun
from uncork.model.comparison import Comparison
from uncork.model.findings import Audit
from uncork.model.gate import GateResult
from uncork.model.plan import Plan
from uncork.plan.store import Store
from uncork.record.seal import NAME
from uncork.state import write_whole

T = TypeVar("T")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was asked for; stored, so that a resumed run measures the same."""

    endpoint: str = ""
    model: str = ""
    model_path: str = ""
    demo: bool = False
    demo_started: bool = False  # no server was found, so a resumed run starts the demo's again
    suite: str = "quick"
    concurrency: str = ""
    requests: int = 0
    input_len: int = 128
    output_len: int = 64
    repeats: int = 3
    seed: int = 1
    hold_s: float = 300.0
    gate: str = "full"  # its depth
    attribute: int = 0  # blocks a group; 0 asks for no attribution
    yes: bool = False
    dry_run: bool = False


class Run(msgspec.Struct):
    """A run in progress; `folder` holds its artefacts and its record."""

    options: Options
    store: Store
    host: Host
    say: Say
    server: Server | None = None
    plan_id: str = ""

    @property
    def folder(self) -> Path:
        return artefacts(self.store.folder, self.plan_id)

    @property
    def record(self) -> Path:
        return self.folder / NAME

    def plan(self) -> Plan:
        return self.store.read(self.plan_id)


def artefacts(state: Path, plan_id: str) -> Path:
    """Where the record and the artefacts of a plan lie."""
    return state / "records" / plan_id


def save(folder: Path, name: str, value: Any) -> Path:
    """Write an artefact as JSON. Raises `StateUnwritable`."""
    path = folder / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, msgspec.json.format(msgspec.json.encode(value), indent=1))
    except OSError as error:
        raise StateUnwritable(
            f"{path} cannot be written ({error.strerror}); nothing more was done.",
            next="free space there, then uncork run --resume",
        ) from error
    return path


def load_audit(folder: Path) -> Audit:
    """The audit that the plan was made from."""
    return _load(folder / "audit.json", Audit)


def load_gate(folder: Path, when: str) -> GateResult | None:
    """The gate's result `before` or `after`, None where it has not run."""
    path = folder / f"gate-{when}.json"
    return _load(path, GateResult) if path.exists() else None


def load_bench(folder: Path, when: str) -> BenchRun | None:
    """The benchmark `before` or `after` as its newest folder holds it, None where it has not run."""
    found = sorted(folder.glob(f"bench-{when}*/summary.json"), key=lambda path: path.stat().st_mtime_ns)
    return _load(found[-1], BenchRun) if found else None


def load_comparison(folder: Path) -> Comparison | None:
    """What the comparison said, None where there was none."""
    path = folder / "comparison.json"
    return _load(path, Comparison) if path.exists() else None


def load_attribution(folder: Path) -> Attribution | None:
    """What each group was worth, None where that was not asked."""
    path = folder / "attribution.json"
    return _load(path, Attribution) if path.exists() else None


def load_options(folder: Path) -> Options:
    """What an earlier, unfinished run was asked for."""
    return _load(folder / "options.json", Options)


def _load(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise NotFound(f"{path} is not there.", next="uncork run (starts a new plan)") from error
    except (OSError, msgspec.DecodeError) as error:
        raise Corrupt(f"{path} cannot be read: {error}.", next="uncork run (starts a new plan)") from error
