"""Every writable thing: read, same(want, got), write, scope, owner, risk.

Interface
---------
`KNOBS[name]` is a `Knob` on this machine, `knobs_at(root)` the same on a folder of fake files. Values are
text in one canonical form a knob: what `read` gives, `write` takes. Names and targets:

    sysctl            a key: `kernel.numa_balancing` (or its path under /proc/sys)
    sysfs             a path under /sys (globs allowed), plain values and `[chosen]` words alike
    cgroup            a file under /sys/fs/cgroup: `/sys/fs/cgroup/x.slice/cpu.max`
    thp               `enabled`, `defrag`, `shmem_enabled`, `khugepaged/defrag` ...
    cpuidle           `cpu0/state3`, `cpu*/state3`; `1` disables the state
    pm_qos            `cpu_dma_latency`; microseconds or `none`; held by a small detached process
    cpufreq_governor  `policy0`, `policy*`; `performance`, or `powersave epp=balance_performance` (a pair)
    cpufreq_epp       `policy0`, `policy*`
    pci_mrrs          a function `0000:81:00.0`; bytes: `4096`
    pci_acs           a port `0000:80:01.0`; the redirect bits (RR 04, CR 08, EC 20): `0x00`
    pci_relaxed_ordering  a function; `0` or `1`
    module            a module name; `loaded` or `absent`
    rlimit            `PID:memlock` (or `PID@STARTTICKS:memlock`); `unlimited`, `N`, or `SOFT:HARD`
    affinity          `PID` (all its threads) or `PID@STARTTICKS/TID`; a CPU list
    process           `PID:oom_score_adj`
    irq_affinity      an interrupt number; a CPU list
    shm_size          `/dev/shm`; bytes
    nvml              `GPU-uuid:persistence` | `:power_limit_mw` | `:compute_mode` | `:gpu_clocks_mhz`
    modprobe_option   `nvidia:NVreg_X`; a value or `absent`; takes effect at the next boot
    amd_perf_level    a function; `high`, `auto`, ...

The engine first turns a pattern into single targets with `targets()` (each is one atomic write, journalled
on its own), then for each: `veto`, `owners`, `read`, journal, `write` (in a child with a time limit), `read`,
`same`. `recipe(target)` is JSON-shaped and enough for the folder `recipes` (standard library only) to
handle the target without uncork: `recipes.read(r)`, `recipes.same(r, want, got)`,
`recipes.write(r, value)`. Knobs use those same three functions, so forward and undo cannot come apart.
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

from uncork.model.unknown import Unknown

Scope = Literal["runtime", "file", "next-boot"]
Risk = Literal["low", "medium", "high"]
Recipe = dict[str, Any]


class Knob(Protocol):
    """One kind of writable thing. Nothing but `write` changes anything."""

    def targets(self, pattern: str) -> tuple[str, ...]:
        """The single targets a pattern stands for, in the order to write them; none where nothing matches."""
        ...

    def read(self, target: str) -> str | Unknown:
        """The present value in its canonical form."""
        ...

    def same(self, want: str, got: str) -> bool:
        """Whether the kernel's `got` is what was asked for with `want`."""
        ...

    def veto(self, target: str, value: str) -> str:
        """Why this value must not be written here; empty where nothing speaks against it."""
        ...

    def write(self, target: str, value: str) -> None:
        """Write once. Raises OSError with the kernel's errno (EPERM and the reason where there is a veto)."""
        ...

    def scope(self, target: str) -> Scope:
        """How long the value lasts: until reboot, in a file, or only from the next boot."""
        ...

    def risk(self, target: str) -> Risk:
        """What a wrong value can cost: nothing lasting, a stall or a workload, access or isolation."""
        ...

    def owners(self, target: str) -> tuple[str, ...]:
        """Who else sets this target here and would write it back, found by reading only."""
        ...

    def undo_command(self, target: str, before: str) -> str:
        """A command to paste into a root shell that puts `before` back."""
        ...

    def recipe(self, target: str) -> Recipe:
        """How to read and write the target with the standard library alone; see `recipes`."""
        ...


_WHERE = {
    "cpuidle": "cpu:IdleState",
    "pm_qos": "cpu:LatencyRequest",
    "cpufreq_governor": "cpu:Governor",
    "cpufreq_epp": "cpu:EnergyPreference",
    "pci_mrrs": "pci:MaxReadRequest",
    "pci_acs": "pci:AcsRedirect",
    "pci_relaxed_ordering": "pci:RelaxedOrdering",
    "module": "system:Module",
    "irq_affinity": "system:InterruptAffinity",
    "shm_size": "system:SharedMemorySize",
    "modprobe_option": "system:ModuleOption",
    "rlimit": "process:Limit",
    "affinity": "process:Affinity",
    "process": "process:ProcessFile",
    "nvml": "nvml:GpuSetting",
    "sysctl": "files:Sysctl",
    "sysfs": "files:Sysfs",
    "cgroup": "files:Cgroup",
    "thp": "files:TransparentHugePages",
    "amd_perf_level": "files:AmdPerfLevel",
}


class _Catalogue(Mapping[str, Knob]):
    """Knobs by name, each imported when first asked for."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._made: dict[str, Knob] = {}

    def __getitem__(self, name: str) -> Knob:
        if name not in self._made:
            module, _, kind = _WHERE[name].partition(":")
            self._made[name] = getattr(importlib.import_module(f"{__name__}.{module}"), kind)(self._root)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_WHERE)

    def __len__(self) -> int:
        return len(_WHERE)


def knobs_at(root: str) -> Mapping[str, Knob]:
    """The knobs of the machine whose files are mounted at `root`."""
    return _Catalogue(root)


KNOBS: Mapping[str, Knob] = knobs_at("/")
