"""The kernel command line: what harms, what is dead, what is worth adding."""

from collections.abc import Callable, Iterator

import msgspec

from uncork.checks import INFO, P1, P2, REBOOT, Verdict, check, fails, not_applicable, passes
from uncork.checks.hosts import known, one_node, seen
from uncork.model.facts import Facts
from uncork.model.findings import Priority
from uncork.model.unknown import is_unknown

MANY_CPUS = 255


def _always(facts: Facts) -> bool:
    return True


def _many_cpus(facts: Facts) -> bool:
    present = facts.kernel.cpus_present
    return not is_unknown(present) and len(present) > MANY_CPUS


class Bad(msgspec.Struct, frozen=True):
    """A parameter that hurts or does nothing: its spelling, why, and when."""

    matches: Callable[[str], bool]
    priority: Priority
    why: str
    applies: Callable[[Facts], bool] = _always


def _is(*words: str) -> Callable[[str], bool]:
    return lambda piece: piece in words


def pieces(parameter: str) -> tuple[str, ...]:
    """`pci=nomsi,noaer` is two settings: `pci=nomsi` and `pci=noaer`."""
    name, equals, values = parameter.partition("=")
    if name != "pci" or "," not in values:
        return (parameter,)
    return tuple(f"{name}{equals}{value}" for value in values.split(","))


BAD = (
    Bad(_is("pci=pcie_bus_peer2peer"), P1, "sets a payload of 128 bytes on every device"),
    Bad(_is("pci=nomsi"), P1, "switches message interrupts off for every device"),
    Bad(
        lambda p: p.startswith("pcie_acs_override"), P1, "needs a patched kernel and only pretends isolation"
    ),
    Bad(_is("intremap=off", "nox2apic"), P1, "CPUs above 255 stay offline without it", _many_cpus),
    Bad(
        _is("iommu=off", "amd_iommu=off", "intel_iommu=off"),
        P2,
        "over 255 CPUs the IOMMU remaps interrupts: use iommu=pt",
        _many_cpus,
    ),
    Bad(_is("pci=noacs"), INFO, "no mainline kernel knows it: it does nothing"),
    Bad(_is("pci=noaer"), P2, "hides link errors"),
    Bad(_is("pcie_aspm=force"), P2, "forces link power saving on devices that ask not to have it"),
    Bad(_is("idle=poll"), P2, "costs boost clocks and power; PM QoS does the same while a server runs"),
    Bad(
        _is("processor.max_cstate=0", "intel_idle.max_cstate=0"),
        P2,
        "falls back to the firmware's idle table: use PM QoS",
    ),
    Bad(lambda p: p.startswith(("maxcpus=", "nr_cpus=")), P2, "leaves CPUs unused"),
    Bad(lambda p: p.startswith("mem=") and p != "mem=nopentium", P2, "leaves memory unused"),
    Bad(_is("nosmt", "nosmt=force"), P2, "halves the threads for tokenizers and API servers"),
    Bad(_is("mitigations=off"), INFO, "no gain where the GPU is the limit, and a hole"),
)


@check("kernel-version.bad-cmdline", P1, REBOOT)
def bad_parameters(facts: Facts) -> Iterator[Verdict]:
    """No boot parameter harms serving or is dead.

    Effect: some cost bandwidth (128-byte payloads), some CPUs, some do nothing
    Sure: high
    Fix: take it out of the boot loader's configuration, with its owner's consent
    Undo: put it back
    Wrong when: its owner has a reason: ask
    Folklore: yes: this check lists folklore (mitigations=off, idle=poll, pci=noacs)
    Source: Linux admin-guide/kernel-parameters.txt
    """
    parameters = known(facts.kernel_version.parameters)
    found = False
    for piece in dict.fromkeys(piece for parameter in parameters for piece in pieces(parameter)):
        for bad in BAD:
            if bad.matches(piece) and bad.applies(facts):
                found = True
                evidence = seen("/proc/cmdline", piece)
                yield fails(f"{piece}: {bad.why}", piece, evidence=evidence, priority=bad.priority)
    events = facts.kernel.events
    lines = () if is_unknown(events) else events.unknown_parameters
    for line in lines:
        if "PCI: Unknown option" in line or "ACS" in line:
            found = True
            yield fails(
                "the kernel did not understand a PCI option", "log", evidence=seen("kernel log", line)
            )
    if not found:
        yield passes(
            "no harmful boot parameter", evidence=seen("/proc/cmdline", f"{len(parameters)} parameters")
        )


@check("kernel-version.good-cmdline", P1, REBOOT)
def good_parameters(facts: Facts) -> Iterator[Verdict]:
    """What a plan changes at run time is kept by a boot parameter.

    Effect: the finding it makes durable; none of its own (reported as info)
    Sure: high
    Fix: add the parameter, with a console at hand and kernel-version.next-boot-module passing
    Undo: remove it
    Wrong when: sysctl.d or a tuned profile keeps the value already
    Source: Linux admin-guide/kernel-parameters.txt
    """
    words = known(facts.kernel_version.parameters)
    wanted = list(_wanted(facts, words))
    for parameter, why in wanted:
        evidence = seen("/proc/cmdline", "not there")
        yield fails(f"{parameter} would keep {why}", parameter, evidence=evidence, priority=INFO)
    if not wanted:
        yield not_applicable("no finding here needs a boot parameter")


def _wanted(facts: Facts, words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    balancing = facts.kernel.sysctls["kernel.numa_balancing"]
    nodes = facts.numa.nodes
    on = not is_unknown(balancing) and balancing != "0" and not is_unknown(nodes) and not one_node(facts)
    if on and "numa_balancing=disable" not in words:
        yield "numa_balancing=disable", "NUMA balancing off"
    machine = facts.container.machine
    gpus = facts.driver.gpus
    several = not is_unknown(gpus) and len(gpus) > 1
    translated = not is_unknown(facts.pcie.iommu_default) and facts.pcie.iommu_default == "translated"
    if several and translated and not is_unknown(machine) and machine is None and "iommu=pt" not in words:
        yield "iommu=pt", "peer access out of the IOMMU's translation"
    driver, cppc = facts.firmware.cpufreq_driver, facts.firmware.cppc
    plain = not is_unknown(driver) and driver == "acpi-cpufreq" and cppc is True
    if plain and not any(word.startswith("amd_pstate=") for word in words):
        yield "amd_pstate=active", "the processor's own frequency control"
