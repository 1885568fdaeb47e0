"""How the kernel moves, reclaims and merges memory behind a server's back."""

import re
from collections.abc import Iterator

from uncork.checks import INFO, P0, P1, P2, RUNTIME, Verdict, check, fails, not_applicable, passes
from uncork.checks.hosts import (
    known,
    moved,
    no_process,
    no_swap,
    one_node,
    seen,
    serving,
    sizes,
    subject,
    whole,
)
from uncork.model.facts import Facts
from uncork.model.findings import Change, Evidence
from uncork.model.unknown import is_unknown

# Below this share of a server the swapped pages are start-up code that is never touched again.
SWAPPED_BYTES = 64 << 20
MAPS_WANTED = 1048576
_COMPACTION = re.compile(
    r"^.*?(\d+\.\d+)%.*\b(pageblock_pfn_to_page|compact_zone|isolate_(?:migrate|free)pages\w*"
    r"|migrate_pages\w*|compaction_alloc|__compact\w*)",
    re.M,
)


@check("kernel.numa-balancing", P1, RUNTIME)
def numa_balancing(facts: Facts) -> Iterator[Verdict]:
    """Automatic NUMA balancing is off.

    Effect: on an sglang scheduler task_numa_work took 5 ms on average, 16-31 ms in the tail (DeepEP issue 624)
    Sure: high
    Fix: sysctl kernel.numa_balancing=0; durable: numa_balancing=disable on the kernel command line
    Undo: write the former value back
    Wrong when: processes are not pinned, one of them spans nodes and is bound by CPU memory; bit 2 (memory
        tiering, CXL) is kept
    Source: Linux admin-guide/sysctl/kernel.rst, numa_balancing; deepseek-ai/DeepEP issue 624
    """
    value = facts.kernel.sysctls["kernel.numa_balancing"]
    if is_unknown(value) and value.absent:
        yield not_applicable("this kernel was built without NUMA balancing")
        return
    # The work function runs only where balancing is on and there are several nodes.
    caught = "task_numa_work" in facts.kernel.profile
    if not caught and (reason := one_node(facts)):
        yield not_applicable(reason)
        return
    mask = whole(value, "kernel.numa_balancing")
    evidence = seen("/proc/sys/kernel/numa_balancing", value)
    if not mask & 1:
        yield passes("NUMA balancing is off", evidence=evidence)
        return
    if caught:
        evidence += (Evidence("attached profile", "task_numa_work runs in a serving process"),)
    change = Change("sysctl", "kernel.numa_balancing", str(mask & ~1), before=str(value))
    yield fails(
        f"kernel.numa_balancing is {mask}: page faults stall pinned processes",
        evidence=evidence,
        change=change,
    )


@check("kernel.server-swapped-out", P0, RUNTIME, unless=(no_process, no_swap))
def server_swapped_out(facts: Facts) -> Iterator[Verdict]:
    """No serving process has memory in swap.

    Effect: milliseconds to seconds at the first touch of a page that was swapped out (arithmetic: disk latency)
    Sure: high
    Fix: give the machine or the group more memory; memory.swap.max=0 for the group keeps it from coming back
    Undo: write the former memory.swap.max back
    Wrong when: what is in swap is start-up code that is never used again (reported as P2 below 64 MiB)
    Source: Linux admin-guide/sysctl/vm.rst; proc_pid_status(5), VmSwap
    """
    for process in serving(facts):
        swapped = known(process.swap_bytes)
        evidence = seen(f"/proc/{process.pid}/status VmSwap", swapped)
        if swapped == 0:
            yield passes("no server memory in swap", subject(process), evidence=evidence)
            continue
        group = None if is_unknown(process.cgroups) or not process.cgroups else process.cgroups[0]
        keep = []
        if group and group.unified and group.path != "/" and "kubepods" not in group.path:
            keep = [Change("cgroup", f"/sys/fs/cgroup{group.path}/memory.swap.max", "0")]
        yield fails(
            f"{sizes(swapped)} of it lie in swap",
            subject(process),
            evidence=evidence,
            changes=keep,
            priority=P0 if swapped >= SWAPPED_BYTES else P2,
        )


