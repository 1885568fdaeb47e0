"""The whole loop in the guest: plant what holds a host back, `uncork run --yes`, `uncork rollback`.

`python -m tests.vm.story > docs/vm-story.md` writes the transcript. The kernel, its sysctls, registers and modules are
real, and so is the server; the eight GPUs are PCI functions with NVIDIA's ids behind stand-in libraries.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.tiny_model import write_tiny_model
from tests.vm.machine import Machine

ROOT = Path(__file__).parents[2]
PYTHON, UNCORK = sys.executable, str(Path(sys.executable).with_name("uncork"))
GPUS = ("13", "14", "17", "18", "83", "84", "87", "88")
ENVIRONMENT = {
    "LD_LIBRARY_PATH": "/run/lab/lib",
    "UNCORK_NVML_STATE": "/run/lab/gpus",
    "UNCORK_FAKE_CUDA": "/run/cuda",
    "UNCORK_PATIENCE": "20",  # the guest's CPUs are emulated
    "PYTHONUNBUFFERED": "1",
}
# The CPUs are emulated: a tiny model, short prompts, short answers, few of them.
RUN = ("run", "--yes", "--concurrency", "1", "--requests", "2", "--repeats", "2")
RUN += ("--input-len", "16", "--output-len", "8", "--hold-s", "1800")

PLANT = """
modprobe nvidia && modprobe nvidia-uvm
mknod -m 666 /dev/nvidia-uvm c 240 0; mknod -m 666 /dev/nvidiactl c 195 255
for gpu in 0 1 2 3 4 5 6 7; do mknod -m 666 /dev/nvidia$gpu c 195 $gpu; done
modprobe dummy numdummies=1 && ip link set dummy0 up && modprobe rdma_rxe
rdma link add rxe0 type rxe netdev dummy0
sysctl -qw kernel.numa_balancing=1
mkdir -p /run/cuda
"""
STATE = """
echo "numa_balancing    $(sysctl -n kernel.numa_balancing)"
echo "rmem_max          $(sysctl -n net.core.rmem_max)"
echo "governor          $(cat /sys/devices/system/cpu/cpufreq/policy*/scaling_governor | sort | uniq -c | xargs)"
echo "C3 disabled       $(cat /sys/devices/system/cpu/cpu*/cpuidle/state3/disable | xargs)"
echo "wake-up limit us  $(od -An -td4 -N4 /dev/cpu_dma_latency | xargs)"
echo "THP defrag        $(grep -o '\\[.*\\]' /sys/kernel/mm/transparent_hugepage/defrag)"
echo "MaxReadReq        $(for b in 13 14 17 18 83 84 87 88; do setpci -s $b:00.0 CAP_EXP+8.w; done | xargs)"
echo "ConnectX          $(setpci -s 01:00.0 CAP_EXP+8.w)"
echo "ACS control       $(for b in 12 16 82 86; do setpci -s $b: ECAP_ACS+6.w; done | xargs)"
echo "modules           $(lsmod | awk '/^nvidia/ {print $1}' | sort | xargs)"
echo "server memlock    $(awk '/locked memory/ {print $4, $5}' /proc/$(cat /run/server.pid)/limits)"
echo "/dev/shm          $(stat -fc '%b pages' /dev/shm)"
"""
# The loop's gate is a full one, half an hour on emulated CPUs. The guest's own copy of one file asks for the quick one.
QUICK_GATE = f"""
cd {ROOT}/src/uncork/loop
sed -i 's/choose_fabric("auto")/choose_fabric("auto", "quick")/' measure.py
sed -i 's/fabric, "full", baseline/fabric, "quick", baseline/' measure.py
grep -q '"quick", baseline' measure.py
"""
SERVE = """
ulimit -l 64
mkfifo /run/server.in
sleep 1000000 > /run/server.in 2>/dev/null </dev/null &
exec > /run/server.out 2> /run/server.err
taskset -c 1 {python} -m uncork.loop.demo_server /run/lab/model.gguf 4 256 < /run/server.in &
echo $! > /run/server.pid
until [ -s /run/server.out ]; do kill -0 $(cat /run/server.pid) || exit 1; sleep 0.2; done
"""


@dataclass
class Story:
    """What happened, in order."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    before: str = ""
    during: str = ""
    after: str = ""
    run_rc: int = -1
    rollback_rc: int = -1
    record: str = ""


