"""What may not be advised on the host at hand: pure functions from a result and the facts to a result.

A veto takes the change away (or hands it to the host's administrator) and says so in the evidence; it never
turns a failure into a pass. Where a fact that decides cannot be read the change stays with a warning: the knob
itself looks again before it writes.
"""

from collections.abc import Iterable

import msgspec

from uncork.checks.hosts import known
from uncork.host.redact import cut
from uncork.model.facts import Facts
from uncork.model.findings import Answer, ChangeClass, Evidence, Result
from uncork.model.unknown import Unknown, UnknownValue

MODULE_CHECK = "kernel-version.next-boot-module"
# What an unprivileged container may write for itself; every other knob is the host's.
OWN_KNOBS = ("rlimit", "affinity", "shm_size", "process")
_PCI_KNOBS = ("pci_acs", "pci_mrrs", "pci_relaxed_ordering")


def vetoed(results: Iterable[Result], facts: Facts) -> tuple[Result, ...]:
    """Every result with the advice that holds on this host."""
    found = tuple(results)
    no_module = any(r.id == MODULE_CHECK and r.answer is Answer.FAIL for r in found)
    return tuple(
        _one(result, facts, no_module) if result.answer is Answer.FAIL else result for result in found
    )


def _one(result: Result, facts: Facts, no_module: bool) -> Result:
    for rule in (_host_only, _no_acs, _no_read_request, _locked_down):
        result = rule(result, facts)
    return _no_reboot(result, no_module)


def _knobs(result: Result) -> set[str]:
    return {change.knob for change in result.changes}


def _without(result: Result, knob: str, why: str, change_class: ChangeClass) -> Result:
    """The result without its changes of a knob, and why."""
    left = tuple(change for change in result.changes if change.knob != knob)
    return msgspec.structs.replace(
        result,
        change=left[0] if left else None,
        changes=left,
        change_class=result.change_class if left else change_class,
        evidence=(*result.evidence, Evidence("veto", why)),
    )


def host_belongs_to_others(facts: Facts) -> bool | Unknown:
    """Whether this is a container whose root is nobody on the host, or that may not write its settings."""
    container = facts.container
    if isinstance(container, Unknown):
        return container
    if isinstance(container.contained, Unknown) or not container.contained:
        return container.contained
    if container.unprivileged is True:
        return True
    return bool(container.read_only) if not isinstance(container.read_only, Unknown) else True


def _host_only(result: Result, facts: Facts) -> Result:
    """Inside a container that does not own the host, a host setting is for the host's administrator.

    The changes stay: they are the script that is handed over.
    """
    if result.change_class in (ChangeClass.HOST_ONLY, ChangeClass.NONE):
        return result
    others = host_belongs_to_others(facts)
    if isinstance(others, Unknown) or not others:
        return result
    if result.change_class is ChangeClass.SERVICE_RESTART:
        return result
    if result.changes and _knobs(result) <= set(OWN_KNOBS):
        return result
    return msgspec.structs.replace(result, change_class=ChangeClass.HOST_ONLY)


def _isolation_users(facts: Facts) -> str:
    """Who relies on ACS, empty where nobody does; raises UnknownValue where that cannot be told."""
    sources: tuple[tuple[str, Iterable[str]], ...] = (
        ("in use by", facts.pcie.isolation_users),
        ("vfio-pci holds", known(facts.firmware.vfio)),
        ("active virtual functions of", known(facts.firmware.virtual_functions)),
        ("virtual machines", known(facts.container.guests)),
    )
    return next((cut(f"{words} {', '.join(users)}", 300) for words, users in sources if users), "")


def _warned(result: Result, why: str) -> Result:
    return msgspec.structs.replace(result, evidence=(*result.evidence, Evidence("veto", why)))


def _no_acs(result: Result, facts: Facts) -> Result:
    """ACS is not touched where it isolates somebody: groups were computed at boot, and clearing voids them."""
    if "pci_acs" not in _knobs(result):
        return result
    try:
        if known(facts.container.machine) is not None:
            why = "ACS of a guest is the hypervisor's: change it on the host"
            return _without(result, "pci_acs", why, ChangeClass.HOST_ONLY)
        users = _isolation_users(facts)
    except UnknownValue as missing:
        return _warned(result, f"only where no virtual machine, vfio or SR-IOV needs it ({missing.reason})")
    if users:
        return _without(result, "pci_acs", f"ACS is left alone: {users}", ChangeClass.NONE)
    return result


def _no_read_request(result: Result, facts: Facts) -> Result:
    """MaxReadReq above a device's payload size is legal only while every completer keeps to it.

    pci=pcie_bus_perf breaks that, and the kernel then bounds the field itself (drivers/pci/pci.c,
    pcie_set_readrq).
    """
    if "pci_mrrs" not in _knobs(result):
        return result
    try:
        words = " ".join(known(facts.kernel_version.parameters))
    except UnknownValue as missing:
        return _warned(result, f"not under pci=pcie_bus_perf ({missing.reason})")
    if "pcie_bus_perf" in words:
        return _without(result, "pci_mrrs", "pci=pcie_bus_perf: the path allows no more", ChangeClass.REBOOT)
    return result


def _locked_down(result: Result, facts: Facts) -> Result:
    """Lockdown refuses writes to configuration space: what would be a write becomes a boot parameter."""
    if not _knobs(result) & set(_PCI_KNOBS):
        return result
    firmware = facts.firmware
    lockdown = firmware if isinstance(firmware, Unknown) else firmware.lockdown
    if isinstance(lockdown, Unknown) or lockdown == "none":
        return result
    for knob in _PCI_KNOBS:
        if knob in _knobs(result):
            why = f"kernel lockdown ({lockdown}) refuses writes to PCI configuration"
            result = _without(result, knob, why, ChangeClass.REBOOT)
    return result


def _no_reboot(result: Result, no_module: bool) -> Result:
    """No reboot into a kernel without a GPU module."""
    if not no_module or result.change_class is not ChangeClass.REBOOT or result.id == MODULE_CHECK:
        return result
    why = "the kernel that would boot next has no GPU module: install it first (kernel-version.next-boot-module)"
    return msgspec.structs.replace(
        result,
        change=None,
        changes=(),
        change_class=ChangeClass.NONE,
        evidence=(*result.evidence, Evidence("veto", why)),
    )
