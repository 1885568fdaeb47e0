"""Storage: where models come from, and what is left for caches and logs."""

import re

from uncork.explorers import engine_argv, engine_process, reading, serving
from uncork.host import Host
from uncork.model.facts.storage import Disk, ModelPlace, Nvme, Raid, Space, StorageFacts
from uncork.model.unknown import Unknown
from uncork.parsers import procfs

_PLACES = ("/", "/tmp", "/var/lib/docker", "/var/lib/containerd", "/var/log", "/root/.cache", "/dev/shm")
_SKIPPED = ("loop", "ram", "zram", "fd", "sr", "nbd")


def explore(host: Host) -> StorageFacts:
    """Read mounts of model folders, block queues, NVMe links, RAID state and free space."""
    mounts = reading.parsed(host, "/proc/self/mountinfo", procfs.mounts)
    disks = _disks(host)
    numbers = _numbers(host, disks)
    models = _models(host, mounts, numbers)
    return StorageFacts(
        models=models,
        spaces=_spaces(host, mounts, models),
        disks=disks,
        nvmes=_nvmes(host),
        raids=_raids(host, disks),
        core_pattern=reading.text(host, "/proc/sys/kernel/core_pattern"),
        gds_version=reading.text(host, "/proc/driver/nvidia-fs/version"),
        cufile=host.exists("/etc/cufile.json"),
        disk_numbers=numbers,
    )


def _disks(host: Host) -> tuple[Disk, ...] | Unknown:
    names = host.list("/sys/block")
    if isinstance(names, Unknown):
        return names
    found = []
    for name in names:
        if name.startswith(_SKIPPED):
            continue
        queue = f"/sys/block/{name}/queue"
        rotational = reading.integer(host, f"{queue}/rotational")
        found.append(
            Disk(
                name,
                reading.integer(host, f"{queue}/read_ahead_kb"),
                reading.chosen(host, f"{queue}/scheduler"),
                rotational if isinstance(rotational, Unknown) else bool(rotational),
            )
        )
    return tuple(found)


def _numbers(host: Host, disks: tuple[Disk, ...] | Unknown) -> dict[str, str]:
    """major:minor of disks and their partitions → the disk."""
    found: dict[str, str] = {}
    for disk in () if isinstance(disks, Unknown) else disks:
        for path in (f"/sys/block/{disk.name}/dev", *host.glob(f"/sys/block/{disk.name}/{disk.name}*/dev")):
            number = reading.text(host, path)
            if not isinstance(number, Unknown):
                found[number] = disk.name
    return found


def _models(
    host: Host, mounts: tuple[procfs.Mount, ...] | Unknown, numbers: dict[str, str]
) -> tuple[ModelPlace, ...] | Unknown:
    commands = serving.commands(host)
    if isinstance(commands, Unknown):
        return commands
    found: dict[str, ModelPlace] = {}
    for pid, argv in commands.items():
        known = engine_argv.kind_and_arguments(argv)
        path = _model_path(host, pid, *known) if known else None
        if path is None or path in found:
            continue
        inside = reading.parsed(host, f"/proc/{pid}/mountinfo", procfs.mounts)
        table = mounts if isinstance(inside, Unknown) else inside
        mount = None if isinstance(table, Unknown) else procfs.mount_of(path, table)
        found[path] = ModelPlace(
            path,
            pid,
            mount.type if mount else Unknown(f"the mount of {path} cannot be told"),
            (*mount.options, *mount.super_options) if mount else (),
            mount.source if mount else "",
            numbers.get(mount.device, "") if mount else "",
            _weights(host, f"/proc/{pid}/root{path}"),
        )
    return tuple(found.values())


def _model_path(host: Host, pid: int, kind: str, words: tuple[str, ...]) -> str | None:
    """The model's folder on disk: a path as given, or the Hugging Face cache of a name."""
    flags, loose = engine_argv.parse_flags(kind, words)
    model = engine_argv.model_of(kind, flags, loose)
    if model is None:
        return None
    if model.startswith("/"):
        return model
    environment = engine_process.environ(host, pid)
    home = {} if isinstance(environment, Unknown) else environment
    cache = flags.get("download-dir") or home.get("HF_HOME", "/root/.cache/huggingface") + "/hub"
    return f"{cache}/models--{model.replace('/', '--')}" if cache.startswith("/") else None


