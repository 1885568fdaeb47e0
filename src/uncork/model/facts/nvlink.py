"""NVLink, NVSwitch, NVLink-C2C and xGMI, beside what the driver tells of each GPU."""

import msgspec

from uncork.model.facts.driver import NvLink
from uncork.model.unknown import Unknown


class Links(msgspec.Struct, frozen=True):
    """The NVLinks of one GPU."""

    gpu: int
    name: str
    subject: str
    links: tuple[NvLink, ...]


class Xgmi(msgspec.Struct, frozen=True):
    """xGMI of one AMD GPU: the driver's error word (0 none) and its hive."""

    bdf: str
    error: int | Unknown
    hive: str | Unknown
    ras_errors: int | Unknown


class NvlinkFacts(msgspec.Struct, frozen=True):
    """NVLink, NVSwitch, NVLink-C2C and xGMI."""

    gpus: tuple[Links, ...] | Unknown
    source: str
    query_times_s: tuple[float, ...]  # how long a link query took, where somebody timed it
    xgmi: tuple[Xgmi, ...]
    switches: int | Unknown  # NVSwitch functions on the PCI bus
