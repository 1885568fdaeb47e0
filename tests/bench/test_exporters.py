"""What we export, other tools' importers read back; every level and repeat is there."""

import csv
import io
import json

import pytest
from tests.bench.runs import run

from uncork.bench.exporters import FORMATS
from uncork.bench.importers import parse_results

RUN = run({"c1": [100.0, 101.0], "c8": [400.0, 404.0]})


@pytest.mark.parametrize(("form", "tool"), [("vllm", "vllm bench serve"), ("sglang", "sglang bench_serving")])
def test_a_serving_export_comes_back_as_it_was(form, tool):
    back = parse_results(FORMATS[form](RUN))

    assert [one.tool for one in back] == [tool] * 4
    assert [(one.max_concurrency, one.output_tok_s) for one in back] == [
        (1, 100.0),
        (1, 101.0),
        (8, 400.0),
        (8, 404.0),
    ]
    assert back[0].ttft.median_ms == pytest.approx(10.0)
    assert back[0].e2e.p99_ms == pytest.approx(320.0)


def test_rows_are_flat_and_equal_in_csv_and_jsonl():
    rows = [json.loads(line) for line in FORMATS["jsonl"](RUN).splitlines()]
    table = list(csv.DictReader(io.StringIO(FORMATS["csv"](RUN))))

    assert len(rows) == len(table) == 4
    assert list(rows[0]) == list(table[0])
    assert not any(isinstance(value, dict | list) for row in rows for value in row.values())
    assert float(table[3]["output_tok_s"]) == rows[3]["output_tok_s"] == 404.0
