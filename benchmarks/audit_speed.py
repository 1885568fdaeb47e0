"""What a look costs: python benchmarks/audit_speed.py

Prints wall time, CPU time (with children) and peak memory of a live audit of this machine and of the recorded
8-GPU host (where ../shared is there), each in a fresh interpreter, beside references of the same run: a bare
interpreter, and reading every PCI configuration space with `find`.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOST = Path(__file__).parents[1] / "../shared/dumps/asus-esc8000a-e13p-8x-rtxpro6000"
REPEATS = 9
TARGETS = {"live": (1.0, 0.7), "8-GPU host": (None, 0.5)}  # wall, CPU in seconds
MEMORY_TARGET_MIB = 120


# An installed package has its bytecode; a checkout that may not write it would compile it in every run.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | {
    "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "uncork-benchmark-bytecode")
}


def measure(argv: list[str]) -> tuple[float, float, float]:
    """Least wall and CPU seconds (what other load on the machine spoils least) and the largest peak memory in MiB."""
    walls, processors, peaks = [], [], []
    for number in range(REPEATS + 1):
        start = time.perf_counter()
        process = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
        )
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        if number == 0:
            continue  # writes bytecode, warms the page cache
        walls.append(time.perf_counter() - start)
        processors.append(usage.ru_utime + usage.ru_stime)
        peaks.append(usage.ru_maxrss / 1024)
    return min(walls), min(processors), max(peaks)


def main() -> None:
    uncork = [sys.executable, "-m", "uncork.cli.main", "audit", "--json"]
    jobs = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "live": uncork,
    }
    if shutil.which("find"):
        jobs["find /sys -name config, read"] = [
            "find",
            "/sys/devices",
            "-name",
            "config",
            "-exec",
            "cat",
            "{}",
            "+",
        ]
    if HOST.is_dir():
        jobs["8-GPU host"] = [*uncork, "--snapshot", str(HOST)]
    else:
        print(f"no recorded host: {HOST} is absent")
    found = {name: measure(argv) for name, argv in jobs.items()}
    bare_wall, bare_cpu, _ = found["python -c pass"]
    print(f"least of {REPEATS} runs, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'':<30}{'wall s':>9}{'CPU s':>9}{'MiB':>8}{'x bare wall':>13}{'x bare CPU':>12}")
    for name, (wall, processor, peak) in found.items():
        print(
            f"{name:<30}{wall:>9.3f}{processor:>9.3f}{peak:>8.0f}{wall / bare_wall:>13.1f}{processor / bare_cpu:>12.1f}"
        )
    for name, (wall_target, cpu_target) in TARGETS.items():
        if name in found:
            wall, processor, peak = found[name]
            wall_says = "" if wall_target is None else f"wall {wall:.2f} of {wall_target} s, "
            print(
                f"{name}: {wall_says}CPU {processor:.2f} of {cpu_target} s,"
                f" memory {peak:.0f} of {MEMORY_TARGET_MIB} MiB"
            )


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
