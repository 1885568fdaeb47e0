"""What a report tells of one run: everything that was stored about it, None where there is nothing."""

from typing import Any

import msgspec

from uncork.model.bench import BenchRun
from uncork.model.bound import Hardware, ModelBytes, Parallel
from uncork.model.comparison import Comparison
from uncork.model.findings import Audit
from uncork.model.gate import GateResult
from uncork.model.imported import Imported
from uncork.model.plan import Plan
from uncork.record.topology import Topology


class Limits(msgspec.Struct, frozen=True):
    """What the bound of a run is computed from, as the loop kept it in bound.json."""

    model: ModelBytes
    hardware: Hardware
    parallel: Parallel


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One run as it was stored. `rows` are journal rows of this plan, `undo` the commands that put it back."""

    name: str
    plan: Plan | None = None
    audit: Audit | None = None
    gate_before: GateResult | None = None
    gate_after: GateResult | None = None
    before: BenchRun | None = None
    after: BenchRun | None = None
    imported: tuple[Imported, ...] = ()  # levels that another tool measured
    comparison: Comparison | None = None
    topology: Topology | None = None
    limits: Limits | None = None
    record: str = ""  # where the record lies, empty where there is none
    chain_head: str = ""
    rows: tuple[dict[str, Any], ...] = ()
    undo: dict[str, str] = {}
    written_at: str = ""

    @property
    def host(self) -> str:
        """What the host is called."""
        if self.audit:
            return self.audit.host
        return self.plan.host if self.plan else self.name
