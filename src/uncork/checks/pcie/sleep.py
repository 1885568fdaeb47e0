"""Links and ports that sleep."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    P2,
    RUNTIME,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
)
from uncork.checks.gpus import each, pci_gpus
from uncork.checks.hosts import known, seen
from uncork.checks.pcie.links import endpoints, guest, subject
from uncork.model.facts import Facts
from uncork.model.facts.pcie import PciDevice
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown

_POLICY = "/sys/module/pcie_aspm/parameters/policy"


@check("pcie.aspm-policy", P2, RUNTIME)
def aspm_policy(facts: Facts) -> Iterator[Verdict]:
    """The policy for link power saving is not to save.

    Effect: 2 to 64 us to wake an idle link; nothing under steady load
    Sure: medium
    Fix: echo performance > /sys/module/pcie_aspm/parameters/policy
    Undo: write the former policy
    Wrong when: firmware keeps control: the write is refused, and pcie_aspm=off would change nothing either
    Folklore: partly: servers ship with it off
    Source: Linux Documentation/admin-guide/kernel-parameters.txt, pcie_aspm; Linux drivers/pci/pcie/aspm.c
    """
    if not pci_gpus(facts):
        yield not_applicable("no GPU")
        return
    policy = facts.pcie.aspm_policy
    if is_unknown(policy) and policy.absent:
        yield not_applicable("the kernel has no link power saving")
    elif known(policy) in ("performance", "default"):
        yield passes(f"policy {policy}")
    else:
        change = Change("sysfs", _POLICY, "performance", before=known(policy))
        yield fails(f"policy {policy}", change=change, evidence=seen(_POLICY, policy))


@check("pcie.aspm-link", P2, RUNTIME)
def aspm_link(facts: Facts) -> Iterator[Verdict]:
    """Links of GPUs, NICs and NVMe drives do not sleep.

    Effect: 2 to 64 us to wake an idle link; nothing under steady load
    Sure: medium
    Fix: echo 0 > /sys/bus/pci/devices/ADDRESS/link/l1_aspm (the kernel orders both ends)
    Undo: echo 1 to the same file
    Wrong when: a workstation that should save power
    Source: Linux Documentation/ABI/testing/sysfs-bus-pci, link/
    """
    if guest(facts):
        yield not_applicable("a virtual machine: links are the host's")
        return

    def judge(device: PciDevice) -> Iterator[Verdict]:
        if not is_unknown(device.aspm_link):
            on = sorted(name for name, enabled in device.aspm_link.items() if enabled)
            if on:
                base = f"/sys/bus/pci/devices/{device.bdf}/link"
                changes = [Change("sysfs", f"{base}/{name}", "0", before="1") for name in on]
                yield fails(
                    f"the link may sleep ({', '.join(on)})",
                    device.bdf,
                    changes=changes,
                    evidence=seen("link/", on),
                )
                return
            if device.aspm_link or is_unknown(device.config) or device.config.aspm is None:
                yield passes("the link does not sleep", device.bdf)
                return
        state = known(known(device.config).aspm)
        if state in ("off", None):
            yield passes("the link does not sleep", device.bdf)
        else:
            yield fails(
                f"the link may sleep ({state})",
                device.bdf,
                change_class=FIRMWARE,
                evidence=seen("LnkCtl", f"ASPM {state}"),
            )

    yield from each((d for d in endpoints(facts) if d.kind != "fragment"), subject, judge)


@check("pcie.runtime-pm", P2, RUNTIME)
def runtime_pm(facts: Facts) -> Iterator[Verdict]:
    """No port above a GPU sleeps.

    Effect: a wake-up at the next request; on some boards a link that does not come back
    Sure: medium
    Fix: echo on > /sys/bus/pci/devices/PORT/power/control
    Undo: echo auto to the same file
    Wrong when: a laptop
    Source: Linux Documentation/power/runtime_pm.rst; open-gpu-kernel-modules reports of surprise link down
    """
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    dropped = bool(log.get("link-down"))

    def judge(device: PciDevice) -> Iterator[Verdict]:
        steps = (*known(device.path), device.bdf)
        asleep = [d for d in facts.pcie.devices if d.bdf in steps and known(d.runtime_status) == "suspended"]
        free = [d for d in facts.pcie.devices if d.bdf in steps and known(d.power_control) == "auto"]
        if asleep or (dropped and free):
            changes = [
                Change("sysfs", f"/sys/bus/pci/devices/{d.bdf}/power/control", "on", before="auto")
                for d in free
            ]
            words = f"{(asleep or free)[0].bdf} sleeps" if asleep else "links dropped, and ports may sleep"
            yield fails(words, device.bdf, changes=changes, evidence=seen("power/runtime_status", words))
        else:
            yield passes("nothing on its path sleeps", device.bdf)

    yield from each(pci_gpus(facts), subject, judge)
