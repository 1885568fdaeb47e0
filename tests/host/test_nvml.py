"""The NVML reading, through the real nvidia-ml-py on the stand-in library; not a GPU."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "standins/nvml.c"
READ = """
import json
from uncork.host.query import query
from uncork.model.unknown import is_unknown
found = query("nvml")
print(json.dumps({"unknown": found.reason, "absent": found.absent} if is_unknown(found) else found))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler for the stand-in NVML")
    folder = tmp_path_factory.mktemp("nvml")
    command = [compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", SOURCE]
    subprocess.run(command, check=True, timeout=60)
    return folder


OLDER = """
import pynvml
for name in ("c_nvmlGpuFabricInfo_v2_t", "c_nvmlEccSramErrorStatus_v1_t", "nvmlMemory_v2"):
    delattr(pynvml, name)
del pynvml.nvmlDeviceGetAddressingMode
"""


@pytest.fixture
def read(library, tmp_path):
    """The reading on a machine whose state is the given lines; in a process of its own, which loads the library."""

    def reading(*lines: str, before: str = ""):
        state = tmp_path / "state"
        state.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        environ = os.environ | {"LD_LIBRARY_PATH": str(library), "UNCORK_NVML_STATE": str(state)}
        done = subprocess.run(
            [sys.executable, "-c", before + READ],
            env=environ,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return reading


def test_a_healthy_gpu_is_read(read):
    found = read(
        "system count 2", "system driver 580.82.09", "gpu 1 power_limit 300000", "gpu 1 compute_mode 3"
    )

    one = found["gpus"][1]
    assert (found["driver"], found["library"], found["cuda"]) == ("580.82.09", "13.580.82.09", "13.0")
    assert (one["bdf"], one["power_limit_mw"], one["power_default_mw"]) == ("0000:20:00.0", 300000, 600000)
    assert (one["compute_mode"], one["persistence"], one["event_reasons"]) == ("exclusive-process", True, 1)
    assert one["memory_total_bytes"] == 97887 << 20
    assert one["bar1_total_bytes"] == 131072 << 20


@pytest.mark.parametrize(
    ("code", "word"), [(3, "Not Supported"), (4, "Insufficient Permissions"), (15, "lost")]
)
def test_a_refused_value_costs_only_itself(read, code, word):
    found = read(f"gpu 0 power !{code}")

    one = found["gpus"][0]
    assert word in one["power_mw"]["unknown"]
    assert one["temperature_c"] == 34


def test_a_lost_gpu_keeps_its_place(read):
    found = read("system count 3", "gpu 1 handle !15")

    assert [("lost" in gpu, gpu["index"]) for gpu in found["gpus"]] == [(False, 0), (True, 1), (False, 2)]
    assert found["levels"][0] == [None, None, "SYS"]


def test_pairs_are_read_in_both_directions(read):
    found = read("system count 2", "pair 0 1 read 4", "pair 1 0 level 30")

    assert found["p2p"]["read"] == [[None, "regkey"], ["ok", None]]
    assert found["levels"] == [[None, "PIX"], ["PHB", None]]


def test_links_end_where_the_driver_has_no_more(read):
    found = read("link 0 0 state 1", "link 0 0 remote 0", "link 0 1 state 0", "link 0 1 recovery 7")

    links = found["gpus"][0]["nvlinks"]
    assert [(link["number"], link["active"]) for link in links] == [(0, True), (1, False)]
    assert links[1]["recovery_errors"] == 7


def test_fields_and_the_fabric_of_new_drivers(read):
    found = read("gpu 0 field.230 2", "gpu 0 field.82 88", "gpu 0 fabric_state 3", "gpu 0 fabric_health 170")

    one = found["gpus"][0]
    assert (one["recovery_action"], one["memory_temperature_c"]) == (2, 88)
    assert (one["fabric_state"], one["fabric_status"], one["fabric_health"]) == (3, 0, 170)


def test_processes_of_both_kinds(read):
    found = read("gpu 0 compute 4242:1024 77:5", "gpu 0 graphics 9:12")

    assert [(p["pid"], p["kind"], p["used_bytes"] >> 20) for p in found["gpus"][0]["processes"]] == [
        (4242, "compute", 1024),
        (77, "compute", 5),
        (9, "graphics", 12),
    ]


def test_a_library_of_another_version_than_the_module(read):
    found = read("system init 18")

    assert found["absent"] is False
    assert "version mismatch" in found["unknown"].lower()


def test_an_older_nvidia_ml_py_costs_only_what_it_lacks(read):
    found = read("gpu 0 fabric_state 3", "gpu 0 sram_exceeded 0", before=OLDER)

    one = found["gpus"][0]
    assert "unknown" in one["fabric_state"]
    assert "unknown" in one["sram_threshold_exceeded"]
    assert "unknown" in one["addressing_mode"]
    assert one["memory_total_bytes"] == 97887 << 20
    assert one["power_limit_mw"] == 600000


def test_no_library_is_absence(tmp_path):
    environ = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", READ], env=environ, capture_output=True, encoding="utf-8", timeout=60
    )

    found = json.loads(done.stdout)
    if "gpus" in found:
        pytest.skip("this machine has NVML")
    assert found == {"unknown": "libnvidia-ml.so.1 is not installed", "absent": True}