@check("kernel.thp-enabled", INFO, RUNTIME)
def thp_enabled(facts: Facts) -> Iterator[Verdict]:
    """Transparent huge pages are available to programs that ask for them.

    Effect: published results go both ways: pageable host-to-device copies about 10 % faster (cuDF), compaction
        stalls elsewhere; `never` is worth a question, not a change
    Sure: medium
    Fix: none without a measured symptom; write madvise to /sys/kernel/mm/transparent_hugepage/enabled
    Undo: write the former word back (memory that is mapped keeps its state)
    Folklore: partly: tuned's own profiles disagree (network-latency never, hpc-compute always)
    Source: Linux admin-guide/mm/transhuge.rst; NVIDIA/cudf-spark-jni issue 1366; tuned profiles
    """
    word = facts.kernel.thp_enabled
    if is_unknown(word) and word.absent:
        yield not_applicable("this kernel has no transparent huge pages")
        return
    evidence = seen("/sys/kernel/mm/transparent_hugepage/enabled", word)
    if word == "never":
        yield fails("transparent huge pages are off", evidence=evidence)
    else:
        yield passes(f"transparent huge pages: {word}", evidence=evidence)


@check("kernel.thp-defrag", P1, RUNTIME)
def thp_defrag(facts: Facts) -> Iterator[Verdict]:
    """Page faults do not compact memory to get a huge page.

    Effect: one report: step time from 60 to 800 ms after hours, cured by defrag, not by switching huge pages off
    Sure: medium
    Fix: write madvise (or defer+madvise) to /sys/kernel/mm/transparent_hugepage/defrag
    Undo: write the former word back
    Wrong when: memory is never fragmented: `always` without growing stalls is P2 here. A server that asks for huge
        pages itself (TensorRT-LLM's host cache) compacts under madvise too: NVIDIA/TensorRT-LLM issue 15430
    Source: Linux admin-guide/mm/transhuge.rst; ray-project/ray issue 1654
    """
    word = facts.kernel.thp_defrag
    if is_unknown(word) and word.absent:
        yield not_applicable("this kernel has no transparent huge pages")
        return
    evidence = seen("/sys/kernel/mm/transparent_hugepage/defrag", word)
    if word != "always":
        yield passes(f"huge page faults do not compact (defrag {word})", evidence=evidence)
        return
    stalls = facts.kernel.vmstat
    growing = not is_unknown(stalls) and "compact_stall" in stalls and moved(stalls["compact_stall"]) > 0
    if growing:
        evidence += (
            Evidence("/proc/vmstat compact_stall", f"+{moved(stalls['compact_stall'])} while we looked"),
        )
    yield fails(
        "every huge page fault may compact memory (defrag is always)"
        + (" and it does now" if growing else ""),
        evidence=evidence,
        change=Change("thp", "defrag", "madvise", before="always"),
        priority=P1 if growing else P2,
    )


