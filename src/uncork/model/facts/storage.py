"""Storage: where models come from, and what is left for caches and logs."""

import msgspec

from uncork.model.unknown import Unknown


class Space(msgspec.Struct, frozen=True):
    """Room on the file system that holds a path."""

    path: str
    size_bytes: int
    free_bytes: int
    inodes: int  # 0 where the file system counts none
    free_inodes: int


class ModelPlace(msgspec.Struct, frozen=True):
    """The folder that a server loads its model from."""

    path: str
    pid: int
    type: str | Unknown  # ext4, xfs, overlay, nfs4, …
    options: tuple[str, ...]
    source: str
    disk: str  # the block device below, "" where there is none
    weight_bytes: int | Unknown


class Disk(msgspec.Struct, frozen=True):
    """A block device."""

    name: str
    read_ahead_kb: int | Unknown
    scheduler: str | Unknown  # the chosen one
    rotational: bool | Unknown


class Nvme(msgspec.Struct, frozen=True):
    """An NVMe controller: its link against what it can do, its state and temperature."""

    name: str
    bdf: str
    state: str | Unknown
    width: int | Unknown
    max_width: int | Unknown
    speed: str | Unknown
    max_speed: str | Unknown
    temperature_c: float | Unknown
    numa_node: int | Unknown


class Raid(msgspec.Struct, frozen=True):
    """A software RAID array."""

    name: str
    level: str | Unknown
    threads: int | Unknown
    stripe_cache: int | Unknown
    sync_action: str | Unknown
    degraded: int | Unknown


class StorageFacts(msgspec.Struct, frozen=True):
    """Storage: where models come from, and what is left for caches and logs."""

    models: tuple[ModelPlace, ...] | Unknown
    spaces: tuple[Space, ...] | Unknown
    disks: tuple[Disk, ...] | Unknown
    nvmes: tuple[Nvme, ...] | Unknown
    raids: tuple[Raid, ...] | Unknown
    core_pattern: str | Unknown
    gds_version: str | Unknown  # nvidia-fs; absent where it is not loaded
    cufile: bool | Unknown  # /etc/cufile.json is there
    disk_numbers: dict[str, str]  # major:minor → device name
