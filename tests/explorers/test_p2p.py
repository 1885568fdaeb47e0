"""What attached collective tests say: right sums, wrong ones, or nothing that proves either."""

import pytest

from uncork.explorers import p2p
from uncork.host.attached import AttachedHost

RANKS = "".join(
    f"# Rank  {n} Group  0 Pid {n} on node1 device  {n} [0000:0{n}:00] NVIDIA H100\n" for n in range(2)
)
ROW = "     1048576        262144     float     sum      -1    45.9   22.86   40.00      {wrong}\n"


@pytest.mark.parametrize(
    ("text", "wrong_values"),
    [
        (RANKS + ROW.format(wrong=0) + "# Out of bounds values : 0 OK\n", 0),
        (RANKS + ROW.format(wrong=3) + "# Out of bounds values : 3 FAILED\n", 3),
        (RANKS + ROW.format(wrong=7) + ROW.format(wrong=2), 9),
        (RANKS + ROW.format(wrong="N/A"), -1),
        (RANKS.splitlines()[0] + "\n" + ROW.format(wrong=0) + "# Out of bounds values : 0 OK\n", -1),
    ],
    ids=["right", "wrong", "cut before the summary", "not checked", "one rank proves nothing"],
)
def test_wrong_values_of_nccl_tests(tmp_path, text, wrong_values):
    (tmp_path / "all_reduce_perf.log").write_text(text)

    assert p2p.explore(AttachedHost([tmp_path])).wrong_values == wrong_values
