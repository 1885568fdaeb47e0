"""What keeps a change over a reboot: the text of the files that the host's own tools read at boot. Pure.

sysctl.d(5), modules-load.d(5), tmpfiles.d(5), udev(7), systemd.unit(5), limits.conf(5), tuned.conf(5). A kernel
command line, firmware and what belongs to one process are never written: they come out as notes.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath

import msgspec

from uncork.knobs import KNOBS, Knob
from uncork.model.plan import PlannedChange

SYSCTL = "/etc/sysctl.d/99-uncork.conf"  # after 99-sysctl.conf, the link to /etc/sysctl.conf
MODULES = "/etc/modules-load.d/uncork.conf"
TMPFILES = "/etc/tmpfiles.d/uncork.conf"
UDEV = "/etc/udev/rules.d/90-uncork.rules"
LIMITS = "/etc/security/limits.d/90-uncork.conf"
UNIT = "/etc/systemd/system/uncork-nvidia.service"
TUNED = "/etc/tuned/uncork/tuned.conf"
HEADER = "# Written by uncork persist; uncork persist --undo removes it.\n"
SETPCI = "/usr/bin/setpci"

FILES_OF_KNOBS = ("sysfs", "thp", "cpuidle", "cpufreq_governor", "cpufreq_epp", "amd_perf_level")


class Draft(msgspec.Struct, frozen=True):
    """Files to write (path → text), and what to do by hand."""

    files: dict[str, str]
    notes: tuple[str, ...]


def draft(
    changes: Iterable[PlannedChange],
    *,
    tuned: str = "",
    service_of: Callable[[int], str] = lambda pid: "",
    user_of: Callable[[int], str] = lambda pid: "",
    knobs: Mapping[str, Knob] = KNOBS,
    root: str = "",
) -> Draft:
    """The files that keep these changes. `tuned` is the active profile where tuned owns the host.

    `service_of` and `user_of` tell the systemd unit and the user of a process.
    """
    made = _Draft(tuned, service_of, user_of, knobs, root)
    for change in changes:
        made.add(change)
    return made.finish()


class _Draft:
    """Lines collected by the file they belong to."""

    def __init__(
        self,
        tuned: str,
        service_of: Callable[[int], str],
        user_of: Callable[[int], str],
        knobs: Mapping[str, Knob],
        root: str,
    ) -> None:
        self.tuned, self.service_of, self.user_of = tuned, service_of, user_of
        self.knobs, self.root = knobs, root.rstrip("/")
        self.lines: dict[str, list[str]] = {}
        self.tuned_sections: dict[str, list[str]] = {}
        self.notes: list[str] = []

    def add(self, change: PlannedChange) -> None:
        if change.knob == "sysctl":
            self._sysctl(change)
        elif change.knob in FILES_OF_KNOBS:
            self._kernel_file(change)
        elif change.knob == "module":
            self._module(change)
        elif change.knob.startswith("pci_"):
            self._pci(change)
        elif change.knob == "rlimit":
            self._rlimit(change)
        elif change.knob == "nvml":
            self._line(UNIT, "ExecStart=" + self.knobs["nvml"].undo_command(change.target, change.want))
        else:
            self._note(change)

    def _line(self, path: str, line: str) -> None:
        if line not in self.lines.setdefault(path, []):
            self.lines[path].append(line)

    def _sysctl(self, change: PlannedChange) -> None:
        key, _, value = change.want.rpartition("=")
        line = f"{key or change.target} = {value}"
        if self.tuned:
            self.tuned_sections.setdefault("sysctl", []).append(line)
        else:
            self._line(SYSCTL, line)

    def _kernel_file(self, change: PlannedChange) -> None:
        path = str(self.knobs[change.knob].recipe(change.target)["path"]).removeprefix(self.root)
        value, _, preference = change.want.partition(" epp=")
        pairs = [(path, value)]
        if preference:
            pairs.append((path.replace("scaling_governor", "energy_performance_preference"), preference))
        for name, wanted in pairs:
            if self.tuned:
                self.tuned_sections.setdefault("sysfs", []).append(f"{name}={wanted}")
            else:
                self._line(TMPFILES, f"w {name} - - - - {wanted}")

    def _module(self, change: PlannedChange) -> None:
        if change.want == "loaded":
            self._line(MODULES, change.target)
        else:
            self._note(change)

    def _pci(self, change: PlannedChange) -> None:
        command = self.knobs[change.knob].undo_command(change.target, change.want)
        command = command.replace("setpci", SETPCI, 1)
        self._line(UDEV, f'ACTION=="add", SUBSYSTEM=="pci", KERNEL=="{change.target}", RUN+="{command}"')

    def _rlimit(self, change: PlannedChange) -> None:
        process, _, limit = change.target.partition(":")
        pid = int(process.partition("@")[0])
        value = change.want.replace("unlimited", "infinity")
        if unit := self.service_of(pid):
            self._line(f"/etc/systemd/system/{unit}.d/90-uncork.conf", f"Limit{limit.upper()}={value}")
        elif user := self.user_of(pid):
            kib = limit in ("memlock", "as", "data", "stack", "core", "fsize", "rss")
            for word, amount in zip(("soft", "hard"), _soft_hard(change.want), strict=True):
                amount = str(int(amount) // 1024) if kib and amount.isdigit() else amount
                self._line(LIMITS, f"{user} {word} {limit} {amount}")
        else:
            self._note(change)

    def _note(self, change: PlannedChange) -> None:
        why = {
            "cgroup": "set it in the unit or container that the group belongs to",
            "pm_qos": "keep a process that holds /dev/cpu_dma_latency open, or limit C-states in firmware",
            "shm_size": f"put size={change.want} into the options of {change.target} in /etc/fstab",
            "irq_affinity": "interrupt numbers change at boot; use IRQBALANCE_BANNED_CPULIST or the driver's option",
            "affinity": "start the server under numactl or with CPUAffinity= in its unit",
            "process": "set it in the unit that starts the process",
            "module": f"put `blacklist {change.target}` into /etc/modprobe.d",
        }.get(change.knob, "uncork knows no file for it")
        self.notes.append(f"{change.target} = {change.want}: {why}")

    def finish(self) -> Draft:
        files = {
            path: HEADER + _section(path) + "\n".join(lines) + "\n" for path, lines in self.lines.items()
        }
        if UNIT in files:
            files[UNIT] += "\n[Install]\nWantedBy=multi-user.target\n"
            self.notes.append(f"systemctl enable {PurePosixPath(UNIT).name}")
        if self.tuned_sections:
            text = f"[main]\nsummary=What uncork found worth keeping\ninclude={self.tuned}\n"
            for name, lines in self.tuned_sections.items():
                text += f"\n[{name}]\n" + "\n".join(lines) + "\n"
            files[TUNED] = HEADER + text
            self.notes.append("tuned-adm profile uncork")
        if any(path.endswith((".service", ".d/90-uncork.conf")) for path in files):
            self.notes.append("systemctl daemon-reload")
        return Draft(files, tuple(dict.fromkeys(self.notes)))


def _soft_hard(want: str) -> tuple[str, str]:
    soft, colon, hard = want.partition(":")
    return soft, hard if colon else soft


def _section(path: str) -> str:
    if path == UNIT:
        return (
            "[Unit]\nDescription=GPU settings kept by uncork\nAfter=nvidia-persistenced.service\n\n"
            "[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        )
    return "[Service]\n" if path.startswith("/etc/systemd/system/") else ""
