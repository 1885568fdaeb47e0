"""Fields of PCI config space: MaxReadReq, relaxed ordering, ACS redirect. Rules: docs/how-to/add-a-knob.md."""

import errno
import glob
import os
from pathlib import Path

from uncork.knobs import Recipe, Risk, recipes
from uncork.knobs.base import RecipeKnob
from uncork.knobs.recipes import pci
from uncork.knobs.recipes.files import canonical
from uncork.model.unknown import Unknown

EXPRESS, ACS = 0x10, 0x0D
DEVICE_CONTROL, DEVICE_STATUS = 0x08, 0x0A
READ_REQUEST, RELAXED_ORDERING, PAYLOAD, RESET = 0x7000, 0x0010, 0x00E0, 0x8000
# The same three that the kernel's p2pdma asks about (drivers/pci/p2pdma.c): request, completion, egress.
REDIRECT = 0x04 | 0x08 | 0x20
PENDING = 0x20
PENDING_READS = 5
ALL_IDS = "0 0 4294967295"  # the uid map of the initial user namespace


class _ConfigField(RecipeKnob):
    """One field of one register of a function given as `0000:81:00.0`."""

    capability, extended, offset, mask, never, form = EXPRESS, False, DEVICE_CONTROL, 0, RESET, "number"

    def folder(self, target: str) -> str:
        return f"{self.root}/sys/bus/pci/devices/{target}"

    def recipe(self, target: str) -> Recipe:
        return {
            "kind": "pci-word",
            "path": f"{self.folder(target)}/config",
            "identity": self._identity(target),
            "capability": self.capability,
            "extended": self.extended,
            "offset": self.offset,
            "mask": self.mask,
            "never": self.never,
            "form": self.form,
            "compare": "words",
        }

    def _identity(self, target: str) -> str:
        # Four bytes only: reading a whole config space touches registers that nobody asked about.
        with open(f"{self.folder(target)}/config", "rb", buffering=0) as file:
            head = file.read(4)
        return f"{int.from_bytes(head[:2], 'little'):04x}:{int.from_bytes(head[2:], 'little'):04x}"

    def risk(self, target: str) -> Risk:
        return "medium"

    def veto(self, target: str, value: str) -> str:
        return self.refuses_config() or self.refuses(target, value)

    def refuses(self, target: str, value: str) -> str:
        """What of this field's own speaks against the value."""
        return ""

    def refuses_config(self) -> str:
        """Why config space must not be written from here at all."""
        lockdown = canonical(self._text("/sys/kernel/security/lockdown", "none"))
        if lockdown != "none":
            return f"the kernel is locked down ({lockdown}), it refuses writes to PCI config space"
        if " ".join(self._text("/proc/self/uid_map", "").split()) != ALL_IDS:
            return "this is a container (not the initial user namespace); run uncork on the host"
        return ""

    def _text(self, path: str, absent: str) -> str:
        try:
            return Path(self.root + path).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return absent

    def write(self, target: str, value: str) -> None:
        """Write the field unless there is a veto; if an AER counter moved, put it back and raise EIO."""
        reason = self.veto(target, value)
        if reason:
            raise PermissionError(errno.EPERM, reason, target)
        recipe = self.recipe(target)
        before, errors = recipes.read(recipe), self.errors(target)
        recipes.write(recipe, value)
        risen = sorted(name for name, count in self.errors(target).items() if count > errors.get(name, 0))
        if risen:
            recipes.write(recipe, before)
            raise OSError(errno.EIO, f"the device reported {', '.join(risen)}; put back", target)

    def errors(self, target: str) -> dict[str, int]:
        """The AER counters of the function; empty where firmware keeps them to itself."""
        counts = {}
        for kind in ("correctable", "nonfatal", "fatal"):
            for line in self._text(f"/sys/bus/pci/devices/{target}/aer_dev_{kind}", "").splitlines():
                name, _, count = line.rpartition(" ")
                if count.isdigit() and not name.startswith("TOTAL"):
                    counts[f"{kind} {name}"] = int(count)
        return counts

    def undo_command(self, target: str, before: str) -> str:
        recipe = self.recipe(target)
        field = pci.encode(recipe, before)
        where = "ECAP_ACS" if self.extended else "CAP_EXP"
        return f"setpci -s {target} {where}+{self.offset:x}.w={field:x}:{self.mask:x}"


