"""No text in any file makes an explorer of the GPU side crash: it costs a value, not the dimension."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hosts import HERE, DictHost, with_base

from uncork.audit import judge
from uncork.explorers import explore

NAMES = ("driver", "cuda_memory", "pcie", "power", "p2p", "engine", "nvlink")
PARTS = with_base(json.loads((HERE / "gpus-right.json").read_text(encoding="utf-8")))
PATHS = sorted(
    path
    for path in PARTS["files"]
    if any(word in path for word in ("/pci", "nvidia", "cpu", "/proc/900/", "drm", "powercap", "meminfo"))
)
GARBAGE = ["", "\0", ":", "-1\n", "0x\n", "9" * 30, "nan", "1 2 3", "��", ") ) (", "a" * 5000]
KINDS = sorted({path.rpartition("/")[2] for path in PATHS})


def crashes(files) -> dict[str, str]:
    seen = explore(DictHost(**(PARTS | {"files": PARTS["files"] | files})))
    return {name: seen.endings[name] for name in NAMES if "crash" in seen.endings[name]}


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_in_every_file_of_one_name(kind):
    paths = [path for path in PATHS if path.rpartition("/")[2] == kind]

    assert [found for garbage in GARBAGE[:5] if (found := crashes(dict.fromkeys(paths, garbage)))] == []


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_the_same_garbage_in_every_file(garbage):
    assert crashes(dict.fromkeys(PATHS, garbage)) == {}


@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_text_in_some_files(data):
    chosen = data.draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=8, unique=True))
    files = PARTS["files"] | {path: data.draw(st.text(max_size=60)) for path in chosen}

    seen = explore(DictHost(**(PARTS | {"files": files})))

    assert {name: seen.endings[name] for name in NAMES if "crash" in seen.endings[name]} == {}
    assert [r.reason for r in judge(seen.facts) if r.dimension in NAMES and "itself failed" in r.reason] == []
