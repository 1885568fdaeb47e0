"""GPU settings, on the stand-in for libnvidia-ml (tests/standins/nvml.c); not a GPU."""

import errno
import importlib
import shutil
import subprocess
from pathlib import Path

import pytest

from uncork.knobs import KNOBS, recipes
from uncork.model.unknown import is_unknown

SOURCE = Path(__file__).parents[1] / "standins/nvml.c"
GPU = "GPU-00000000-0000-0000-0000-000000000001"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler for the stand-in NVML")
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, SOURCE], check=True, timeout=60)
    return path


@pytest.fixture
def gpus(library, tmp_path, monkeypatch):
    state = tmp_path / "gpus"
    state.write_text(
        "system count 2\n"
        f"gpu 0 uuid {GPU}\ngpu 0 bdf 00000000:81:00.0\ngpu 1 uuid GPU-1\n"
        "gpu * persistence 0\ngpu * power_limit 450000\ngpu * power_min 200000\ngpu * power_max 600000\n"
        "gpu * compute_mode 3\ngpu * app_sm_clock 1200\ngpu * app_memory_clock 2619\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("UNCORK_NVML_STATE", str(state))
    monkeypatch.setenv("UNCORK_NVML_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(importlib.import_module(f"{recipes.__name__}.nvml"), "LIBRARY", str(library))
    return state


SETTINGS = [
    ("persistence", "0", "1"),
    ("power_limit_mw", "450000", "600000"),
    ("compute_mode", "3", "0"),
    ("application_clocks_mhz", "2619,1200", "2619,1980"),
]


@pytest.mark.parametrize(("setting", "before", "want"), SETTINGS)
def test_a_setting_moves_and_returns(gpus, setting, before, want):
    knob, target = KNOBS["nvml"], f"{GPU}:{setting}"
    assert knob.read(target) == before
    knob.write(target, want)
    assert knob.read(target) == want

    knob.write(target, before)

    assert knob.read(target) == before


def test_a_gpu_is_found_by_its_pci_function_too(gpus):
    KNOBS["nvml"].write("0000:81:00.0:persistence", "1")

    assert KNOBS["nvml"].read(f"{GPU}:persistence") == "1"
    assert KNOBS["nvml"].read("GPU-1:persistence") == "0"


def test_a_clock_lock_is_written_and_never_claimed_to_be_known(gpus):
    KNOBS["nvml"].write(f"{GPU}:gpu_clocks_mhz", "1200,1980")
    KNOBS["nvml"].write(f"{GPU}:gpu_clocks_mhz", "default")

    assert is_unknown(KNOBS["nvml"].read(f"{GPU}:gpu_clocks_mhz"))


@pytest.mark.parametrize(
    ("line", "code"),
    [("gpu 0 deny 4", errno.EPERM), ("gpu 0 deny 3", errno.EOPNOTSUPP), ("gpu 0 deny 15", errno.ENODEV)],
)
def test_a_refusal_has_an_errno(gpus, line, code):
    with gpus.open("a", encoding="utf-8") as file:
        file.write(line + "\n")

    with pytest.raises(OSError) as refused:
        KNOBS["nvml"].write(f"{GPU}:persistence", "1")

    assert (refused.value.errno, KNOBS["nvml"].read(f"{GPU}:persistence")) == (code, "0")


def test_a_power_limit_beyond_the_card_is_refused(gpus):
    with pytest.raises(OSError) as refused:
        KNOBS["nvml"].write(f"{GPU}:power_limit_mw", "999000")

    assert refused.value.errno == errno.EINVAL


@pytest.mark.parametrize("target", [f"{GPU}:fan", "GPU-none:persistence"])
def test_what_is_not_there_is_unknown_and_refused(gpus, target):
    assert is_unknown(KNOBS["nvml"].read(target))
    with pytest.raises(OSError):
        KNOBS["nvml"].write(target, "1")


def test_without_the_library_it_is_absent(monkeypatch):
    monkeypatch.setattr(
        importlib.import_module(f"{recipes.__name__}.nvml"), "LIBRARY", "libnvidia-ml-none.so"
    )

    found = KNOBS["nvml"].read(f"{GPU}:persistence")

    assert is_unknown(found) and found.absent


def test_the_commands_to_paste_are_of_nvidia_smi():
    command = KNOBS["nvml"].undo_command

    assert command(f"{GPU}:power_limit_mw", "450000") == f"nvidia-smi -i {GPU} -pl 450"
    assert command(f"{GPU}:application_clocks_mhz", "2619,1200") == f"nvidia-smi -i {GPU} -ac 2619,1200"
    assert command(f"{GPU}:gpu_clocks_mhz", "default") == f"nvidia-smi -i {GPU} -rgc"
