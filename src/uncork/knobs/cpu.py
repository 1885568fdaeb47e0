"""CPU knobs: idle states, the latency request, frequency governor and energy preference."""

import shlex

from uncork.knobs import Recipe, owners
from uncork.knobs.base import RecipeKnob
from uncork.knobs.files import Sysfs

CPUS = "/sys/devices/system/cpu"


class IdleState(Sysfs):
    """`disable` of one idle state of one CPU: `cpu3/state2`; 1 keeps the CPU out of it.

    Two writers of the kernel share the file: bit 0 is ours, bit 1 the driver's own (ABI sysfs-devices-system-cpu).
    """

    def targets(self, pattern: str) -> tuple[str, ...]:
        paths = self.glob(self.path(pattern))
        return tuple(path.removeprefix(f"{CPUS}/").replace("/cpuidle/", "/") for path in map(_folder, paths))

    def path(self, target: str) -> str:
        """The file of `cpu3/state2`, or of the same written as a path."""
        cpu, _, state = target.removeprefix(f"{CPUS}/").removesuffix("/disable").partition("/")
        return f"{CPUS}/{cpu}/cpuidle/{state.removeprefix('cpuidle/')}/disable"

    def recipe(self, target: str) -> Recipe:
        return super().recipe(self.path(target))

    def owners(self, target: str) -> tuple[str, ...]:
        return owners.running(self.root, "tuned", "cpupower")


def _folder(path: str) -> str:
    return path.removesuffix("/disable")


class LatencyRequest(RecipeKnob):
    """The longest wake-up from idle that all CPUs may take, in microseconds (PM QoS, /dev/cpu_dma_latency).

    It lasts as long as a descriptor is open, so a detached process keeps it and ends the request by ending. A
    service manager that kills the whole session takes it along, which is the safe direction.
    """

    def recipe(self, target: str) -> Recipe:
        name = target.removeprefix("/dev/") or "cpu_dma_latency"
        return {"kind": "latency-request", "path": f"{self.root}/dev/{name}", "compare": "words"}

    def owners(self, target: str) -> tuple[str, ...]:
        return owners.running(self.root, "tuned")

    def undo_command(self, target: str, before: str) -> str:
        mark = f"[u]ncork-latency-request {self.recipe(target)['path']}"  # not the shell that runs this
        kill = f"pkill -f {shlex.quote(mark)}"
        return kill if before == "none" else f"{kill}  # then hold {before} us again with your own tool"


class Governor(Sysfs):
    """`scaling_governor` of a frequency policy; its value carries the energy preference where that is free."""

    compare = "governor"

    def targets(self, pattern: str) -> tuple[str, ...]:
        paths = self.glob(f"{CPUS}/cpufreq/{_policy(pattern)}")
        return tuple(path.removeprefix(f"{CPUS}/cpufreq/") for path in paths)

    def recipe(self, target: str) -> Recipe:
        folder = f"{self.root}{CPUS}/cpufreq/{_policy(target)}"
        return {
            "kind": "governor",
            "path": f"{folder}/scaling_governor",
            "epp_path": f"{folder}/energy_performance_preference",
            "compare": "governor",
        }

    def owners(self, target: str) -> tuple[str, ...]:
        return owners.running(self.root, "tuned", "power-profiles-daemon", "cpupower", "auto-cpufreq")

    def undo_command(self, target: str, before: str) -> str:
        recipe = self.recipe(target)
        governor, _, preference = before.partition(" epp=")
        back = f"echo {shlex.quote(governor)} > {recipe['path']}"
        return back + (f" && echo {shlex.quote(preference)} > {recipe['epp_path']}" if preference else "")


def _policy(target: str) -> str:
    path = target.removeprefix(f"{CPUS}/cpufreq/").removeprefix(f"{CPUS}/")
    name = path.split("/")[0]
    return "policy" + name.removeprefix("cpu") if name.startswith("cpu") else name


class EnergyPreference(Governor):
    """`energy_performance_preference` of a frequency policy; EBUSY while its governor is `performance`."""

    compare = "words"

    def recipe(self, target: str) -> Recipe:
        folder = f"{self.root}{CPUS}/cpufreq/{_policy(target)}"
        return {"kind": "file", "path": f"{folder}/energy_performance_preference", "compare": "words"}

    def undo_command(self, target: str, before: str) -> str:
        return RecipeKnob.undo_command(self, target, before)
