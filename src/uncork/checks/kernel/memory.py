"""How the kernel moves memory behind a server's back."""

from collections.abc import Iterator

from uncork.checks import P1, RUNTIME, Verdict, check, fails, not_applicable, passes
from uncork.model.facts import Facts
from uncork.model.findings import Change, Evidence


@check("knob.numa-balancing", P1, RUNTIME)
def numa_balancing(facts: Facts) -> Iterator[Verdict]:
    """Automatic NUMA balancing is off.

    Effect: page faults in the scheduler thread: 5 ms mean, 16-31 ms tail (DeepEP issue 624)
    Sure: high
    Fix: sysctl kernel.numa_balancing=0
    Undo: write the former value back
    Wrong when: the server is not pinned and one process spans both nodes
    Source: Linux Documentation/admin-guide/sysctl/kernel.rst, numa_balancing; deepseek-ai/DeepEP issue 624
    """
    if len(facts.numa.nodes) < 2:
        yield not_applicable("one NUMA node: nothing to balance")
        return
    value = facts.kernel.numa_balancing
    evidence = (Evidence("/proc/sys/kernel/numa_balancing", str(value)),)
    if value != 0:
        change = Change("sysctl", "kernel.numa_balancing", "0", before=str(value))
        yield fails(f"kernel.numa_balancing is {value}", evidence=evidence, change=change)
    else:
        yield passes("NUMA balancing is off", evidence=evidence)
