"""The whole loop in the guest: plant what holds a host back, `uncork run --yes`, `uncork rollback`.

The kernel, its sysctls, registers and modules are real, and so is the server; the eight GPUs are PCI functions with
NVIDIA's ids behind stand-in libraries. `UNCORK_VM_STORY=FILE python -m pytest -m vm tests/vm/test_story.py` writes the
transcript (`docs/vm-story.md`).
"""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.tiny_model import write_tiny_model
from tests.vm import topology
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
# The CPUs are emulated: a tiny model, short prompts, short answers, few of them; a gate of five criteria, since the
# full one would take half an hour.
RUN = ("run", "--yes", "--gate", "quick", "--concurrency", "1", "--requests", "2", "--repeats", "2")
RUN += ("--input-len", "16", "--output-len", "8", "--hold-s", "1800")


@dataclass(frozen=True)
class Plant:
    """Something that holds the host back: what it is, the check that finds it, and its line in `STATE`."""

    what: str
    check: str
    line: str


# Deep C-states and MaxReadReq come with the machine, the others by PLANT and SERVE.
PLANTED = (
    Plant("ACS redirect on four switch ports", "pcie.acs-redirect", "ACS control"),
    Plant("MaxReadReq 128 on one GPU", "pcie.max-read-request", "MaxReadReq"),
    Plant("NUMA balancing", "kernel.numa-balancing", "numa_balancing"),
    Plant("C-states that take 100 and 800 us to leave", "power.c-state-latency", "wake-up limit us"),
    Plant("a governor that saves power", "power.governor", "governor"),
    Plant("64 KiB of locked memory for a server that uses RDMA", "container.memlock", "server memlock"),
    Plant("1024 open files for the server", "container.nofile", "server files"),
    Plant("nvidia_peermem not loaded beside an RDMA device", "driver.peermem", "modules"),
    Plant("socket buffers of 208 KiB", "network.core-buffers", "socket buffers"),
    Plant("256 MiB of /dev/shm", "container.shm-size", "/dev/shm"),
)
# The proprietary kernel module cannot hand GPU memory out as DMA-BUF, so RDMA needs nvidia_peermem.
PLANT = """
modprobe nvidia proprietary=1 && modprobe nvidia-uvm
mknod -m 666 /dev/nvidia-uvm c 240 0; mknod -m 666 /dev/nvidiactl c 195 255
for gpu in 0 1 2 3 4 5 6 7; do mknod -m 666 /dev/nvidia$gpu c 195 $gpu; done
modprobe dummy numdummies=1 && ip link set dummy0 up && modprobe rdma_rxe
rdma link add rxe0 type rxe netdev dummy0
sysctl -qw kernel.numa_balancing=1 net.core.rmem_max=212992 net.core.wmem_max=212992
mkdir -p /run/cuda
"""
STATE = """
echo "numa_balancing    $(sysctl -n kernel.numa_balancing)"
echo "socket buffers    $(echo $(sysctl -n net.core.rmem_max net.core.wmem_max net.ipv4.tcp_rmem net.ipv4.tcp_wmem))"
echo "governor          $(cat /sys/devices/system/cpu/cpufreq/policy*/scaling_governor | sort | uniq -c | xargs)"
echo "C3 disabled       $(cat /sys/devices/system/cpu/cpu*/cpuidle/state3/disable | xargs)"
echo "wake-up limit us  $(od -An -td4 -N4 /dev/cpu_dma_latency | xargs)"
echo "THP defrag        $(grep -o '\\[.*\\]' /sys/kernel/mm/transparent_hugepage/defrag)"
echo "MaxReadReq        $(for b in 13 14 17 18 83 84 87 88; do setpci -s $b:00.0 CAP_EXP+8.w; done | xargs)"
echo "ConnectX          $(setpci -s 01:00.0 CAP_EXP+8.w)"
echo "ACS control       $(for b in 12 16 82 86; do setpci -s $b: ECAP_ACS+6.w; done | xargs)"
echo "modules           $(lsmod | awk '/^nvidia/ {print $1}' | sort | xargs)"
echo "server memlock    $(awk '/locked memory/ {print $4, $5}' /proc/$(cat /run/server.pid)/limits)"
echo "server files      $(awk '/open files/ {print $4, $5}' /proc/$(cat /run/server.pid)/limits)"
echo "/dev/shm          $(stat -fc '%b pages' /dev/shm)"
"""
# UCX's variable is what a server has that hands its KV cache to another machine: without one that does, locked memory,
# nvidia_peermem and socket buffers hold nothing back, and the audit says so.
SERVE = """
ulimit -l 64
mkfifo /run/server.in
sleep 1000000 > /run/server.in 2>/dev/null </dev/null &
exec > /run/server.out 2> /run/server.err
export UCX_NET_DEVICES=rxe0:1
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
    plan: dict = field(default_factory=dict)

    @property
    def cured(self) -> set[str]:
        """The checks for which the plan has completed changes."""
        done = [s for s in self.plan["steps"] if s["kind"] == "apply" and s["status"] == "completed"]
        return {check for step in done for change in step["changes"] for check in change["findings"]}


LIBRARIES = {"nvml": "libnvidia-ml.so.1", "cuda": "libcuda.so.1"}


def stand_ins(machine: Machine) -> None:
    """Compile the stand-in libraries into the guest's shared folder and describe the GPUs to them."""
    folder = machine.share / "lib"
    folder.mkdir()
    for name, library in LIBRARIES.items():
        source = ROOT / f"tests/standins/{name}.c"
        argv = ["cc", "-O3", "-shared", "-fPIC", "-pthread", "-o", str(folder / library), str(source), "-ldl"]
        subprocess.run(argv, check=True, timeout=120)
    lines = ["system count 8", "system driver 580.95.05", "system library 13.580.95.05"]
    lines += ["gpu * persistence 0", "gpu * name NVIDIA H100 PCIe"]
    lines += [f"gpu {number} bdf 00000000:{bus}:00.0" for number, bus in enumerate(GPUS)]
    (machine.share / "gpus").write_text("\n".join(lines) + "\n", encoding="utf-8")
    cuda = ["devices 8", *(f"bdf {number} 0000:{bus}:00.0" for number, bus in enumerate(GPUS))]
    (machine.share / "cuda").write_text("\n".join(cuda) + "\n", encoding="utf-8")


