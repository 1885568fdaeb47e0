"""What lspci says of one PCI function."""

import re

import msgspec

REDIRECT = ("ReqRedir", "CmpltRedir", "EgressCtrl")
_GPU_CLASS = re.compile(r"(?:3D|VGA compatible|Display) controller|Processing accelerators")


class Link(msgspec.Struct, frozen=True):
    """A link capability or status; speed in GT/s. `ok` is lspci's own word (downgraded, ok, overdriven)."""

    speed_gts: float | None = None
    width: int | None = None
    aspm: str = ""
    speed_word: str = ""
    width_word: str = ""


class Bar(msgspec.Struct, frozen=True):
    """A memory region: index None in `lspci -v`, which does not print it; address "" where unassigned."""

    index: int | None
    size_bytes: int | None
    prefetchable: bool
    bits: int
    address: str
    disabled: bool = False


class Rebar(msgspec.Struct, frozen=True):
    """One BAR of the Physical Resizable BAR capability, sizes in bytes."""

    index: int
    current_bytes: int
    supported_bytes: tuple[int, ...]


class Device(msgspec.Struct, frozen=True):
    """A PCI function. None, an empty text and an empty dict mean: not printed."""

    bdf: str = ""  # 0000:06:00.0, lower case; "" for a fragment without its header
    class_name: str = ""
    class_code: str = ""
    vendor: str = ""
    device: str = ""
    name: str = ""
    revision: str = ""
    subsystem: str = ""
    driver: str = ""
    modules: tuple[str, ...] = ()
    numa_node: int | None = None
    iommu_group: int | None = None
    slot: str = ""
    port: str = ""  # Root Port, Upstream Port, Downstream Port, Endpoint, Legacy Endpoint, …
    secondary_bus: int | None = None
    subordinate_bus: int | None = None
    link_cap: Link | None = None
    link_sta: Link | None = None
    target_speed_gts: float | None = None
    payload_cap_bytes: int | None = None
    payload_bytes: int | None = None
    read_request_bytes: int | None = None
    dev_ctl: dict[str, bool] = {}  # RlxdOrd, ExtTag, NoSnoop, …
    dev_sta: dict[str, bool] = {}
    dev_cap2: dict[str, bool] = {}
    dev_ctl2: dict[str, bool] = {}
    acs_cap: dict[str, bool] = {}
    acs_ctl: dict[str, bool] = {}
    uncorrectable: dict[str, bool] = {}  # UESta
    correctable: dict[str, bool] = {}  # CESta
    ats: dict[str, bool] = {}
    bars: tuple[Bar, ...] = ()
    rebar: tuple[Rebar, ...] = ()
    capabilities: tuple[str, ...] = ()
    access_denied: bool = False
    config: bytes = b""  # the hex dump, where there is one

    @property
    def acs_redirect(self) -> tuple[str, ...]:
        """The redirect bits that are on; empty also where ACSCtl was not printed (see `acs_ctl`)."""
        return tuple(bit for bit in REDIRECT if self.acs_ctl.get(bit))

    @property
    def is_gpu(self) -> bool:
        """A display or 3D controller, or AMD's and Intel's processing accelerator."""
        return (
            self.class_code[:2] == "03"
            or self.class_code == "1200"
            or _GPU_CLASS.match(self.class_name) is not None
        )
