"""Kernel settings that are one value and one rule."""

from uncork.checks import INFO, P1, P2
from uncork.checks.hosts import no_process, no_swap, one_node, serving, virtual_reason
from uncork.checks.settings import Setting, at_most, declare_setting, exactly, none_of, one_of
from uncork.model.facts import Facts
from uncork.model.unknown import is_unknown


def no_pressure(facts: Facts) -> str:
    """Why swappiness makes no difference, or an empty text."""
    if reason := no_swap(facts):
        return reason
    pressure = facts.kernel.pressure["memory"]
    stalls = 0.0 if is_unknown(pressure) else pressure.get("some", {}).get("avg60", 0.0)
    swapped = sum(area.used_bytes for area in facts.kernel.swaps)
    servers = sum(p.swap_bytes for p in serving(facts) if not is_unknown(p.swap_bytes))
    if stalls > 0 or servers > 0:
        return ""
    told = "pressure is not measured here" if is_unknown(pressure) else "no memory pressure"
    return f"{told}, and no server memory is in swap ({swapped >> 20} MiB of others are)"


def no_root_group(facts: Facts) -> str:
    """Autogroup sorts only tasks of the root CPU group (sched(7))."""
    if reason := no_process(facts):
        return reason
    own = [p for p in serving(facts) if not is_unknown(p.cgroup_path) and p.cgroup_path == "/"]
    return "" if own else "no server runs in the root CPU group, and autogroup touches no other"


SETTINGS = (
    Setting(
        id="kernel.swappiness",
        target="vm.swappiness",
        rule=at_most(10),
        priority=P2,
        unless=no_pressure,
        doc="""The kernel prefers dropping page cache to swapping a server out.

        Effect: none without swap or memory pressure
        Sure: medium
        Fix: sysctl vm.swappiness=10
        Undo: write the former value back
        Wrong when: swap is zram or zswap, which wants a high value
        Folklore: partly: every guide lists it; without pressure it does nothing
        Source: Linux admin-guide/sysctl/vm.rst, swappiness
        """,
    ),
    Setting(
        id="kernel.zone-reclaim",
        target="vm.zone_reclaim_mode",
        rule=exactly("0"),
        priority=P2,
        unless=one_node,
        right="no reclaim for the sake of locality",
        doc="""A full node spills to the next instead of reclaiming.

        Effect: stalls and lost page cache while weights load
        Sure: medium
        Fix: sysctl vm.zone_reclaim_mode=0
        Undo: write the former value back
        Wrong when: the image set it on purpose (Azure HPC images and tuned hpc-compute use 1; mlnx_tune uses 0)
        Folklore: partly: experts disagree
        Source: Linux admin-guide/sysctl/vm.rst, zone_reclaim_mode; azhpc-images; mlnx_tune
        """,
    ),
    Setting(
        id="kernel.overcommit",
        target="vm.overcommit_memory",
        rule=one_of("0", "1"),
        priority=P1,
        right="memory may be overcommitted",
        doc="""Large virtual reservations are not refused.

        Effect: strict accounting refuses the huge reservations of CUDA and the fork of a large process
        Sure: medium
        Fix: sysctl vm.overcommit_memory=0
        Undo: write the former value back
        Wrong when: a database on the same host needs strict accounting
        Source: Linux admin-guide/sysctl/vm.rst, overcommit_memory; Linux mm/overcommit-accounting.rst
        """,
    ),
    Setting(
        id="kernel.nmi-watchdog",
        target="kernel.nmi_watchdog",
        rule=exactly("0"),
        priority=INFO,
        unless=virtual_reason,
        planned=False,
        doc="""The hard-lockup watchdog: a fact, not a fault.

        Effect: one performance counter and less than 0.1 % CPU; no measurement with inference exists
        Sure: low
        Fix: none planned; sysctl kernel.nmi_watchdog=0 where the counter is needed
        Undo: write the former value back
        Folklore: yes: harmless, but no gain, and a hang is then not reported
        Source: Linux admin-guide/sysctl/kernel.rst, nmi_watchdog; Linux admin-guide/lockup-watchdogs.rst
        """,
    ),
    Setting(
        id="kernel.sched-autogroup",
        target="kernel.sched_autogroup_enabled",
        rule=exactly("0"),
        priority=INFO,
        unless=no_root_group,
        planned=False,
        doc="""Autogroup does not slice up a server that was started from a shell.

        Effect: none for services and containers: only tasks of the root CPU group are sorted
        Sure: high
        Fix: none planned; start the server as a service
        Undo: nothing to undo
        Folklore: yes: a no-op for services and containers
        Source: sched(7), the autogroup feature
        """,
    ),
    Setting(
        id="kernel.vm-stat-interval",
        target="vm.stat_interval",
        rule=none_of("0", want="1"),
        priority=INFO,
        planned=False,
        doc="""Memory statistics are updated at their usual pace.

        Effect: microseconds of jitter
        Sure: low
        Fix: leave it
        Undo: nothing to undo
        Folklore: yes: telecom jitter advice; a longer interval only blurs what this audit reads
        Source: Linux admin-guide/sysctl/vm.rst, stat_interval; tuned profiles
        """,
    ),
    Setting(
        id="kernel.timer-migration",
        target="kernel.timer_migration",
        rule=one_of("1", "0"),
        priority=INFO,
        planned=False,
        doc="""Timers may move to busy CPUs.

        Effect: none known
        Sure: low
        Fix: leave it
        Undo: nothing to undo
        Folklore: yes
        Source: Linux admin-guide/sysctl/kernel.rst; tuned profiles
        """,
    ),
    Setting(
        id="kernel.compaction-proactiveness",
        target="vm.compaction_proactiveness",
        rule=at_most(100),
        priority=INFO,
        planned=False,
        doc="""Background compaction is left at its default.

        Effect: jitter of kcompactd on isolated CPUs at most
        Sure: low
        Fix: leave it; 0 only with such jitter seen
        Undo: nothing to undo
        Folklore: yes: no evidence with serving
        Source: Linux admin-guide/sysctl/vm.rst, compaction_proactiveness (5.9)
        """,
    ),
)

for row in SETTINGS:
    declare_setting("kernel", row)
