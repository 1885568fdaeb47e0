"""A suite keeps every finished level, whatever ends it, and goes on where it stopped."""

import json
import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from uncork.bench.reference_server import reference_server
from uncork.bench.spec import Level, SuiteSpec, full_levels, parse_levels, quick_levels
from uncork.bench.store import Store
from uncork.bench.suite import Reading, plan_order, run_suite, stored_spec
from uncork.errors import BadInput, NoServer, ServerDied
from uncork.model.bench import METRICS, SCHEMA, BenchRun

FAST = {"ttft_us": 2_000, "itl_us": 1_000}


def spec_for(url, **fields):
    fields = {
        "levels": parse_levels("1,4"),
        "requests": 6,
        "input_len": 8,
        "output_len": 8,
        "repeats": 2,
        "cooldown_s": 0.0,
        "warmup": False,
        "processes": 1,
        **fields,
    }
    return SuiteSpec(endpoint=url, **fields)


def test_a_run_holds_every_level_and_repeat_and_its_requests(tmp_path):
    shown = []
    with reference_server(**FAST) as server:
        run = run_suite(spec_for(server.url), out=tmp_path, progress=shown.append)
    lines = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text("utf-8").splitlines()]

    assert [(level.level, level.repeat) for level in run.levels] == [
        ("c1", 0),
        ("c1", 1),
        ("c4", 0),
        ("c4", 1),
    ]
    assert (run.finished, run.schema, run.metrics, run.model) == (True, SCHEMA, METRICS, "reference")
    assert sorted(level.order for level in run.levels) == [0, 1, 2, 3]
    assert len(lines) == 24
    assert msgspec.json.decode((tmp_path / "summary.json").read_bytes(), type=BenchRun) == run
    assert {state.total for state in shown} == {4}


def test_what_is_finished_is_not_run_again(tmp_path):
    with reference_server(**FAST) as server:
        spec = spec_for(server.url)
        first = run_suite(spec, out=tmp_path)
        last = max(first.levels, key=lambda level: level.order)
        (tmp_path / "levels" / f"{last.level}.{last.repeat}.json").unlink()
        with (tmp_path / "requests.jsonl").open("ab") as file:
            file.write(b'{"level":"c4","half a li')
        second = run_suite(spec, out=tmp_path)
    lines = (tmp_path / "requests.jsonl").read_text("utf-8").splitlines()
    again = {(level.level, level.repeat): level for level in second.levels}

    assert [json.loads(line)["level"] for line in lines].count("c1") == 12
    assert len(lines) == 24
    kept = [level for level in first.levels if level is not last]
    assert all(again[level.level, level.repeat] == level for level in kept)
    assert second.run_id == first.run_id


def test_another_spec_does_not_go_into_the_same_folder(tmp_path):
    with reference_server(**FAST) as server:
        run_suite(spec_for(server.url, repeats=1), out=tmp_path)
        with pytest.raises(BadInput, match="another seed"):
            run_suite(spec_for(server.url, repeats=1, seed=9), out=tmp_path)


def test_levels_of_other_settings_do_not_go_into_the_same_run(tmp_path):
    with reference_server(**FAST) as server:
        spec = spec_for(server.url, repeats=1)
        first = run_suite(spec, out=tmp_path, fingerprint=lambda: {"flag --tp": "1"})
        with pytest.raises(BadInput, match="flag --tp: 1 → 2"):
            run_suite(spec, out=tmp_path, fingerprint=lambda: {"flag --tp": "2"})
        again = run_suite(
            spec, out=tmp_path, fingerprint=lambda: {"flag --tp": "1", "notes": {"boot": "another"}}
        )

    assert again.levels == first.levels


def test_no_server(tmp_path):
    with pytest.raises(NoServer) as caught:
        run_suite(spec_for("http://127.0.0.1:1"), out=tmp_path / "run")

    assert "nothing was measured" in caught.value.says
    assert caught.value.exit == 51


@pytest.mark.parametrize("when", [1, 2, 3])
def test_a_server_that_dies_costs_no_finished_level(tmp_path, when):
    spec_fields = {"levels": parse_levels("1,2"), "requests": 8, "order": "given"}
    with reference_server(**FAST) as server:

        def kill_in_time(state):
            if state.done == when and server.process.poll() is None:
                server.process.kill()
                server.process.wait()

        with pytest.raises(ServerDied) as caught:
            run_suite(spec_for(server.url, **spec_fields), out=tmp_path, progress=kill_in_time)
    stored = msgspec.json.decode((tmp_path / "summary.json").read_bytes(), type=BenchRun)

    assert caught.value.exit == 52
    assert not stored.finished
    assert "ServerDied" in stored.stopped
    assert len(stored.levels) >= when
    assert all(not level.failed for level in stored.levels)
    assert set(Store(tmp_path).finished()) == {(level.level, level.repeat) for level in stored.levels}


