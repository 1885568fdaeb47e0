"""Where a model is loaded from, and what slows that down; nothing here touches a running server's speed."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    INFO,
    NONE,
    P1,
    P2,
    RUNTIME,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.hosts import known, no_process, no_server, seen, serving, sizes, subject
from uncork.model.facts import Facts
from uncork.model.facts.storage import Disk
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown

# File systems whose pages come over a network or through a program; overlay copies and looks up in layers.
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "fuse", "9p", "virtiofs", "sshfs", "glusterfs")
READ_AHEAD_KB = 4096
HOT_C = 70.0


@check("storage.model-fs", P1, SERVICE_RESTART, unless=no_server)
def model_place(facts: Facts) -> Iterator[Verdict]:
    """Models are loaded from a local disk or a parallel file system.

    Effect: a start of minutes instead of seconds; none once weights are on the GPU, except for loaders that map
        files and fault over the network
    Sure: medium
    Fix: copy the model to a local NVMe drive, or let the engine prefetch (safetensors prefetch)
    Undo: the former path
    Wrong when: a parallel file system that is mounted as FUSE or NFS and is fast enough
    Source: vLLM documentation, loading; statfs(2)
    """
    models = known(facts.storage.models)
    if not models:
        yield unknown("no server's command line names a model folder that can be found")
        return
    for model in models:
        kind = known(model.type)
        evidence = seen("/proc/PID/mountinfo", f"{model.path} on {kind} ({model.source})")
        packed = [option for option in model.options if option.startswith("compress")]
        if kind in REMOTE or kind.startswith("fuse."):
            yield fails(f"the model lies on {kind}", model.path, evidence=evidence)
        elif kind == "overlay":
            says = "the model lies in the container's image layers (overlay)"
            yield fails(says, model.path, evidence=evidence, priority=P2)
        elif packed:
            yield fails(
                f"the model lies on a compressed file system ({packed[0]})",
                model.path,
                evidence=evidence,
                priority=P2,
            )
        else:
            yield passes(f"the model lies on {kind}", model.path, evidence=evidence)


def _loading_disks(facts: Facts) -> list[Disk]:
    """The local disks that hold the models of servers."""
    used = {model.disk for model in known(facts.storage.models)}
    return [disk for disk in known(facts.storage.disks) if disk.name in used]


@check("storage.readahead", P2, RUNTIME, unless=no_server)
def read_ahead(facts: Facts) -> Iterator[Verdict]:
    """Disks read ahead far enough for files that are loaded from start to end.

    Effect: the start of a server only; O_DIRECT and GPUDirect loaders do not use it
    Sure: medium
    Fix: write 4096 to /sys/block/DISK/queue/read_ahead_kb
    Undo: write the former value back
    Wrong when: a database with random reads shares the disk
    Source: tuned profiles (read-ahead as an at-least rule); Linux ABI, sysfs-block
    """
    disks = [disk for disk in _loading_disks(facts) if not is_unknown(disk.read_ahead_kb)]
    if not disks:
        yield not_applicable("no model lies on a local disk")
        return
    slow = [disk for disk in disks if known(disk.read_ahead_kb) < READ_AHEAD_KB]
    text = ", ".join(f"{disk.name} {disk.read_ahead_kb} kB" for disk in disks)
    evidence = seen("/sys/block/*/queue/read_ahead_kb", text)
    if slow:
        changes = [
            Change(
                "sysfs",
                f"/sys/block/{d.name}/queue/read_ahead_kb",
                str(READ_AHEAD_KB),
                before=str(d.read_ahead_kb),
            )
            for d in slow
        ]
        yield fails(
            f"{len(slow)} disks read ahead less than {READ_AHEAD_KB} kB", evidence=evidence, changes=changes
        )
    else:
        yield passes("disks read ahead far enough", evidence=evidence)


@check("storage.io-scheduler", P2, RUNTIME)
def scheduler(facts: Facts) -> Iterator[Verdict]:
    """NVMe drives have no scheduler that reorders.

    Effect: the start of a server only
    Sure: medium
    Fix: write none to /sys/block/DISK/queue/scheduler
    Undo: write the former word back
    Folklore: partly: mq-deadline and kyber are fine too
    Source: Linux block/bfq-iosched.rst; Linux block/switching-sched.rst
    """
    drives = [
        d for d in known(facts.storage.disks) if d.name.startswith("nvme") and not is_unknown(d.scheduler)
    ]
    if not drives:
        yield not_applicable("no NVMe drive")
        return
    wrong = [drive for drive in drives if drive.scheduler not in ("none", "mq-deadline", "kyber")]
    evidence = seen("/sys/block/nvme*/queue/scheduler", ", ".join(f"{d.name} {d.scheduler}" for d in drives))
    if wrong:
        changes = [
            Change("sysfs", f"/sys/block/{d.name}/queue/scheduler", "none", before=str(d.scheduler))
            for d in wrong
        ]
        yield fails(f"{len(wrong)} NVMe drives use {wrong[0].scheduler}", evidence=evidence, changes=changes)
    else:
        yield passes("NVMe drives are not reordered", evidence=evidence)


@check("storage.nvme-link", P2, FIRMWARE)
def nvme_link(facts: Facts) -> Iterator[Verdict]:
    """NVMe drives have all their lanes, are alive and cool.

    Effect: the start of a server
    Sure: high
    Fix: the slot, the riser, the cooling
    Undo: nothing to undo
    Wrong when: an idle link runs slower (not reported: only lanes count), or the slot is wired narrower
    Source: Linux ABI, sysfs-bus-pci; NVM Express base specification, composite temperature
    """
    drives = known(facts.storage.nvmes)
    if not drives:
        yield not_applicable("no NVMe drive")
        return
    for drive in drives:
        text = f"x{drive.width} of x{drive.max_width}, {drive.state}, {drive.temperature_c} C"
        evidence = seen(f"/sys/class/nvme/{drive.name}", text)
        narrow = (
            not is_unknown(drive.width)
            and not is_unknown(drive.max_width)
            and 0 < drive.width < drive.max_width
        )
        if not is_unknown(drive.state) and drive.state not in ("live", "new"):
            yield fails(f"controller is {drive.state}", drive.name, evidence=evidence)
        elif narrow:
            yield fails(f"x{drive.width} of x{drive.max_width} lanes", drive.name, evidence=evidence)
        elif not is_unknown(drive.temperature_c) and drive.temperature_c >= HOT_C:
            yield fails(f"{drive.temperature_c:.0f} C", drive.name, evidence=evidence)
        else:
            yield passes("NVMe drives have all lanes", drive.name, evidence=evidence)


@check("storage.md-raid-threads", P2, RUNTIME)
def raid(facts: Facts) -> Iterator[Verdict]:
    """Software RAID with parity uses several threads and is whole.

    Effect: one rig: write waits from 645 to 165 ms
    Sure: medium
    Fix: write 8 to /sys/block/MD/md/group_thread_cnt
    Undo: write the former value back
    Wrong when: the stripe cache (stripe_cache_size x 4 KiB x disks) would not fit
    Source: rtx6kpro wiki; Linux admin-guide/md.rst
    """
    arrays = [
        r
        for r in known(facts.storage.raids)
        if not is_unknown(r.level) and r.level in ("raid4", "raid5", "raid6")
    ]
    if not arrays:
        yield not_applicable("no software RAID with parity")
        return
    for array in arrays:
        evidence = seen(
            f"/sys/block/{array.name}/md", f"{array.level}, {array.threads} threads, {array.sync_action}"
        )
        if not is_unknown(array.degraded) and array.degraded:
            yield fails("the array is degraded", array.name, evidence=evidence)
        elif not is_unknown(array.sync_action) and array.sync_action not in ("idle", "none"):
            yield fails(f"the array is busy with a {array.sync_action}", array.name, evidence=evidence)
        elif known(array.threads) < 4:
            target = f"/sys/block/{array.name}/md/group_thread_cnt"
            change = Change("sysfs", target, "8", before=str(array.threads))
            yield fails("one thread does the parity", array.name, evidence=evidence, change=change)
        else:
            yield passes("parity in several threads", array.name, evidence=evidence)


@check("storage.gds", P2, RUNTIME)
def gds(facts: Facts) -> Iterator[Verdict]:
    """A loader that uses GPUDirect Storage has its driver.

    Effect: load time: without the driver cuFile copies through host memory
    Sure: medium
    Fix: modprobe nvidia-fs
    Undo: modprobe -r nvidia-fs
    Wrong when: no loader uses cuFile: then the driver does nothing
    Source: GPUDirect Storage troubleshooting
    """
    users = [
        server
        for server in facts.engine.servers
        if server.flags.get("load-format", "") in ("fastsafetensors", "gds")
        or (not is_unknown(server.libraries) and any("libcufile.so" in path for path in server.libraries))
    ]
    if not users:
        yield not_applicable("no server here loads through cuFile")
        return
    version = facts.storage.gds_version
    if is_unknown(version) and version.absent:
        change = Change("module", "nvidia_fs", "loaded", before="absent")
        evidence = seen("/proc/driver/nvidia-fs/version", "absent")
        yield fails(
            f"{users[0].kind} uses cuFile without the nvidia-fs driver", evidence=evidence, change=change
        )
    else:
        yield passes(
            "the nvidia-fs driver is there", evidence=seen("/proc/driver/nvidia-fs/version", known(version))
        )


@check("storage.page-cache-fit", INFO, NONE, unless=no_server)
def page_cache_fit(facts: Facts) -> Iterator[Verdict]:
    """Whether the weights fit the page cache: a fact.

    Effect: a restart of seconds instead of minutes
    Sure: high
    Fix: none
    Undo: nothing to undo
    Source: proc_meminfo(5); own reasoning
    """
    models = [model for model in known(facts.storage.models) if not is_unknown(model.weight_bytes)]
    if not models:
        yield unknown("the size of no model's weights is known")
        return
    memory = known(facts.kernel.memory_bytes).get("MemAvailable", 0)
    for model in models:
        fits = known(model.weight_bytes) <= memory
        text = f"{sizes(known(model.weight_bytes))} of weights, {sizes(memory)} available"
        says = "weights fit the page cache" if fits else "weights do not fit the page cache"
        yield passes(says, model.path, evidence=seen("/proc/meminfo", text))


@check("storage.io-limit", P2, RUNTIME, unless=no_process)
def io_limit(facts: Facts) -> Iterator[Verdict]:
    """No limit throttles the disk of a model.

    Effect: the start of a server
    Sure: high
    Fix: write `MAJOR:MINOR rbps=max riops=max` to io.max from the host
    Undo: write the former line back
    Wrong when: the limit protects neighbours
    Source: Linux admin-guide/cgroup-v2.rst, io.max
    """
    for process in serving(facts)[:1]:
        found = False
        for group in known(process.cgroups):
            text = group.io_max
            if is_unknown(text):
                continue
            for line in text.splitlines():
                limits = [
                    word
                    for word in line.split()[1:]
                    if word.startswith(("rbps=", "riops=")) and not word.endswith("=max")
                ]
                if limits:
                    found = True
                    device = line.split()[0]
                    target = f"/sys/fs/cgroup{group.path.rstrip('/')}/io.max"
                    says = f"reads of {device} are limited ({limits[0]})"
                    yield fails(says, subject(process), evidence=seen(target, line))
        if not found:
            yield passes("no I/O limit", subject(process))
