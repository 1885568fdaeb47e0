"""Knobs that are one file each: sysctl, sysfs, cgroup, transparent huge pages, the AMD performance level."""

import shlex

from uncork.knobs import Recipe, Risk, owners
from uncork.knobs.base import RecipeKnob

# Writing one zeroes the other (mm/page-writeback.c, dirty_bytes_handler and dirty_ratio_handler).
PAIRS = {
    "vm.dirty_bytes": "vm.dirty_ratio",
    "vm.dirty_background_bytes": "vm.dirty_background_ratio",
}
PAIRS |= {ratio: size for size, ratio in PAIRS.items()}

MEDIUM_SYSCTLS = ("vm.min_free_kbytes", "vm.overcommit_memory", "vm.nr_hugepages", "kernel.yama.ptrace_scope")


class Sysctl(RecipeKnob):
    """A kernel parameter by its dotted key. `vm.dirty_*` keys come in pairs, see `recipes/files.py`."""

    compare = "pair"

    def key(self, target: str) -> str:
        """The key of a key or of a path under /proc/sys, with slashes where a part has a dot (sysctl.d(5))."""
        name = target.removeprefix("/proc/sys/")
        return name if "/" in name and "." in name else name.replace("/", ".")

    def path(self, key: str) -> str:
        """The file of a key."""
        return f"{self.root}/proc/sys/{key if '/' in key else key.replace('.', '/')}"

    def recipe(self, target: str) -> Recipe:
        key = self.key(target)
        if key in PAIRS:
            partner = PAIRS[key]
            return {
                "kind": "pair",
                "path": self.path(key),
                "partner": partner,
                "partner_path": self.path(partner),
                "compare": "pair",
            }
        return {"kind": "file", "path": self.path(key), "compare": "words"}

    def risk(self, target: str) -> Risk:
        return "medium" if self.key(target) in MEDIUM_SYSCTLS else "low"

    def owners(self, target: str) -> tuple[str, ...]:
        files = owners.sysctl_files(self.root, self.key(target))
        return owners.running(self.root, "tuned", "bpftune") + files

    def undo_command(self, target: str, before: str) -> str:
        key, value = self.key(target), before
        if "=" in before:
            key, _, value = before.partition("=")
        return f"sysctl -w {shlex.quote(f'{key}={value}')}"


class Sysfs(RecipeKnob):
    """Any single file under /sys; of a file with a `[chosen]` word the value is that word."""

    def targets(self, pattern: str) -> tuple[str, ...]:
        return self.glob(pattern) if any(sign in pattern for sign in "*?[") else (pattern,)

    def recipe(self, target: str) -> Recipe:
        return {"kind": "file", "path": self.root + target, "compare": "words"}

    def owners(self, target: str) -> tuple[str, ...]:
        names = ["tuned"]
        names += ["ksmtuned"] if "/mm/ksm/" in target else []
        names += (
            ["power-profiles-daemon", "thermald"] if "/cpu/" in target or "platform_profile" in target else []
        )
        return owners.running(self.root, *names)


class Cgroup(Sysfs):
    """A control file of a cgroup; its manager writes it back on its next change."""

    compare = "start"

    def recipe(self, target: str) -> Recipe:
        return super().recipe(target) | {"compare": "start"}

    def risk(self, target: str) -> Risk:
        return "medium"

    def owners(self, target: str) -> tuple[str, ...]:
        for mark, owner in (("kubepods", "kubelet"), ("docker", "docker"), (".scope", "systemd")):
            if mark in target:
                return (owner,)
        return ("systemd",) if ".service" in target or ".slice" in target else ()


class TransparentHugePages(Sysfs):
    """A file of /sys/kernel/mm/transparent_hugepage: `enabled`, `defrag`, `khugepaged/defrag`."""

    def recipe(self, target: str) -> Recipe:
        name = target.removeprefix("/sys/kernel/mm/transparent_hugepage/")
        return super().recipe(f"/sys/kernel/mm/transparent_hugepage/{name}")


class AmdPerfLevel(Sysfs):
    """`power_dpm_force_performance_level` of an AMD GPU by its PCI function."""

    def targets(self, pattern: str) -> tuple[str, ...]:
        return (pattern,)

    def recipe(self, target: str) -> Recipe:
        return super().recipe(f"/sys/bus/pci/devices/{target}/power_dpm_force_performance_level")