@check("kernel.compaction-reclaim-stalls", P1, RUNTIME)
def compaction_stalls(facts: Facts) -> Iterator[Verdict]:
    """Nobody waits for compaction or direct reclaim.

    Effect: latency tail: the allocating thread does the kernel's work itself
    Sure: high
    Fix: the cause: THP defrag, too little free memory, page cache pressure of a download; compact once before
        the start (vm.compact_memory), never while serving
    Undo: a compaction cannot be undone
    Wrong when: a model is being loaded just now
    Source: Linux admin-guide/sysctl/vm.rst; Linux admin-guide/mm/transhuge.rst; juicefs discussion 6147
    """
    defrag = facts.kernel.thp_defrag
    cure: tuple[Change, ...] = ()
    if not is_unknown(defrag) and defrag == "always":
        cure = (Change("thp", "defrag", "madvise", before="always"),)
    if (match := _COMPACTION.search(facts.kernel.profile)) and float(match[1]) >= 5:
        says = f"{match[1]} % of the profile is compaction ({match[2]})"
        yield fails(says, evidence=seen("attached profile", match[0].strip()), changes=cure)
        return
    events = facts.kernel.events
    hung = (
        []
        if is_unknown(events)
        else [line for line in events.hung_tasks if "kcompactd" in line or "khugepaged" in line]
    )
    if hung:
        yield fails("the compaction thread hangs", evidence=seen("kernel log", hung[0]), changes=cure)
        return
    counters = facts.kernel.vmstat
    waits = ("allocstall", "compact_stall", "pgscan_direct")
    growth = {name: moved(counter) for name, counter in counters.items() if name.startswith(waits)}
    grown = {name: by for name, by in growth.items() if by}
    total = sum(c.before for name, c in counters.items() if name.startswith(("allocstall", "compact_stall")))
    if grown:
        text = ", ".join(f"{name} +{by}" for name, by in sorted(grown.items()))
        yield fails(
            "threads wait for reclaim or compaction now", evidence=seen("/proc/vmstat", text), changes=cure
        )
    else:
        yield passes(
            "no reclaim or compaction stalls", evidence=seen("/proc/vmstat", f"+0 ({total} since boot)")
        )


@check("kernel.min-free-kbytes", INFO, RUNTIME)
def min_free(facts: Facts) -> Iterator[Verdict]:
    """The kernel's reserve of free memory is enough for its drivers.

    Effect: allocation failures of NIC and GPU drivers; nothing else
    Sure: low
    Fix: only where the log shows failures: vm.min_free_kbytes at 0.1 % of memory
    Undo: write the former value back
    Folklore: partly: fixed figures of profiles (135168) mean nothing on terabyte hosts
    Source: Linux admin-guide/sysctl/vm.rst, min_free_kbytes
    """
    reserve = facts.kernel.sysctls["vm.min_free_kbytes"]
    kept = "" if is_unknown(reserve) else f" (reserve {reserve} kB)"
    failures = facts.kernel.events.allocation_failures
    if failures:
        yield fails(
            f"{len(failures)} page allocations failed{kept}",
            evidence=seen("kernel log", failures[-1]),
        )
    else:
        yield passes(f"no failed page allocations{kept}", evidence=seen("kernel log", "no such line"))


@check("kernel.dirty-writeback", P2, RUNTIME)
def dirty_writeback(facts: Facts) -> Iterator[Verdict]:
    """Written data does not pile up to hundreds of gigabytes before it is flushed.

    Effect: 20 % of 1 TiB dirty is a flush of minutes; matters only where large files are written locally
    Sure: medium
    Fix: vm.dirty_bytes=4294967296 and vm.dirty_background_bytes=1073741824, where writers and stalls coincide
    Undo: write the former ratios back, not 0 bytes (each pair clears the other)
    Folklore: partly
    Source: Linux admin-guide/sysctl/vm.rst, dirty_bytes and dirty_ratio
    """
    memory = facts.kernel.memory_bytes.get("MemTotal", 0)
    if memory < 512 << 30:
        yield not_applicable("less than 512 GiB of memory")
        return
    limit = whole(facts.kernel.sysctls["vm.dirty_bytes"], "vm.dirty_bytes")
    ratio = whole(facts.kernel.sysctls["vm.dirty_ratio"], "vm.dirty_ratio")
    allowed = limit or memory * ratio // 100
    io = facts.kernel.pressure["io"]
    dirty = facts.kernel.memory_bytes.get("Dirty", 0)
    evidence = seen(
        "/proc/sys/vm/dirty_ratio, dirty_bytes", f"{ratio} %, {limit} bytes; dirty now {sizes(dirty)}"
    )
    if allowed > 32 << 30 and dirty > 4 << 30 and (is_unknown(io) or io.get("some", {}).get("avg60", 0) >= 5):
        yield fails(
            f"up to {sizes(allowed)} may be dirty, {sizes(dirty)} are, and I/O stalls", evidence=evidence
        )
    else:
        yield passes(f"{sizes(dirty)} dirty of {sizes(allowed)} allowed", evidence=evidence)