def plant(machine: Machine) -> str:
    """A host that is held back, with a server on it; the server's address."""
    stand_ins(machine)
    machine.sh(PLANT + "cp /run/lab/cuda /run/cuda/state", timeout_s=300)
    # The emulator gives each CPU 100 ms at a time: a faster server would answer two tokens while its client waits.
    write_tiny_model(machine.share / "model.gguf", layers=32)
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
    story.plan = json.loads(machine.run(UNCORK, "plan", "--json", timeout_s=300, env=ENVIRONMENT).out)
    back = machine.run(UNCORK, "rollback", timeout_s=600, env=ENVIRONMENT)
    story.rollback_rc = back.rc
    story.lines.append(("uncork rollback", back.out + back.err))
    story.after = machine.sh(STATE)
    verified = machine.run(UNCORK, "journal", "verify", timeout_s=300, env=ENVIRONMENT)
    story.lines.append(("uncork journal verify", verified.out + verified.err))
    # By its plan: the guest sees the machine's own files, and with them records of runs on that.
    story.record = machine.sh(
        f"cat $(find /var/lib/uncork -path '*{story.plan['id']}/system-improve.md') || true"
    )
    return story


def boot() -> Machine:
    """A guest for the story: larger, with GPUs that both kernel modules know, and a disk that keeps uncork's state."""
    return Machine(memory_mb=3072, disk=True, express=topology.express(device=topology.H100_PCIE)).start()


def line_of(state: str, name: str) -> str:
    """What a line of `STATE` says."""
    return next(line[len(name) :].strip() for line in state.splitlines() if line.startswith(name))


def page(story: Story, boot_s: float) -> str:
    """The transcript as Markdown."""
    rows = [
        f"| {one.what} | `{one.check}` | {line_of(story.before, one.line)} | {line_of(story.during, one.line)}"
        f" | {line_of(story.after, one.line)} |"
        for one in PLANTED
    ]
    parts = [
        "# The whole story in the guest",
        f"Written by `UNCORK_VM_STORY=docs/vm-story.md python -m pytest -m vm tests/vm/test_story.py`, which also"
        f" asserts what this page shows (boot {boot_s:.0f} s). See `docs/vm-lab.md` for what is real here and what"
        " stands in. The gate runs at its quick depth, and the benchmark's figures say nothing: these CPUs are"
        " emulated, on a machine with other work.",
        "## What was planted, found, changed and put back",
        "\n".join(["| planted | found by | before | changed | afterwards |", "|---|---|---|---|---|", *rows]),
        "Before and afterwards by programs that know nothing of uncork (`sysctl`, `setpci`, `lsmod`, `/proc`):",
        f"```\n{story.before}\n```",
    ]
    for command, text in story.lines:
        parts.append(f"## `{command}`\n\n```\n{text.strip()}\n```")
        if command.startswith("uncork run"):
            parts.append(f"With the changes in force:\n\n```\n{story.during}\n```")
        if command == "uncork rollback":
            parts.append(f"Afterwards:\n\n```\n{story.after}\n```")
    return "\n\n".join(parts) + "\n"
