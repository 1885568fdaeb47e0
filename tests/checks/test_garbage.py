"""Files that refuse, are gone or hold garbage cost their own answers and nothing else."""

import json
import random
from typing import Any

import pytest
from tests.hosts import HERE, DictHost, with_base

from uncork.audit import judge
from uncork.explorers import explore

DIMENSIONS = ("firmware", "container", "kernel", "kernel_version", "numa", "storage", "network")
EXAMPLES = [path for path in sorted(HERE.rglob("*.json")) if path.parent.name in DIMENSIONS]
GARBAGE = [
    *("", "\n", "garbage\n", "-5\n", "9" * 30, "[x\n", "a b c d e f g h\n", "0-\n", "\0\xff\n", "1 2 3\n"),
    *(
        "nan\n",
        "N: \n",
        "max\n",
        "18446744073709551615\n",
        "x y z\nx: y z\n",
        "1.5.2 = :\n",
        {"unknown": "Permission denied"},
        None,
    ),
]


def spoiled(parts: dict[str, dict[str, Any]], chance: random.Random) -> dict[str, dict[str, Any]]:
    """The host with a tenth of its files and two of its queries spoiled."""
    files, queries = dict(parts["files"]), dict(parts["queries"])
    for path in chance.sample(sorted(files), len(files) // 10):
        files[path] = chance.choice(GARBAGE)
    for source in chance.sample(sorted(queries), min(2, len(queries))):
        queries[source] = {"unknown": "it refuses"}
    return parts | {"files": {k: v for k, v in files.items() if v is not None}, "queries": queries}


@pytest.mark.parametrize("seed", range(40))
def test_no_check_and_no_explorer_fails_on_garbage(seed: int):
    chance = random.Random(seed)
    example = json.loads(chance.choice(EXAMPLES).read_text(encoding="utf-8"))
    seen = explore(DictHost(**spoiled(with_base(example), chance)))

    crashed = {name: end for name, end in seen.endings.items() if name in DIMENSIONS and "crashed" in end}
    broken = {
        result.id: result.reason
        for result in judge(seen.facts)
        if result.dimension in DIMENSIONS and "the check itself failed" in result.reason
    }

    assert (crashed, broken) == ({}, {})