# The gate runs a process a GPU, and each takes half a minute to start under emulation: with
# UNCORK_VM_CUDA=1 the gate tests the eight stand-ins, else the memory of the two NUMA nodes.
LIBRARIES = {"nvml": "libnvidia-ml.so.1"}
LIBRARIES |= {"cuda": "libcuda.so.1"} if os.environ.get("UNCORK_VM_CUDA") else {}


def stand_ins(machine: Machine) -> None:
    """Compile the stand-in libraries into the guest's shared folder and describe the GPUs to them."""
    folder = machine.share / "lib"
    folder.mkdir()
    for name, library in LIBRARIES.items():
        source = ROOT / f"tests/standins/{name}.c"
        argv = ["cc", "-O3", "-shared", "-fPIC", "-pthread", "-o", str(folder / library), str(source), "-ldl"]
        subprocess.run(argv, check=True, timeout=120)
    lines = ["system count 8", "system driver 580.95.05", "gpu * persistence 0"]
    lines += [f"gpu {number} bdf 00000000:{bus}:00.0" for number, bus in enumerate(GPUS)]
    (machine.share / "gpus").write_text("\n".join(lines) + "\n", encoding="utf-8")
    cuda = ["devices 8", *(f"bdf {number} 0000:{bus}:00.0" for number, bus in enumerate(GPUS))]
    (machine.share / "cuda").write_text("\n".join(cuda) + "\n", encoding="utf-8")


def plant(machine: Machine) -> str:
    """A host that is held back, with a server on it; the server's address."""
    stand_ins(machine)
    machine.sh(PLANT + "cp /run/lab/cuda /run/cuda/state", timeout_s=300)
    machine.sh(QUICK_GATE)
    write_tiny_model(machine.share / "model.gguf")
    machine.sh(SERVE.format(python=PYTHON), timeout_s=300)
    return machine.sh("cat /run/server.out")


def tell(machine: Machine, *, words: tuple[str, ...] = RUN, limit_s: float = 2400) -> Story:
    """Plant, run the loop, roll back."""
    story = Story()
    address = plant(machine)
    story.before = machine.sh(STATE)
    line = f"{UNCORK} {' '.join(words)} --endpoint {address} > /run/lab/run.log 2>&1"
    story.run_rc = machine.run("bash", "-c", line, timeout_s=limit_s, env=ENVIRONMENT).rc
    said = (machine.share / "run.log").read_text(encoding="utf-8")
    story.lines.append((f"uncork {' '.join(words)} --endpoint {address}", said))
    story.during = machine.sh(STATE)
    plan = machine.run(UNCORK, "plan", timeout_s=300, env=ENVIRONMENT)
    story.lines.append(("uncork plan", plan.out + plan.err))
    back = machine.run(UNCORK, "rollback", timeout_s=600, env=ENVIRONMENT)
    story.rollback_rc = back.rc
    story.lines.append(("uncork rollback", back.out + back.err))
    story.after = machine.sh(STATE)
    verified = machine.run(UNCORK, "journal", "verify", timeout_s=300, env=ENVIRONMENT)
    story.lines.append(("uncork journal verify", verified.out + verified.err))
    story.record = machine.sh("cat $(find /var/lib/uncork -name system-improve.md | head -1) || true")
    return story


def boot() -> Machine:
    """A guest for the story: larger, and with a disk that keeps uncork's state."""
    return Machine(cpus=4, memory_mb=3072, disk=True, threads="single").start()


def main() -> None:
    """Print the transcript as Markdown."""
    machine = boot()
    try:
        story = tell(machine)
        if len(sys.argv) > 1:
            shutil.copytree(machine.share, sys.argv[1], dirs_exist_ok=True)
            Path(sys.argv[1], "system-improve.md").write_text(story.record, encoding="utf-8")
        print(page(story, machine))
    finally:
        machine.close()


def page(story: Story, machine: Machine) -> str:
    """The transcript."""
    parts = [
        "# The whole story in the guest",
        f"Written by `python -m tests.vm.story` (boot {machine.boot_s[0]:.0f} s). See `docs/vm-lab.md` for what is"
        " real here and what stands in. The gate runs at its quick depth, since these CPUs are emulated.",
        "## What was planted, as other programs see it",
        f"```\n{story.before}\n```",
    ]
    for command, text in story.lines:
        parts.append(f"## `{command}`\n\n```\n{text.strip()}\n```")
        if command.startswith("uncork run"):
            parts.append(f"With the changes in force:\n\n```\n{story.during}\n```")
        if command == "uncork rollback":
            parts.append(f"Afterwards:\n\n```\n{story.after}\n```")
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
