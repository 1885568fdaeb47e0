"""How long the gate takes: simulated GPUs in virtual time, stand-in GPUs and host memory by the clock.

    .venv/bin/python benchmarks/gate_speed.py

Wall seconds depend on what else runs here, so the CPU seconds of all processes stand beside them, and each ratio is
against the limit that a gate is held to.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from uncork.gate import verify
from uncork.gate.cuda.fabric import CudaFabric
from uncork.gate.hostmem import HostMemory
from uncork.gate.simulated import HOSTS, SimulatedFabric

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/gate"))


def timed(run: Callable[[], str]) -> tuple[str, float, float]:
    """What a run says, its wall seconds, and the CPU seconds of it and its processes."""

    def cpu_s() -> float:
        own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime

    wall_s, used_s = time.perf_counter(), cpu_s()
    says = run()
    return says, time.perf_counter() - wall_s, cpu_s() - used_s


def stand_in(count: int) -> str:
    """A full run on stand-in GPUs, start and end of their processes included."""
    from conftest import STANDINS, sysfs

    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "libcuda.so.1")
        command = ["cc", "-O3", "-march=native", "-shared", "-fPIC", "-pthread", "-Wl,-soname,libcuda.so.1"]
        subprocess.run([*command, "-o", str(library), str(STANDINS / "cuda.c"), "-ldl"], check=True)
        Path(folder, "state").write_text(f"devices {count}\n", encoding="utf-8")
        env = {**os.environ, "LD_LIBRARY_PATH": folder, "UNCORK_FAKE_CUDA": folder}
        host = sysfs(Path(folder, "root"), count)
        compiled_s, said = time.perf_counter(), ""
        with CudaFabric(env=env, host=host) as fabric:
            said = verify(fabric).verdict
        return f"{said} in {time.perf_counter() - compiled_s:.2f} s"


def host_memory() -> str:
    """A full run on this host's memory."""
    with HostMemory() as fabric:
        return verify(fabric).verdict


def main() -> None:
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    for name, host in HOSTS.items():
        result = verify(SimulatedFabric(host))
        print(
            f"simulated {name:<20} {result.cost_s:6.1f} s virtual    {result.cost_s / 25:5.2f} of the 25 s limit"
        )
    for label, run, limit_s in (
        ("stand-in, 4 GPUs", lambda: stand_in(4), 3),
        ("stand-in, 8 GPUs", lambda: stand_in(8), None),
        ("host memory", host_memory, 15),
    ):
        says, wall_s, cpu_s = timed(run)
        part = f"{wall_s / limit_s:5.2f} of the {limit_s} s limit" if limit_s else ""
        print(f"{label:<30} {wall_s:6.1f} s wall, {cpu_s:.1f} s CPU    {part}    {says}")


if __name__ == "__main__":
    main()
