"""The catalogue's host dimensions are there, whole; where the audit weighs an entry differently, the docs say so."""

import json
from pathlib import Path

import pytest

from uncork import checks

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / "../shared/facts/checks.json"
PAGE = ROOT / "docs" / "checks-left-out.md"
DIMENSIONS = {
    "uefi-bios": "firmware",
    "container-lxc": "container",
    "kernel-knobs": "kernel",
    "kernel-version": "kernel_version",
    "numa": "numa",
    "storage": "storage",
    "network-rdma": "network",
}

if not CATALOGUE.is_file():
    pytest.skip("the shared reference material is not here", allow_module_level=True)
ENTRIES = [
    entry for entry in json.loads(CATALOGUE.read_text(encoding="utf-8")) if entry["dimension"] in DIMENSIONS
]
KNOWN = checks.load()


def test_every_id_is_there_in_its_dimension():
    assert len(ENTRIES) == 125
    assert {
        entry["id"]: KNOWN[entry["id"]].dimension if entry["id"] in KNOWN else "absent" for entry in ENTRIES
    } == {entry["id"]: DIMENSIONS[entry["dimension"]] for entry in ENTRIES}


def test_no_id_is_invented():
    every = {entry["id"] for entry in json.loads(CATALOGUE.read_text(encoding="utf-8"))}

    assert {id for id, one in KNOWN.items() if one.dimension in DIMENSIONS.values()} - every == set()


def test_another_weight_or_class_is_argued_in_the_docs():
    page = PAGE.read_text(encoding="utf-8")
    differs = [
        entry["id"]
        for entry in ENTRIES
        if (KNOWN[entry["id"]].priority, KNOWN[entry["id"]].change_class)
        != (entry["priority"], entry["change_class"])
    ]

    assert [id for id in differs if id not in page] == []


def test_a_docstring_says_how_to_fix_and_to_undo():
    own = [one for one in KNOWN.values() if one.dimension in DIMENSIONS.values()]

    assert [one.id for one in own if not (one.fix and one.undo and one.title.endswith("."))] == []


def test_folklore_is_marked_where_the_catalogue_marks_it():
    marked = [entry["id"] for entry in ENTRIES if entry["folklore"]["verdict"] in ("yes", "partly")]

    assert [id for id in marked if not KNOWN[id].folklore] == []
