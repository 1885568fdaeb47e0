"""The GPU side of the catalogue is whole, and folklore is never planned."""

import json
from functools import cache
from pathlib import Path

import pytest
from tests.hosts import HERE, load

from uncork import checks
from uncork.audit import judge
from uncork.explorers import explore
from uncork.model.findings import Answer, Result

CATALOGUE = Path(__file__).parents[2] / "../shared/facts/checks.json"
DIMENSIONS = {
    "gpu-driver": "driver",
    "cuda-memory": "cuda_memory",
    "pcie": "pcie",
    "power": "power",
    "nccl-p2p": "p2p",
    "engine-python": "engine",
    "nvlink": "nvlink",
}

HOSTS = sorted(path for name in DIMENSIONS.values() for path in (HERE / name).glob("*.json"))


@cache
def answers() -> list[tuple[str, Result]]:
    """Every result on every example host of these dimensions, with the host's name."""
    return [(path.stem, result) for path in HOSTS for result in judge(explore(load(path)[0]).facts)]


@pytest.mark.skipif(not CATALOGUE.is_file(), reason="the catalogue of checks is not beside the checkout")
def test_every_entry_is_a_check_of_its_priority_and_dimension():
    catalogue = json.loads(CATALOGUE.read_text(encoding="utf-8"))
    wanted = {
        entry["id"]: (DIMENSIONS[entry["dimension"]], entry["priority"])
        for entry in catalogue
        if entry["dimension"] in DIMENSIONS
    }

    ours = {
        id: (one.dimension, str(one.priority))
        for id, one in checks.load().items()
        if one.dimension in DIMENSIONS.values() and id in wanted
    }

    assert ours == wanted


def test_folklore_and_pure_facts_ask_for_no_write():
    planned = {result.id for _, result in answers() if result.answer is Answer.FAIL and result.changes}
    folklore = {id for id, one in checks.load().items() if one.folklore.startswith("yes")}

    assert planned & folklore == set()


def test_no_check_breaks_on_any_example_host():
    broken = [
        f"{host}: {result.id}: {result.reason}"
        for host, result in answers()
        if "the check itself failed" in result.reason
    ]

    assert broken == []


def test_a_healthy_host_has_no_finding_above_p2():
    facts = explore(load(HERE / "gpus-right.json")[0]).facts

    serious = [
        (result.id, result.says)
        for result in judge(facts)
        if result.answer is Answer.FAIL
        and result.priority in ("P0", "P1")
        and result.dimension in DIMENSIONS.values()
    ]

    assert serious == []
