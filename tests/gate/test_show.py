"""What a person and a report see."""

import xml.etree.ElementTree as ET

from uncork.gate import verify
from uncork.gate.show import heat, lines, svg, table
from uncork.gate.simulated import HOSTS, SimulatedFabric, parse_fault
from uncork.model.gate import Cell, Matrix

MATRIX = Matrix(
    "bandwidth", "GB/s", ("a", "b"), (Cell(0, 1, 50.0, (50.0,)), Cell(1, 0, 20.0, (20.0,), unstable=True))
)


def test_a_table_shows_figures_and_how_they_compare():
    assert list(table(MATRIX)) == [
        "bandwidth [GB/s], from row to column",
        "         a        b",
        "a       -     50.0█",
        "b    20.0~       -",
        "█ ≥ 92 % of the best, ▓ ≥ 80 %, ▒ ≥ 50 %, ░ less, ~ unstable, ! invalid",
    ]


def test_a_matrix_too_wide_for_figures_becomes_a_heat_map():
    labels = tuple(f"cpu{at}" for at in range(24))
    cells = tuple(
        Cell(i, j, 100.0 + 50 * (i // 12 != j // 12), ()) for i in range(24) for j in range(24) if i != j
    )

    shown = list(table(Matrix("core to core", "ns", labels, cells, higher_is_better=False)))

    assert shown[1] == "cpu0  ·███████████▒▒▒▒▒▒▒▒▒▒▒▒"
    assert shown[-2] == "from 100.0 to 150.0 ns"


def test_heat_is_a_part_of_the_best_in_either_sense():
    slow = Matrix("latency", "ns", ("a", "b"), (Cell(0, 1, 100.0), Cell(1, 0, 200.0)), higher_is_better=False)

    assert heat(MATRIX) == {(0, 1): 1.0, (1, 0): 0.4}
    assert heat(slow) == {(0, 1): 1.0, (1, 0): 0.5}


def test_everything_fits_80_columns():
    result = verify(
        SimulatedFabric(HOSTS["pro6000-8x"], [parse_fault("slow@gpu2 rx*0.5"), parse_fault("zeros@4-1")])
    )

    too_wide = [line for line in lines(result, 80) if len(line) > 80]

    assert too_wide == []


def test_the_verdict_comes_first_and_what_to_do_last():
    shown = list(lines(verify(SimulatedFabric(HOSTS["pro6000-8x"], [parse_fault("zeros@4-1")])), 80))

    assert shown[0].startswith("FAIL  A simulation of")
    assert shown[-2].startswith("next: ") or shown[-1].startswith("next: ")


def test_the_heat_map_of_a_report_is_well_formed_and_holds_the_figures():
    drawn = ET.fromstring(svg(MATRIX))

    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert {"50.0", "20.0", "a", "b"} <= set(texts)
