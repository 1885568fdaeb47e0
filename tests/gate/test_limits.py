"""The limits against what was published: healthy hosts pass, broken ones do not."""

import json
from pathlib import Path

import pytest

from uncork.gate.fabric import Path as Way
from uncork.gate.limits import ceiling_gb_s, floor, hard_floor_gb_s

FACTS = Path(__file__).parents[2] / "../shared/facts/p2p-matrices.json"
GEN5, GEN4 = 63.02, 31.51


def pcie(generation, kind="same-root", platform=""):
    return Way(kind, (), {5: GEN5, 4: GEN4}[generation], generation, 256, platform)


def halves(count, near, far):
    return lambda i, j: near if i * 2 // count == j * 2 // count else far


def everywhere(path):
    return lambda i, j: path


HEALTHY = {
    "5090x8+pro6000": everywhere(pcie(5)),
    "4090x8-dual-epyc-on": halves(8, pcie(4), pcie(4, "cross-socket")),
    "a6000x6": halves(6, pcie(4), pcie(4, "cross-socket")),
    "rtx6000ada-x2": everywhere(pcie(4)),
    "pro6000-asus-pex890-uni": halves(8, pcie(5), pcie(5, "cross-socket", "turin")),
    "h100pcie-nvbridge": everywhere(Way("nvlink", (), 300.0)),
    "a100sxm-8": everywhere(Way("nvlink", (), 300.0)),
    "mi300x-p2p": everywhere(Way("xgmi", (), 64.0)),
}
BROKEN = {
    "5090x2-small-bar": everywhere(pcie(5)),
    "5090x2-no-p2p": everywhere(pcie(5)),
    "4090x2-degraded": everywhere(pcie(4)),
}


def published(name):
    if not FACTS.exists():
        pytest.skip("the published matrices are not beside this checkout")
    entries = json.loads(FACTS.read_text(encoding="utf-8"))["entries"]
    rows = next(entry["matrix"] for entry in entries if entry["id"] == name)
    return [(i, j, value) for i, row in enumerate(rows) for j, value in enumerate(row) if i != j and value]


def below(path, value):
    held = floor(path)
    hard = hard_floor_gb_s(path)
    return value < hard or (held is not None and not held.advisory and value < held.fail_gb_s)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_published_host_passes_its_first_run(name):
    failing = [(i, j, value) for i, j, value in published(name) if below(HEALTHY[name](i, j), value)]

    assert failing == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_published_host_fails_every_pair(name):
    cells = published(name)

    assert [cell for cell in cells if not below(BROKEN[name](*cell[:2]), cell[2])] == []


@pytest.mark.parametrize("name", [*HEALTHY, *BROKEN])
def test_no_published_figure_is_above_its_ceiling(name):
    way = (HEALTHY | BROKEN)[name]

    assert [cell for cell in published(name) if cell[2] > ceiling_gb_s(way(*cell[:2]))] == []


def test_the_ceiling_is_line_rate_less_packet_headers():
    # 63.02 × 256 / 276 × 1.01
    assert round(ceiling_gb_s(pcie(5)), 1) == 59.0


def test_a_path_of_unknown_rate_has_neither_floor_nor_ceiling():
    unknown = Way("unknown", ("a tx", "b rx"))

    assert (floor(unknown), ceiling_gb_s(unknown), hard_floor_gb_s(unknown)) == (None, None, None)


def test_every_floor_says_where_it_comes_from():
    for kind in (
        "same-switch",
        "same-root",
        "same-socket",
        "cross-socket",
        "nvlink",
        "xgmi",
        "numa-local",
        "other",
    ):
        held = floor(Way(kind, (), 63.02, 5))

        assert held is not None
        assert held.source
