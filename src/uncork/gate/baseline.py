"""The baseline: an earlier result of the same host in the same boot, every sample kept."""

from pathlib import Path

import msgspec

from uncork.errors import StateUnwritable
from uncork.gate.fingerprint import differences
from uncork.model.gate import Baseline, Fingerprint, GateResult
from uncork.model.unknown import Unknown
from uncork.state import state_dir, write_whole


def of(result: GateResult) -> Baseline:
    """What a later run compares with."""
    return Baseline(
        fingerprint=result.fingerprint,
        taken_at=result.started_at,
        verdict=result.verdict,
        depth=result.depth,
        access=result.access,
        matrices=result.matrices,
        patterns=result.patterns,
        figures=result.figures,
        links=result.links,
    )


def usable(baseline: Baseline, now: Fingerprint) -> str:
    """Why this baseline cannot be compared with; empty where it can."""
    differ = differences(baseline.fingerprint, now)
    return f"the baseline of {baseline.taken_at} differs in {', '.join(differ)}" if differ else ""


def path(fabric: str, folder: Path | None = None) -> Path:
    """Where the baseline of a fabric is stored."""
    return (folder or state_dir()) / "gate" / f"baseline-{fabric}.json"


def save(result: GateResult, folder: Path | None = None) -> Path:
    """Store a result as the baseline of its fabric; replaces the one before. Raises `StateUnwritable`."""
    target = path(result.fabric, folder)
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(target, msgspec.json.format(msgspec.json.encode(of(result)), indent=1))
    except OSError as error:
        raise StateUnwritable(
            f"The baseline {target} cannot be written ({error.strerror}); the verdict stands.",
            next="set UNCORK_STATE to a folder that you may write",
        ) from error
    return target


def load(fabric: str, folder: Path | None = None) -> Baseline | Unknown:
    """The stored baseline of a fabric; Unknown where there is none or it cannot be read."""
    target = path(fabric, folder)
    try:
        return msgspec.json.decode(target.read_bytes(), type=Baseline)
    except FileNotFoundError:
        return Unknown("no baseline is stored", absent=True)
    except (OSError, msgspec.MsgspecError) as error:
        return Unknown(f"{target}: {error}")