@check("kernel.ksm", P2, RUNTIME)
def ksm(facts: Facts) -> Iterator[Verdict]:
    """Same-page merging does not run.

    Effect: a scanner's CPU time; merged pages break huge pages of guests
    Sure: medium
    Fix: write 0 to /sys/kernel/mm/ksm/run and stop ksmtuned, which writes it back
    Undo: write the former value back
    Wrong when: virtual machines on this host need the memory
    Source: Linux admin-guide/mm/ksm.rst
    """
    run = facts.kernel.ksm_run
    if is_unknown(run) and run.absent:
        yield not_applicable("this kernel has no same-page merging")
        return
    evidence = seen("/sys/kernel/mm/ksm/run", run)
    if run == 1:
        change = Change("sysfs", "/sys/kernel/mm/ksm/run", "0", before="1")
        yield fails("same-page merging scans memory", evidence=evidence, change=change)
    else:
        yield passes("same-page merging is off", evidence=evidence)


@check("kernel.max-map-count", P1, RUNTIME, unless=no_process)
def max_map_count(facts: Facts) -> Iterator[Verdict]:
    """Serving processes stay well below the limit of mappings.

    Effect: mmap fails with ENOMEM although memory is free: an allocator or a loader dies
    Sure: medium
    Fix: sysctl vm.max_map_count=1048576
    Undo: write the former value back
    Folklore: partly: the default 65530 is enough for most
    Source: Linux admin-guide/sysctl/vm.rst, max_map_count
    """
    limit = whole(facts.kernel.sysctls["vm.max_map_count"], "vm.max_map_count")
    for process in serving(facts):
        share = process.map_count / limit
        evidence = seen(f"/proc/{process.pid}/maps, vm.max_map_count", f"{process.map_count} of {limit}")
        if share >= 0.7:
            change = Change("sysctl", "vm.max_map_count", str(max(MAPS_WANTED, limit)), before=str(limit))
            says = f"{process.map_count} mappings of {limit} allowed"
            yield fails(says, subject(process), evidence=evidence, change=change)
        else:
            yield passes("mappings far from the limit", subject(process), evidence=evidence)


@check("kernel.hugetlb-reserved", P2, RUNTIME)
def hugetlb(facts: Facts) -> Iterator[Verdict]:
    """No memory lies idle in reserved huge pages.

    Effect: memory lost to page cache and KV offload
    Sure: high
    Fix: lower nr_hugepages of that size to what is used
    Undo: write the former number back; fragmented memory may not give it again
    Wrong when: virtual machines or DPDK are about to start
    Folklore: partly: reserving huge pages for an engine does nothing, none uses hugetlb by default
    Source: Linux admin-guide/mm/hugetlbpage.rst
    """
    memory = facts.kernel.memory_bytes.get("MemTotal", 0)
    idle = sum(pool.free * pool.page_bytes for pool in facts.kernel.hugepages)
    used = sum((pool.reserved - pool.free) * pool.page_bytes for pool in facts.kernel.hugepages)
    text = ", ".join(f"{p.free} of {p.reserved} x {sizes(p.page_bytes)} free" for p in facts.kernel.hugepages)
    evidence = seen("/sys/kernel/mm/hugepages", text or "none")
    if idle and not used and memory and idle >= memory * 0.02:
        changes = [
            Change(
                "sysfs",
                f"{pool.folder}/nr_hugepages",
                str(pool.reserved - pool.free),
                before=str(pool.reserved),
            )
            for pool in facts.kernel.hugepages
            if pool.free
        ]
        yield fails(
            f"{sizes(idle)} are reserved as huge pages and unused", evidence=evidence, changes=changes
        )
    else:
        yield passes("no idle huge page reservation", evidence=evidence)
