"""A host with stand-in GPUs: the project's own libcuda.so.1, a folder that looks like sysfs, a quiet kernel log."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from uncork.gate.cuda.fabric import CudaFabric
from uncork.host import Output
from uncork.host.live import LiveHost

STANDINS = Path(__file__).parents[1] / "standins"


def build(source, library, *flags):
    """Compile a stand-in with the machine's own compiler; skip where there is none."""
    cc = shutil.which("cc") or shutil.which("gcc")
    if cc is None:
        pytest.skip("the stand-in drivers need a C compiler")
    command = [cc, "-O3", "-march=native", "-shared", "-fPIC", "-pthread", *flags, "-o", str(library)]
    subprocess.run([*command, str(source), "-ldl"], check=True)


class HostWithGpus(LiveHost):
    """A folder as `/`, a kernel log and an NVML that the test writes."""

    log = ""

    def __init__(self, root):
        super().__init__(root)
        self.nvml = {"gpus": []}

    def query(self, source):
        return self.nvml

    def run(self, argv, *, timeout_s=10.0):
        return Output(0, self.log, "") if argv[0] == "dmesg" else super().run(argv, timeout_s=timeout_s)


def sysfs(root, gpus, *, per_switch=2, speed="32.0 GT/s PCIe"):
    """GPUs as the stand-in names them, `per_switch` of them below each switch, half of the switches on each socket."""
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    for gpu in range(gpus):
        switch = gpu // per_switch
        node = gpu * 2 // gpus
        bus = 0x10 * (gpu + 1)
        chain = [
            f"0000:{switch + 1:02x}:01.0",
            f"0000:{switch + 0x81:02x}:00.0",
            f"0000:{switch + 0xC1:02x}:{gpu:02x}.0",
        ]
        folder = root / f"sys/devices/pci{switch:04x}:00"
        for bdf in [*chain, f"0000:{bus:02x}:00.0"]:
            folder = folder / bdf
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in (
                ("max_link_speed", speed),
                ("current_link_speed", speed),
                ("max_link_width", "16"),
                ("current_link_width", "16"),
                ("numa_node", str(node)),
                ("aer_dev_fatal", "TLP 0\nTOTAL_ERR_FATAL 0"),
                ("aer_dev_nonfatal", "TLP 0\nTOTAL_ERR_NONFATAL 0"),
                ("aer_dev_correctable", "BadTLP 0\nTOTAL_ERR_COR 0"),
            ):
                (folder / name).write_text(text + "\n")
            if not (devices / bdf).exists():
                (devices / bdf).symlink_to(os.path.relpath(folder, devices))
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text("vendor_id\t: AuthenticAMD\ncpu family\t: 26\n")
    (root / "proc/cmdline").write_text("iommu=pt\n")
    return HostWithGpus(str(root))


@pytest.fixture(scope="session")
def libcuda(tmp_path_factory):
    """The folder that holds the stand-in libcuda.so.1."""
    folder = tmp_path_factory.mktemp("libcuda")
    build(STANDINS / "cuda.c", folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1")
    return folder


@pytest.fixture(scope="session")
def libnccl(tmp_path_factory):
    """The stand-in libnccl.so.2."""
    library = tmp_path_factory.mktemp("libnccl") / "libnccl.so.2"
    build(STANDINS / "nccl.c", library)
    return str(library)


@pytest.fixture
def gpus(libcuda, tmp_path):
    """`gpus(count, *faults)` opens a CUDA fabric over stand-in GPUs with these faults; closed after the test."""
    pytest.importorskip("cuda.bindings.driver")
    opened = []

    def start(count, *faults, **options):
        state = tmp_path / f"gpus-{len(opened)}"
        state.mkdir()
        (state / "state").write_text("".join(f"{line}\n" for line in (f"devices {count}", *faults)))
        options.setdefault("deadline_floor_s", 2.0)
        options.setdefault("host", sysfs(tmp_path / f"root-{len(opened)}", count))
        env = {**os.environ, "LD_LIBRARY_PATH": str(libcuda), "UNCORK_FAKE_CUDA": str(state)}
        opened.append(CudaFabric(env=env, **options))
        return opened[-1]

    yield start
    for fabric in opened:
        fabric.close()
