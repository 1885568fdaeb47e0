"""Settings of NVIDIA GPUs that the driver's library sets: persistence, power limit, compute mode, clocks."""

import shlex

from uncork.knobs import Recipe, Risk, owners
from uncork.knobs.base import RecipeKnob


class GpuSetting(RecipeKnob):
    """One setting of one GPU: `GPU-uuid:persistence`, `0000:81:00.0:power_limit_mw` ...

    `gpu_clocks_mhz` and `memory_clocks_mhz` (`MIN,MAX` or `default`) cannot be read back from the driver, so
    their value is unknown and the engine will not write them by itself.
    """

    def recipe(self, target: str) -> Recipe:
        gpu, _, setting = target.rpartition(":")
        return {"kind": "nvml", "gpu": gpu, "setting": setting, "compare": "words"}

    def risk(self, target: str) -> Risk:
        return "medium" if target.endswith(("power_limit_mw", "compute_mode")) else "low"

    def owners(self, target: str) -> tuple[str, ...]:
        names = ("nvidia-persistenced",) if target.endswith(":persistence") else ()
        return owners.running(self.root, *names)

    def undo_command(self, target: str, before: str) -> str:
        gpu, _, setting = target.rpartition(":")
        watts = f"{int(before) / 1000:g}" if setting == "power_limit_mw" and before.isdigit() else before
        option = {
            "persistence": f"-pm {before}",
            "power_limit_mw": f"-pl {watts}",
            "compute_mode": f"-c {before}",
            "application_clocks_mhz": f"-ac {before}",
            "gpu_clocks_mhz": "-rgc" if before == "default" else f"-lgc {before}",
            "memory_clocks_mhz": "-rmc" if before == "default" else f"-lmc {before}",
        }[setting]
        return f"nvidia-smi -i {shlex.quote(gpu)} {option}"
