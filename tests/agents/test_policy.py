"""Consent given beforehand in a file: of root, exact, for low risk only; in doubt it counts for nothing."""

import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from msgspec.structs import replace
from tests.agents.test_consent import Person, start_approval, the_plan, waiting_plan
from tests.plan.plans import apply_step

from uncork.agents import policy
from uncork.loop.run import Options, artefacts, save
from uncork.model.plan import PlannedChange
from uncork.plan.approvals import approved

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's file counts")

LOW = PlannedChange("sysctl", "vm.swappiness", "1", before="60", risk="low", scope="runtime")
TEXT = """
until = 2999-12-31

[[allow]]
knob = "sysctl"
target = "vm.swappiness"
want = ["1", "0"]
"""


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("UNCORK_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "executable", "/bin/true")  # the step's own process is not what is asked here
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.fixture
def file(tmp_path) -> Path:
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    path = folder / "consent.toml"
    path.write_text(TEXT, encoding="utf-8")
    path.chmod(0o644)
    return path


def start(state: Path, file: Path, *changes: PlannedChange, person: Person | None = None, **more: Any) -> Any:
    waiting_plan(state, apply_step("apply-kernel-sysctl", *(changes or (LOW,))))
    return start_approval(state, person, allowed=file, **more)


@pytest.mark.parametrize("person", [None, Person(yes=False)], ids=["cannot ask", "would say no"])
def test_what_the_file_names_is_approved_without_a_question(state, file, person):
    said = start(state, file, person=person)

    assert not said.is_error, said.content
    assert person is None or person.asked == []
    plan = the_plan(state)
    assert approved(plan)
    assert plan.approvals[-1].how == f"allowed beforehand by {file} until 2999-12-31"


@pytest.mark.parametrize(
    "change",
    [
        replace(LOW, want="2"),
        replace(LOW, target="vm.swappiness2"),
        replace(LOW, knob="thp"),
        replace(LOW, risk="medium"),
        replace(LOW, risk=""),
        replace(LOW, scope="file"),
        replace(LOW, scope=""),
        replace(LOW, owners=("tuned",)),
        replace(LOW, before=None),
    ],
)
def test_one_change_that_the_file_does_not_cover_and_the_person_is_asked(state, file, change):
    person = Person(yes=False)

    said = start(state, file, LOW, change, person=person)

    assert said.is_error and len(person.asked) == 1
    assert the_plan(state).approvals == ()


def test_a_change_of_high_risk_needs_the_terminal_whatever_the_file_says(state, file):
    said = start(state, file, replace(LOW, risk="high"), person=Person(yes=True))

    assert said.is_error and "at a terminal" in said.content[0].text


def test_a_gate_that_tests_less_is_not_covered(state, file):
    waiting_plan(state, apply_step("apply-kernel-sysctl", LOW))
    save(artefacts(state, the_plan(state).id), "options.json", Options(gate="quick"))
    person = Person(yes=False)

    said = start_approval(state, person, allowed=file)

    assert said.is_error and len(person.asked) == 1
    assert the_plan(state).approvals == ()


def test_the_digest_must_still_be_named(state, file):
    said = start(state, file, digest="00000000")

    assert said.is_error and the_plan(state).approvals == ()


def test_a_consent_that_has_ended_covers_nothing(state, file):
    file.write_text(TEXT.replace("2999-12-31", "2020-01-01"), encoding="utf-8")

    said = start(state, file)

    assert said.is_error and "cannot ask" in said.content[0].text
    assert "ended" in policy.uncovered(policy.read(file), the_plan(state), date.today())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.chmod(0o664),
        lambda path: path.chmod(0o646),
        lambda path: os.chown(path, 65534, 0),
        lambda path: path.parent.chmod(0o777),
        lambda path: os.chown(path.parent, 65534, 0),
        lambda path: (path.rename(path.with_name("x")), path.symlink_to(path.with_name("x"))),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_text("", encoding="utf-8"),
        lambda path: path.write_text(TEXT + "everything = true\n", encoding="utf-8"),
        lambda path: path.write_text(TEXT.replace("until = 2999-12-31", ""), encoding="utf-8"),
        lambda path: path.write_text(TEXT.replace("2999-12-31", "'for ever'"), encoding="utf-8"),
        lambda path: path.write_text(TEXT + "#" * 70_000, encoding="utf-8"),
    ],
    ids=[
        *(
            "missing",
            "group",
            "others",
            "owner",
            "folder",
            "owner of the folder",
            "link",
            "fifo",
            "directory",
        ),
        *("bytes", "empty", "unknown key", "no end", "no date", "too long"),
    ],
)
def test_a_file_in_doubt_approves_nothing(state, file, spoil):
    person = Person(yes=True)
    spoil(file)

    said = start(state, file, person=person)

    assert said.is_error and "counts for nothing" in said.content[0].text
    assert person.asked == []
    assert the_plan(state).approvals == ()


def test_a_server_does_not_start_with_a_file_in_doubt(file):
    file.chmod(0o666)

    argv = [sys.executable, "-m", "uncork.cli.main", "mcp", "--allow-apply", "--consent", str(file)]
    ended = subprocess.run(argv, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL, check=False)

    assert ended.returncode != 0 and "can be written by others than root" in ended.stderr


@pytest.mark.parametrize(
    "words",
    [("--consent", "/nowhere"), ("--token-file", "/nowhere"), ("--allow-apply", "--token-file", "/x")],
)
def test_an_option_that_would_do_nothing_is_refused(words):
    argv = [sys.executable, "-m", "uncork.cli.main", "mcp", *words]
    ended = subprocess.run(argv, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL, check=False)

    assert ended.returncode == 2 and "goes with" in ended.stderr
