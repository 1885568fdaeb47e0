"""docs/compare.md shows what the program prints, and claims what is true of it."""

import re
from pathlib import Path

import msgspec
import pytest
from tests.bench.runs import run
from typer.testing import CliRunner

from uncork.bench import compare, drift, weather
from uncork.cli.compare import app
from uncork.model.comparison import Judgement

PAGE = (Path(__file__).parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")
HOST = {"kernel": "6.8.0-52-generic", "sysctl:vm.swappiness": "60", "flag --max-num-seqs": "256"}
SPEEDS = {
    "before": [100.0, 101.2, 99.4, 100.6],
    "after": [110.3, 109.1, 111.0, 110.1],
    "a1": [100.0], "b1": [104.1], "b2": [101.9], "a2": [95.2], "a3": [93.1], "b3": [95.8], "b4": [94.6], "a4": [88.9],
}  # fmt: skip
STARTS = {
    "before": 0,
    "after": 60,
    "a1": 0,
    "b1": 10,
    "b2": 20,
    "a2": 30,
    "a3": 40,
    "b3": 50,
    "b4": 60,
    "a4": 70,
}
CHANGED = {"after": {"sysctl:vm.swappiness": "1"}}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    for name, speeds in SPEEDS.items():
        made = run({"c1": speeds}, run_id=name, fingerprint=HOST | CHANGED.get(name, {}))
        levels = [
            msgspec.structs.replace(one, started_unix_s=STARTS[name] + 10.0 * one.repeat)
            for one in made.levels
        ]
        (tmp_path / name).mkdir()
        stored = msgspec.structs.replace(made, levels=tuple(levels))
        (tmp_path / name / "summary.json").write_bytes(msgspec.json.encode(stored))
    monkeypatch.chdir(tmp_path)


EXAMPLES = re.findall(r"```console\n\$ uncork compare (.+)\n((?:.|\n)*?)```", PAGE)


def test_there_are_examples():
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize(("argv", "output"), EXAMPLES, ids=[argv for argv, _ in EXAMPLES])
def test_an_example_prints_what_the_page_shows(folders, argv, output):
    done = CliRunner().invoke(app, argv.split(), env={"COLUMNS": "110"})
    said = done.output if done.exception is None or isinstance(done.exception, SystemExit) else ""
    if hasattr(done.exception, "says"):
        said = done.output + done.exception.says + "\n"

    assert [line.rstrip() for line in said.splitlines()] == [line.rstrip() for line in output.splitlines()]


def test_the_figures_of_the_page_are_those_of_the_code():
    assert f"±{compare.EQUIVALENT:.0%}".replace("%", " %") in PAGE
    assert f"{compare.CACHED:.0%}".replace("%", " %") in PAGE
    assert f"{drift.NOTABLE_C:.0f} °C" in PAGE
    assert (
        ", ".join(
            f"{memory:.0f}" for memory in sorted({memory for share, memory in weather.WEATHERS if share})
        )
        in PAGE
    )


def test_every_verdict_is_explained():
    assert all(f"| **{one.value}** |" in PAGE for one in Judgement)
