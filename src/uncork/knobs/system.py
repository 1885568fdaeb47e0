"""Kernel modules and their options, interrupt affinity, the size of /dev/shm."""

import glob
import shlex
from pathlib import Path

from uncork.host.live import LiveHost
from uncork.knobs import Recipe, Risk, Scope, owners
from uncork.knobs.base import RecipeKnob
from uncork.knobs.files import Sysfs
from uncork.model.unknown import Unknown


class Module(RecipeKnob):
    """A kernel module, `loaded` or `absent`. It is unloaded only while nothing uses it.

    `targets` names the modules it needs that are not loaded yet, first, so that each is journalled and undo
    takes out exactly those that were brought in.
    """

    def recipe(self, target: str) -> Recipe:
        name = target.replace("-", "_")
        return {"kind": "module", "name": name, "path": f"{self.root}/sys/module/{name}", "compare": "words"}

    def targets(self, pattern: str) -> tuple[str, ...]:
        said = LiveHost().run(("modprobe", "--show-depends", pattern))
        names = [] if isinstance(said, Unknown) else _module_names(said.stdout)
        needed = [name for name in names if self.read(name) == "absent"]
        return (*(name for name in needed if name != pattern.replace("-", "_")), pattern)

    def risk(self, target: str) -> Risk:
        return "medium"

    def undo_command(self, target: str, before: str) -> str:
        name = shlex.quote(self.recipe(target)["name"])
        return f"rmmod {name}" if before == "absent" else f"modprobe {name}"


def _module_names(text: str) -> list[str]:
    paths = [line.split()[1] for line in text.splitlines() if line.startswith("insmod ")]
    return [Path(path).name.split(".ko")[0].replace("-", "_") for path in paths]


class ModuleOption(RecipeKnob):
    """A module option `nvidia:NVreg_X` in a file of uncork's own; it counts when the module is next loaded."""

    def recipe(self, target: str) -> Recipe:
        module, _, option = target.partition(":")
        return {
            "kind": "modprobe-option",
            "path": f"{self.root}/etc/modprobe.d/uncork.conf",
            "module": module,
            "option": option,
            "compare": "words",
        }

    def scope(self, target: str) -> Scope:
        return "next-boot"

    def risk(self, target: str) -> Risk:
        return "medium"

    def owners(self, target: str) -> tuple[str, ...]:
        """Other files that set the same option; where two do, the driver sees both."""
        module, _, option = target.partition(":")
        found = []
        for path in sorted(glob.glob(f"{self.root}/etc/modprobe.d/*.conf")):
            lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
            named = [line.split()[:2] == ["options", module] and f"{option}=" in line for line in lines]
            if any(named) and not path.endswith("/uncork.conf"):
                found.append("modprobe.d:" + path.removeprefix(self.root))
        return tuple(found)

    def undo_command(self, target: str, before: str) -> str:
        recipe = self.recipe(target)
        start, path = f"options {recipe['module']} {recipe['option']}=", recipe["path"]
        delete = f"sed -i {shlex.quote(f'/^{start}/d')} {path}"
        return delete if before == "absent" else f"{delete} && echo {shlex.quote(start + before)} >> {path}"


class InterruptAffinity(Sysfs):
    """The CPUs that may take an interrupt, by its number. The kernel refuses managed ones (EIO)."""

    compare = "cpus"

    def recipe(self, target: str) -> Recipe:
        path = f"{self.root}/proc/irq/{target}/smp_affinity_list"
        return {"kind": "file", "path": path, "compare": "cpus"}

    def targets(self, pattern: str) -> tuple[str, ...]:
        return (pattern,)

    def owners(self, target: str) -> tuple[str, ...]:
        return owners.running(self.root, "irqbalance", "tuned")


class SharedMemorySize(RecipeKnob):
    """The size of /dev/shm in bytes, by a remount that keeps its other options and its files."""

    compare = "pages"

    def recipe(self, target: str) -> Recipe:
        return {"kind": "tmpfs-size", "path": target, "compare": "pages"}

    def undo_command(self, target: str, before: str) -> str:
        return f"mount -o remount,size={shlex.quote(before)} {shlex.quote(target)}"
