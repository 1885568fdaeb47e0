"""The PTX that ships is made from the source beside it."""

import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PTX = resources.files("uncork.gate.cuda").joinpath("kernels.ptx").read_text(encoding="utf-8")
TARGETS = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]


def body(text):
    """PTX without comments, blank lines and register counts' layout, which differ between compilers."""
    lines = (re.sub(r"//.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def test_the_ptx_matches_its_source(tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    if "release 13.0" not in said:
        pytest.skip("another nvcc orders registers differently; kernels.ptx was made by 13.0")
    fresh = tmp_path / "kernels.ptx"

    subprocess.run([ROOT / "scripts/make-ptx", fresh], check=True)

    assert body(fresh.read_text(encoding="utf-8")) == body(PTX)


@pytest.mark.parametrize("target", TARGETS)
def test_every_gpu_from_turing_on_can_be_compiled_for(target, tmp_path):
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("needs ptxas")
    source = tmp_path / "kernels.ptx"
    source.write_text(PTX, encoding="utf-8")

    done = subprocess.run(
        [ptxas, f"-arch={target}", "-o", tmp_path / "out", source], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


def test_the_header_admits_drivers_from_cuda_10_1_on():
    assert ".version 6.4" in PTX
    assert ".target sm_70" in PTX


def test_every_kernel_that_the_ranks_launch_is_there():
    driver = pytest.importorskip("uncork.gate.cuda.driver")

    entries = re.findall(r"\.visible \.entry (\w+)\(([^)]*)\)", PTX)
    assert {name: text.count(".param") for name, text in entries} == {
        name: len(types) for name, types in driver.Kernels._PARAMETERS.items()
    }