class MaxReadRequest(_ConfigField):
    """MaxReadReq of a function, 128 to 4096 bytes. Lost at a reset of the function, a hotplug or a reboot."""

    mask, form = READ_REQUEST, "bytes"

    def refuses(self, target: str, value: str) -> str:
        now = self.read(target)
        if isinstance(now, Unknown) or (value.isdigit() and int(value) <= int(now)):
            return ""  # unreadable fails by itself; smaller is always legal
        if "pcie_bus_perf" in self._text("/proc/cmdline", ""):
            return "the kernel was booted with pci=pcie_bus_perf, which sizes read requests by payload"
        try:
            sizes = {name: self._control(name) & PAYLOAD for name in self.path_to(target)}
            if self._pending(target):
                return "the device has transactions pending all the time; try when it is idle"
        except OSError as error:
            return f"the path to the root could not be read ({error.strerror}), so MaxPayload is unknown"
        if len(set(sizes.values())) > 1:
            return (
                "MaxPayload differs along the path, so larger reads could bring completions that are too long"
            )
        return ""

    def path_to(self, target: str) -> list[str]:
        """The function and every bridge above it."""
        parts = Path(os.path.realpath(self.folder(target))).parts
        return [part for part in parts if part.count(":") == 2]

    def _control(self, target: str) -> int:
        with pci.register(self.recipe(target)) as (handle, offset):
            return pci.word(handle, offset, target)

    def _pending(self, target: str) -> bool:
        with pci.register(self.recipe(target)) as (handle, offset):
            status = offset - DEVICE_CONTROL + DEVICE_STATUS
            return all(pci.word(handle, status, target) & PENDING for _ in range(PENDING_READS))


class RelaxedOrdering(_ConfigField):
    """Whether a function may mark its transactions as relaxed in order; needs a data check afterwards."""

    mask = RELAXED_ORDERING

    def risk(self, target: str) -> Risk:
        return "high"


class AcsRedirect(_ConfigField):
    """The redirect bits of a bridge's Access Control Services; 0 lets peers below it talk directly.

    The kernel computed IOMMU groups at boot and goes on believing in the isolation, so clearing is refused where
    anything relies on it. Setting the bits again is never refused.
    """

    capability, extended, offset, mask, never, form = ACS, True, 0x06, REDIRECT, 0, "bits"

    def risk(self, target: str) -> Risk:
        return "high"

    def refuses(self, target: str, value: str) -> str:
        try:
            now, want = int(recipes.read(self.recipe(target)), 16), pci.encode(self.recipe(target), value)
        except OSError:
            return ""  # fails by itself, with its own errno
        return self.isolation() if now & ~want else ""

    def isolation(self) -> str:
        """Who relies on the isolation that ACS redirect gives."""
        if " hypervisor" in self._text("/proc/cpuinfo", " hypervisor"):
            return "this is a virtual machine; ACS belongs to its host"
        if glob.glob(f"{self.root}/sys/bus/pci/drivers/vfio-pci/*:*"):
            return "a device is bound to vfio-pci and relies on ACS"
        for path in glob.glob(f"{self.root}/sys/bus/pci/devices/*/sriov_numvfs"):
            if self._text(path.removeprefix(self.root), "0").strip() != "0":
                return f"{path.split('/')[-2]} has virtual functions that rely on ACS"
        for name in ("kvm_intel", "kvm_amd"):
            if self._text(f"/sys/module/{name}/refcnt", "0").strip() != "0":
                return "virtual machines run here and may rely on ACS"
        return ""
