"""uncork report and uncork record: from what a run stored to what people read."""

import html.parser
import json
import re

import msgspec
import pytest
from tests.record import largest
from typer.testing import CliRunner

from uncork.cli import record, report
from uncork.errors import BadInput, Corrupt, NotFound
from uncork.record.report.page import POLICY, page

RUN = CliRunner()


class Outline(html.parser.HTMLParser):
    """Elements that were opened, and every address that any attribute holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "xlink:href", "data", "srcset"):
                self.addresses.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)


@pytest.fixture(scope="module")
def shown() -> str:
    return page([largest.story()])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run's folder as the loop leaves it."""
    path = tmp_path_factory.mktemp("run")
    story = largest.story()
    for name, part in {
        "audit.json": story.audit,
        "gate-before.json": story.gate_before,
        "gate-after.json": story.gate_after,
        "comparison.json": story.comparison,
        "topology.json": story.topology,
        "bound.json": story.limits,
        "plan.json": story.plan,
        "undo.json": story.undo,
        "bench-before/summary.json": story.before,
        "bench-after/summary.json": story.after,
    }.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(msgspec.json.encode(part))
    return path


def test_the_page_needs_nothing_but_itself(shown):
    outline = Outline(shown)

    assert outline.tags & {"script", "link", "iframe", "object", "embed", "img", "base"} == set()
    assert [one for one in outline.addresses if not one.startswith("#")] == []
    assert outline.handlers == []
    assert f'content="{POLICY}"' in shown.replace("&#x27;", "'")
    assert re.findall(r"url\((?!#)", shown) == []


def test_the_largest_run_is_under_two_megabytes(shown):
    assert len(shown.encode()) < 2_000_000


def test_a_minute_is_enough(shown):
    start = shown[shown.index('id="verdict"') : shown.index('id="speed"')]

    worst = {one.id for one in largest.audit().results if one.answer == "fail" and one.priority == "P0"}

    assert f"{len(worst)} P0" in start
    assert "8 values, until the next reboot" in start
    assert "Improved: output tokens/s +31" in start
    assert "A simulation of 8× RTX PRO 6000" in start
    assert "uncork rollback" in start


def test_every_part_tells_what_the_run_stored(shown):
    assert "setpci -s 0000:10:00.0 ECAP_ACS+6.w=001d" in shown  # undo by hand
    assert "skip the governor, it is &quot;theirs&quot; &lt;b&gt;now&lt;/b&gt;" in shown  # their own words
    assert "Gen5 x8 (Gen5 x16)" in shown  # the link that lost lanes
    assert "gpus 0 sm_clock_mhz mean" in shown
    assert "journal 3: applied" in shown
    assert "+100%▲" in shown  # the repaired link
    assert "all-reduce excess" in shown


def test_hostile_text_stays_text():
    shown = page([largest.hostile()])
    outline = Outline(shown)

    assert outline.tags & {"script", "img"} == set()
    assert outline.handlers == []
    assert "&lt;script&gt;window.pwned = 1&lt;/script&gt;" in shown
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", shown) == []
    assert "\\x1b[31mred" in shown
    assert "(1000000 characters)" in shown
    assert len(shown.encode()) < 2_000_000


def test_a_folder_of_a_run_is_enough(folder, tmp_path):
    out = tmp_path / "r.html"

    done = RUN.invoke(report.app, [str(folder), "-o", str(out), "--json"])

    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["size_bytes"] == out.stat().st_size
    assert "Improved: output tokens/s" in out.read_text(encoding="utf-8")


def test_runs_are_laid_over_each_other(folder, tmp_path):
    out = tmp_path / "r.html"

    done = RUN.invoke(report.app, [str(folder), str(folder / "bench-after"), "-o", str(out)])
    text = out.read_text(encoding="utf-8")

    assert done.exit_code == 0, done.output
    assert "Runs shown here" in text
    assert "bench-after measured" in text
    assert f"{folder.name} before" in text


def test_a_run_that_was_cut_short_shows_the_levels_it_finished(tmp_path):
    run = msgspec.structs.replace(largest.bench(1.0, "r"), levels=(), finished=False, stopped="killed")
    level = largest.bench(1.0, "r").levels[3]
    (tmp_path / "levels").mkdir()
    (tmp_path / "summary.json").write_bytes(msgspec.json.encode(run))
    (tmp_path / "levels/c8.0.json").write_bytes(msgspec.json.encode({"end_byte": 1, "result": level}))

    story = report.stories_of([str(tmp_path)])[0]

    assert story.before and [one.level for one in story.before.levels] == ["c8"]
    assert "This run was cut short: killed" in page([story])


def test_another_tools_result_is_laid_over_a_run(folder, tmp_path):
    theirs = {"backend": "vllm", "model_id": "m", "num_prompts": 100, "completed": 100, "duration": 10.0,
              "max_concurrency": 16, "total_input_tokens": 1000, "total_output_tokens": 9000,
              "request_throughput": 10.0, "output_throughput": 987.5, "total_token_throughput": 1000.0,
              "mean_ttft_ms": 80.0, "median_ttft_ms": 75.0, "p99_ttft_ms": 90.0, "mean_tpot_ms": 12.0,
              "median_tpot_ms": 12.0, "p99_tpot_ms": 15.0, "mean_itl_ms": 12.0, "median_itl_ms": 12.0,
              "p99_itl_ms": 15.0, "date": "20260101-000000"}  # fmt: skip
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(theirs), encoding="utf-8")

    text = page(report.stories_of([str(folder), str(path)]))

    assert "imported: vllm" in text
    assert "987.5 at 16" in text


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"schema": 1}'])
def test_a_file_that_is_no_run_is_a_sentence(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(BadInput, match=r"(?i)no report was written"):
        report.stories_of([str(path)])


def test_a_damaged_artefact_is_said(tmp_path):
    (tmp_path / "audit.json").write_text("{", encoding="utf-8")

    with pytest.raises(Corrupt, match="no report was written"):
        report.stories_of([str(tmp_path)])


def test_without_a_plan_the_next_command_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("UNCORK_STATE", str(tmp_path))

    with pytest.raises(NotFound):
        report.stories_of([])


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path):
    done = RUN.invoke(report.app, [str(largest.MODEL.parent)])

    assert isinstance(done.exception, BadInput)


@pytest.fixture
def sealed(tmp_path, monkeypatch):
    """A plan with a sealed record, in a state folder of its own."""
    from uncork.loop.run import artefacts
    from uncork.model.plan import Kind, PlanDraft, StepDraft
    from uncork.plan.store import Store
    from uncork.record import seal

    monkeypatch.setenv("UNCORK_STATE", str(tmp_path))
    with Store(tmp_path) as store:
        plan = store.create(PlanDraft("node-17", (StepDraft("explore", Kind.EXPLORE, "Look"),)))
        path = artefacts(tmp_path, plan.id) / seal.NAME
        store.seal_record(plan.id, seal.seal(path, "# What holds back node-17\n\x1b[31m"))
    return path


def test_a_record_is_shown_and_verified(sealed):
    shown = RUN.invoke(record.app, ["show"])
    proven = RUN.invoke(record.app, ["verify"])
    listed = RUN.invoke(record.app, ["--json"])

    assert shown.output == "# What holds back node-17\n\\x1b[31m\n"
    assert "as it was sealed" in proven.output
    assert json.loads(listed.output)[0]["record"] == str(sealed)


def test_a_changed_record_is_found(sealed):
    sealed.write_bytes(sealed.read_bytes().replace(b"node-17", b"node-18"))

    done = RUN.invoke(record.app, ["verify"])

    assert isinstance(done.exception, Corrupt)
