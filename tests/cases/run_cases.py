"""Give every public case to the audit and print what it must and must not say: python tests/cases/run_cases.py

A case is given without `case.json` and without the files that show the state after the cure. Expected ids must
be answered *fail*, or *unknown* with the text that would settle it; none of the others may be *fail*.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from uncork.audit import audit
from uncork.host.attached import AttachedHost
from uncork.host.recording import RecordingHost
from uncork.model.findings import Answer, Result

CASES = Path(__file__).parents[2] / "../shared/cases"


@dataclass
class Outcome:
    """What the audit said about one case."""

    name: str
    weak: bool
    failed: list[str] = field(default_factory=list)  # expected and answered fail
    unknown: dict[str, str] = field(default_factory=dict)  # expected and unknown: the reason
    missing: dict[str, str] = field(default_factory=dict)  # expected and anything else: the answer
    forbidden: dict[str, str] = field(default_factory=dict)  # must not be fail and is: what it says
    also: list[str] = field(default_factory=list)  # other P0 and P1 findings
    broken: dict[str, str] = field(default_factory=dict)  # explorers that crashed

    @property
    def green(self) -> bool:
        return not self.missing and not self.forbidden and not self.broken


def files(folder: Path) -> list[Path]:
    """What a reporter attached before the cure."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.name != "case.json" and "after" not in path.name and "fix" not in path.name
    ]


def best(results: list[Result]) -> Answer | None:
    """The weightiest answer over the subjects of a check."""
    answers = {one.answer for one in results}
    return next(
        (one for one in (Answer.FAIL, Answer.UNKNOWN, Answer.PASS, Answer.NOT_APPLICABLE) if one in answers),
        None,
    )


def run(folder: Path, given: list[Path] | None = None) -> Outcome:
    """Audit one case (or `given` in place of its files) and hold it against its `case.json`."""
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    found = audit(RecordingHost(AttachedHost(given or files(folder))))
    outcome = Outcome(folder.name, case["evidence_grade"] == "weak")
    by_id: dict[str, list[Result]] = {}
    for one in found.results:
        by_id.setdefault(one.id, []).append(one)
    for id in case["expected_findings"]:
        results = by_id.get(id, [])
        answer = best(results)
        if answer is Answer.FAIL:
            outcome.failed.append(id)
        elif answer is Answer.UNKNOWN:
            outcome.unknown[id] = next(one.reason for one in results if one.answer is Answer.UNKNOWN)
        else:
            reason = next((one.reason or one.says for one in results), "no such check")
            outcome.missing[id] = f"{answer or 'absent'}: {reason}"
    for id in case["must_not_report"]:
        wrong = [one for one in by_id.get(id, []) if one.answer is Answer.FAIL]
        if wrong:
            outcome.forbidden[id] = wrong[0].says
    known = {*case["expected_findings"], *case["must_not_report"]}
    outcome.also = sorted(
        {
            f"{one.id} ({one.priority})"
            for one in found.results
            if one.answer is Answer.FAIL and one.priority in ("P0", "P1") and one.id not in known
        }
    )
    outcome.broken = {name: ending for name, ending in found.explorers.items() if "crashed" in ending}
    return outcome


def all_cases() -> list[Path]:
    """Folders of cases, none where the shared folder is absent."""
    return sorted(path.parent for path in CASES.glob("*/case.json"))


def main() -> int:
    folders = [path for path in all_cases() if not sys.argv[1:] or path.name.startswith(tuple(sys.argv[1:]))]
    if not folders:
        print(f"No cases: {CASES} is absent or empty.")
        return 0
    outcomes = [run(folder) for folder in folders]
    for one in outcomes:
        mark = "ok  " if one.green else ("weak" if one.weak else "MISS")
        print(f"{mark} {one.name}")
        if one.failed:
            print(f"       fail     {', '.join(one.failed)}")
        for title, ids in (
            ("unknown", one.unknown),
            ("missing", one.missing),
            ("FALSE", one.forbidden),
            ("CRASH", one.broken),
        ):
            for id, text in ids.items():
                print(f"       {title:<8} {id}: {text[:150]}")
        if one.also:
            print(f"       also     {', '.join(one.also)}")
    scored = [one for one in outcomes if not one.weak]
    green = sum(one.green for one in scored)
    fail, unknown, missing, wrong = (
        sum(len(getattr(one, name)) for one in scored)
        for name in ("failed", "unknown", "missing", "forbidden")
    )
    print(
        f"\n{green} of {len(scored)} scored cases; of {fail + unknown + missing} expected ids {fail} fail, "
        f"{unknown} unknown with what would settle them, {missing} missing; {wrong} false."
    )
    return 0 if green == len(scored) else 1


if __name__ == "__main__":
    sys.exit(main())
