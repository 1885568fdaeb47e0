"""On the dumps nothing of weight is reported that docs/audit.md does not argue."""

from pathlib import Path

import pytest

from uncork.audit import audit
from uncork.host.attached import AttachedHost
from uncork.host.recording import RecordingHost
from uncork.model.findings import Answer, Priority

DUMPS = Path(__file__).parents[2] / "../shared/dumps"
ARGUED = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.skipif(not DUMPS.is_dir(), reason="the shared folder is absent")


def _dumps():
    folder = DUMPS / "asus-esc8000a-e13p-8x-rtxpro6000"
    single = sorted(path for path in DUMPS.rglob("*") if path.is_file() and path.name != "manifest.json")
    return [folder, *(path for path in single if path.parent != folder)] if DUMPS.is_dir() else []


@pytest.mark.parametrize("path", _dumps(), ids=lambda path: path.name)
def test_every_p0_and_p1_on_a_dump_is_argued(path):
    found = audit(RecordingHost(AttachedHost([path])))

    weighty = {
        one.id
        for one in found.results
        if one.answer is Answer.FAIL and one.priority in (Priority.P0, Priority.P1)
    }
    assert [id for id in sorted(weighty) if f"| `{path.name}` | `{id}` |" not in ARGUED] == []
    assert {name: ending for name, ending in found.explorers.items() if "crashed" in ending} == {}
    assert [one.reason for one in found.results if "the check itself failed" in one.reason] == []