def _weights(host: Host, folder: str) -> int | Unknown:
    found = host.query(f"weights:{folder}")
    if isinstance(found, Unknown):
        return found
    return found if isinstance(found, int) else Unknown(f"{folder}: no size")


def _spaces(
    host: Host, mounts: tuple[procfs.Mount, ...] | Unknown, models: tuple[ModelPlace, ...] | Unknown
) -> tuple[Space, ...] | Unknown:
    """Places that fill up, one a file system."""
    places = list(_PLACES)
    if not isinstance(models, Unknown):
        places += [f"/proc/{place.pid}/root{place.path}" for place in models]
    found: dict[tuple[int, int, int], Space] = {}
    reason: Unknown = Unknown("no file system could be asked for its size")
    for path in places:
        answer = host.query(f"statvfs:{path}")
        if isinstance(answer, Unknown):
            reason = reason if answer.absent else answer
        elif isinstance(answer, dict) and answer["size_bytes"]:
            numbers = [int(answer.get(k, 0)) for k in ("size_bytes", "free_bytes", "inodes", "free_inodes")]
            found.setdefault((numbers[0], numbers[1], numbers[2]), Space(path, *numbers))
    return tuple(found.values()) or _said(host) or reading.settled_by(reason, "`df -h`")


def _said(host: Host) -> tuple[Space, ...]:
    """Spaces of attached `df` output, in 1-KiB blocks or human sizes."""
    answer = host.run(("df",))
    found = []
    for line in "" if isinstance(answer, Unknown) else answer.stdout.splitlines():
        words = line.split()
        if len(words) >= 6 and re.fullmatch(r"\d{1,3}%", words[4]) and words[5].startswith("/"):
            sizes = [_size(word) for word in (words[1], words[3])]
            if (
                sizes[0]
                and sizes[1] is not None
                and words[0] not in ("tmpfs", "devtmpfs", "squashfs", "efivarfs")
            ):
                found.append(Space(words[5], sizes[0], sizes[1], 0, 0))
    return tuple(found)


def _size(word: str) -> int | None:
    match = re.fullmatch(r"(\d{1,15}(?:\.\d)?)([KMGTP]?)", word)
    if not match:
        return None
    return int(float(match[1]) * 1024 ** ("KMGTP".find(match[2]) + 1 if match[2] else 1))


def _nvmes(host: Host) -> tuple[Nvme, ...] | Unknown:
    names = host.list("/sys/class/nvme")
    if isinstance(names, Unknown):
        return () if names.absent and not isinstance(host.list("/sys/block"), Unknown) else names
    found = []
    for name in names:
        folder = f"/sys/class/nvme/{name}"
        device = host.link(f"{folder}/device")
        inputs = host.glob(f"{folder}/hwmon*/temp1_input") or host.glob(
            f"{folder}/device/hwmon/hwmon*/temp1_input"
        )
        raw = reading.integer(host, inputs[0]) if inputs else Unknown(f"{name} shows no temperature")
        found.append(
            Nvme(
                name,
                "" if isinstance(device, Unknown) else device.rpartition("/")[2],
                reading.text(host, f"{folder}/state"),
                reading.integer(host, f"{folder}/device/current_link_width"),
                reading.integer(host, f"{folder}/device/max_link_width"),
                reading.text(host, f"{folder}/device/current_link_speed"),
                reading.text(host, f"{folder}/device/max_link_speed"),
                raw if isinstance(raw, Unknown) else raw / 1000,
                reading.integer(host, f"{folder}/device/numa_node"),
            )
        )
    return tuple(found)


def _raids(host: Host, disks: tuple[Disk, ...] | Unknown) -> tuple[Raid, ...] | Unknown:
    if isinstance(disks, Unknown):
        return disks
    return tuple(
        Raid(
            disk.name,
            reading.text(host, f"/sys/block/{disk.name}/md/level"),
            reading.integer(host, f"/sys/block/{disk.name}/md/group_thread_cnt"),
            reading.integer(host, f"/sys/block/{disk.name}/md/stripe_cache_size"),
            reading.text(host, f"/sys/block/{disk.name}/md/sync_action"),
            reading.integer(host, f"/sys/block/{disk.name}/md/degraded"),
        )
        for disk in disks
        if re.fullmatch(r"md\d+", disk.name)
    )