def test_a_killed_client_goes_on_where_it_was(tmp_path):
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, '.');"
        "from tests.bench.test_suite import spec_for; from uncork.bench.suite import run_suite;"
        "run_suite(spec_for(sys.argv[1], repeats=10), out=Path(sys.argv[2]))"
    )
    with reference_server(**FAST) as server:
        child = subprocess.Popen([sys.executable, "-c", program, server.url, str(tmp_path)])
        while len(list((tmp_path / "levels").glob("*.json"))) < 5 and child.poll() is None:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.wait()
        before = Store(tmp_path).finished()
        run = run_suite(spec_for(server.url, repeats=10), out=tmp_path)
    lines = (tmp_path / "requests.jsonl").read_text("utf-8").splitlines()

    assert len(before) >= 5
    assert {(level.level, level.repeat): level for level in run.levels}.items() >= before.items()
    assert len(lines) == 20 * 6
    assert {json.loads(line)["repeat"] for line in lines} == set(range(10))


def test_credentials_are_not_stored(tmp_path):
    spec = spec_for("http://127.0.0.1:1", headers={"Authorization": "Bearer s3cret", "X-Team": "a"})

    assert stored_spec(spec)["headers"] == {"Authorization": "(redacted)", "X-Team": "a"}
    with reference_server(**FAST) as server:
        run_suite(msgspec.structs.replace(spec, endpoint=server.url, repeats=1), out=tmp_path)
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    assert b"s3cret" not in everything


def test_interleaved_repeats_hold_every_level_once():
    spec = spec_for("http://x", levels=full_levels(), repeats=3, seed=4)
    plan = plan_order(spec)
    names = [level.name for level in spec.levels]
    thirds = [plan[i : i + len(names)] for i in range(0, len(plan), len(names))]

    assert [sorted(level.name for level, _ in third) for third in thirds] == [sorted(names)] * 3
    assert [{repeat for _, repeat in third} for third in thirds] == [{0}, {1}, {2}]
    assert len({tuple(level.name for level, _ in third) for third in thirds}) == 3
    assert plan == plan_order(spec)


@pytest.mark.parametrize(
    "levels",
    [
        full_levels(),
        quick_levels(),
        [Level(concurrency=c, input_len=i) for c in (1, 8) for i in (512, 8192)],
        parse_levels("1,8", "0.5,8"),
    ],
)
def test_level_names_are_distinct(levels):
    assert len({level.name for level in levels}) == len(levels)


def test_two_levels_of_one_name_are_refused(tmp_path):
    with pytest.raises(BadInput, match="two levels named c1"):
        run_suite(spec_for("http://127.0.0.1:1", levels=parse_levels("1,1")), out=tmp_path)


@pytest.mark.parametrize("bad", [("0", ""), ("x", ""), ("", "-1"), ("1,,0", "")])
def test_levels_must_be_positive_numbers(bad):
    with pytest.raises(BadInput):
        parse_levels(*bad)


def test_a_watch_sees_every_level_and_writes_on_it(tmp_path):
    import contextlib

    entered = []

    @contextlib.contextmanager
    def watch(level, repeat):
        seen = Reading()
        entered.append((level, repeat))
        yield seen
        seen.telemetry = {"clock_mhz": 1980}
        seen.disturbances = ("somebody compiled",)

    with reference_server(**FAST) as server:
        run = run_suite(spec_for(server.url), out=tmp_path, watch=watch, fingerprint=lambda: {"gpu": "none"})

    assert sorted(entered) == [("c1", 0), ("c1", 1), ("c4", 0), ("c4", 1)]
    assert [level.disturbances[-1] for level in run.levels] == ["somebody compiled"] * 4
    assert run.levels[0].telemetry == {"clock_mhz": 1980}
    assert run.fingerprint == {"gpu": "none"}


def test_warm_up_keeps_what_it_saw(tmp_path):
    with reference_server(**FAST) as server:
        run = run_suite(spec_for(server.url, repeats=1, warmup=True), out=tmp_path)

    assert len(run.warmup["waves"]) >= 3
    assert run.warmup["lengths"]["per_word"] == 1.0
    assert {level.output_tokens for level in run.levels} == {48}


def test_a_folder_that_cannot_be_written(tmp_path):
    from uncork.errors import MeasureFailed

    if os.geteuid() == 0:
        (tmp_path / "file").write_text("", encoding="utf-8")
        where = tmp_path / "file" / "run"
    else:
        tmp_path.chmod(0o500)
        where = tmp_path / "run"
    with reference_server(**FAST) as server, pytest.raises(MeasureFailed):
        run_suite(spec_for(server.url), out=where)
