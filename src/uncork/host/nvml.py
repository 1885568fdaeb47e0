"""Everything that the checks need from NVML, in one reading: plain dictionaries, one a GPU.

A value that NVML refuses (not supported, no permission, a function this driver lacks, a lost GPU) is
`{"unknown": reason}`, so that one refused value costs only itself. Names are those of `model.facts.driver.Gpu`.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from uncork.model.unknown import Unknown

MIB = 1 << 20
_COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")
_ADDRESSING = ("none", "hmm", "ats")
_P2P_STATUS = ("ok", "chipset", "gpu", "topology", "regkey", "not-supported", "unknown")
_LEVELS = {0: "X", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_MAX_NVLINKS = (
    36  # NVML_NVLINK_MAX_LINKS of the 595 branch; the walk stops at the first that is not supported
)

# Field ids of NVML (nvml.h, NVML_FI_DEV_…), by the name they get here.
FIELDS = {
    "memory_temperature_c": 82,
    "nvlink_count": 91,
    "replays": 94,
    "replay_rollovers": 95,
    "remap_pending": 144,
    "remap_failure": 145,
    "c2c_links": 170,
    "c2c_status": 171,
    "c2c_errors": 232,
    "link_correctable_errors": 173,
    "link_bad_tlps": 176,
    "link_fatal_errors": 180,
    "recovery_action": 230,
    "thermal_slowdown_ns": 270,
    "power_brake_ns": 271,
}
# Of each NVLink; the scope of the request is the link's number.
LINK_FIELDS = {"speed_mb_s": 164, "recovery_events": 215, "effective_ber": 220, "power_state": 167}


def read() -> object | Unknown:
    """The reading, or Unknown: absent where the library is not installed, with NVML's words otherwise."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")  # before nvidia-ml-py, whose import costs more than all the rest
    except OSError:
        return Unknown("libnvidia-ml.so.1 is not installed", absent=True)
    try:
        import pynvml
    except ImportError:
        return Unknown("nvidia-ml-py is not installed", absent=True)
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError) as error:
        return Unknown(f"NVML does not start: {error}")
    try:
        return _everything(pynvml)
    except pynvml.NVMLError as error:
        return Unknown(f"NVML: {error}")
    finally:
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            pass


class _Asker:
    """Calls NVML by function name; what goes wrong becomes the answer."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def __call__(self, name: str, *arguments: Any, then: Callable[[Any], Any] = lambda value: value) -> Any:
        """The function's answer through `then`, or {"unknown": reason}."""
        try:
            if any(isinstance(getattr(one, "_obj", None), _Missing) for one in arguments):
                raise AttributeError("an older nvidia-ml-py without that structure")
            value = getattr(self.nvml, name)(*arguments)
            return then(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
        except self.nvml.NVMLError as error:
            return {"unknown": f"NVML: {error}"}
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            return {"unknown": f"nvidia-ml-py cannot read it here: {error}"}


def _everything(nvml: Any) -> dict[str, Any]:
    ask = _Asker(nvml)
    handles: list[Any] = []
    gpus: list[dict[str, Any]] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = ask("nvmlDeviceGetHandleByIndex", index)
        handles.append(handle)
        lost = isinstance(handle, dict)
        gpus.append({"index": index, "lost": handle["unknown"]} if lost else _gpu(nvml, ask, index, handle))
    return {
        "driver": ask("nvmlSystemGetDriverVersion"),
        "library": ask("nvmlSystemGetNVMLVersion"),
        "cuda": ask("nvmlSystemGetCudaDriverVersion_v2", then=lambda v: f"{v // 1000}.{v % 1000 // 10}"),
        "confidential": ask("nvmlSystemGetConfComputeState", then=lambda state: bool(state.ccFeature)),
        "nvlink_bw_mode": ask("nvmlSystemGetNvlinkBwMode"),
        "gpus": gpus,
        "levels": _matrix(ask, handles, "nvmlDeviceGetTopologyCommonAncestor", (), _LEVELS.get),
        "p2p": {
            name: _matrix(ask, handles, "nvmlDeviceGetP2PStatus", (number,), _status)
            for name, number in (("read", 0), ("write", 1), ("nvlink", 2), ("atomics", 3))
        },
    }


def _status(code: int) -> str:
    return _P2P_STATUS[code] if 0 <= code < len(_P2P_STATUS) else f"code {code}"


def _matrix(
    ask: _Asker, handles: list[Any], name: str, more: tuple[int, ...], then: Callable[[Any], Any]
) -> list[list[Any]]:
    """One answer for each ordered pair; None on the diagonal and where a GPU is lost."""
    return [
        [
            None
            if a is b or isinstance(a, dict) or isinstance(b, dict)
            else ask(name, a, b, *more, then=then)
            for b in handles
        ]
        for a in handles
    ]


def _gpu(nvml: Any, ask: _Asker, index: int, handle: Any) -> dict[str, Any]:
    def get(name: str, *more: Any, then: Callable[[Any], Any] = lambda value: value) -> Any:
        return ask(f"nvmlDeviceGet{name}", handle, *more, then=then)

    pci = get("PciInfo", then=lambda p: (f"{p.domain:04x}:{p.bus:02x}:{p.device:02x}.0", p.pciDeviceId))
    known = isinstance(pci, tuple)
    gpu = {
        "index": index,
        "vendor": "nvidia",
        "name": get("Name"),
        "uuid": get("UUID"),
        "vbios": get("VbiosVersion"),
        "bdf": pci[0] if known else pci,
        "device_id": pci[1] >> 16 if known else pci,
        "compute_capability": get("CudaComputeCapability", then=lambda v: f"{v[0]}.{v[1]}"),
        "display_active": get("DisplayActive", then=bool),
        "display_mode": get("DisplayMode", then=bool),
        "virtualization": get("VirtualizationMode"),
        "addressing_mode": get("AddressingMode", then=_ADDRESSING.__getitem__),
        "gsp_version": get("GspFirmwareVersion"),
        "gsp_enabled": get("GspFirmwareMode", then=lambda v: bool(v[0])),
        "processes": _processes(get),
        "nvlinks": _nvlinks(nvml, ask, handle),
    }
    return gpu | _memory(nvml, get) | _modes(get) | _power(nvml, get) | _link(get) | _late(nvml, ask, handle)


class _Missing(ctypes.Structure):
    """Stands for a structure that this nvidia-ml-py does not have; no function takes it."""


def _struct(nvml: Any, name: str) -> Any:
    """A structure of nvidia-ml-py to fill."""
    return getattr(nvml, name, _Missing)()


def _memory(nvml: Any, get: Callable[..., Any]) -> dict[str, Any]:
    memory = get("MemoryInfo", getattr(nvml, "nvmlMemory_v2", None))
    if isinstance(memory, dict):  # drivers before 510 know only the first form, which counts reserved as used
        memory = get("MemoryInfo")
    bar1 = get("BAR1MemoryInfo")
    ecc = get("EccMode", then=lambda v: [bool(v[0]), bool(v[1])])
    remap = get("RemappedRows", then=list)
    sram = _struct(nvml, "c_nvmlEccSramErrorStatus_v1_t")
    exceeded = get("SramEccErrorStatus", ctypes.byref(sram), then=lambda _: bool(sram.bThresholdExceeded))

    def of(answer: Any, name: str) -> Any:
        if isinstance(answer, dict):
            return answer
        value = getattr(answer, name, None)
        return {"unknown": "NVML: this driver does not tell it"} if value is None else value

    return {
        "memory_total_bytes": of(memory, "total"),
        "memory_used_bytes": of(memory, "used"),
        "memory_free_bytes": of(memory, "free"),
        "memory_reserved_bytes": of(memory, "reserved"),
        "bar1_total_bytes": of(bar1, "bar1Total"),
        "bar1_used_bytes": of(bar1, "bar1Used"),
        "ecc": ecc if isinstance(ecc, dict) else ecc[0],
        "ecc_pending": ecc if isinstance(ecc, dict) else ecc[1],
        "ecc_uncorrected_volatile": get("TotalEccErrors", 1, 0),
        "ecc_uncorrected_aggregate": get("TotalEccErrors", 1, 1),
        "ecc_corrected_volatile": get("TotalEccErrors", 0, 0),
        "sram_threshold_exceeded": exceeded,
        "remap_uncorrected": remap if isinstance(remap, dict) else remap[1],
        "remap_pending": remap if isinstance(remap, dict) else bool(remap[2]),
        "remap_failure": remap if isinstance(remap, dict) else bool(remap[3]),
        "retired_pending": get("RetiredPagesPendingStatus", then=bool),
    }


def _modes(get: Callable[..., Any]) -> dict[str, Any]:
    mig = get("MigMode", then=lambda v: [bool(v[0]), bool(v[1])])
    return {
        "persistence": get("PersistenceMode", then=bool),
        "compute_mode": get("ComputeMode", then=_COMPUTE_MODES.__getitem__),
        "mig": mig if isinstance(mig, dict) else mig[0],
        "mig_pending": mig if isinstance(mig, dict) else mig[1],
        "pstate": get("PerformanceState"),
        "utilization_percent": get("UtilizationRates", then=lambda v: v.gpu),
    }


def _power(nvml: Any, get: Callable[..., Any]) -> dict[str, Any]:
    limits = get("PowerManagementLimitConstraints", then=list)
    sm, memory = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM
    return {
        "temperature_c": get("Temperature", 0),
        "shutdown_temperature_c": get("TemperatureThreshold", 0),
        "slowdown_temperature_c": get("TemperatureThreshold", 1),
        "memory_limit_temperature_c": get("TemperatureThreshold", 2),
        "temperature_margin_c": get("MarginTemperature"),
        "power_mw": get("PowerUsage"),
        "power_limit_mw": get("PowerManagementLimit"),
        "power_enforced_mw": get("EnforcedPowerLimit"),
        "power_default_mw": get("PowerManagementDefaultLimit"),
        "power_min_mw": limits if isinstance(limits, dict) else limits[0],
        "power_max_mw": limits if isinstance(limits, dict) else limits[1],
        "sm_clock_mhz": get("ClockInfo", sm),
        "memory_clock_mhz": get("ClockInfo", memory),
        "max_sm_clock_mhz": get("MaxClockInfo", sm),
        "max_memory_clock_mhz": get("MaxClockInfo", memory),
        "app_sm_clock_mhz": get("ApplicationsClock", nvml.NVML_CLOCK_GRAPHICS),
        "app_memory_clock_mhz": get("ApplicationsClock", memory),
        "default_app_sm_clock_mhz": get("DefaultApplicationsClock", nvml.NVML_CLOCK_GRAPHICS),
        "default_app_memory_clock_mhz": get("DefaultApplicationsClock", memory),
        "event_reasons": get("CurrentClocksEventReasons"),
    }


def _link(get: Callable[..., Any]) -> dict[str, Any]:
    return {
        "link_gen": get("CurrPcieLinkGeneration"),
        "link_gen_max": get("MaxPcieLinkGeneration"),
        "link_gen_device_max": get("GpuMaxPcieLinkGeneration"),
        "link_width": get("CurrPcieLinkWidth"),
        "link_width_max": get("MaxPcieLinkWidth"),
        "replays": get("PcieReplayCounter"),
    }


def _late(nvml: Any, ask: _Asker, handle: Any) -> dict[str, Any]:
    """What older drivers lack: field values and the fabric."""
    found = _fields(nvml, ask, handle, list(FIELDS.values()))
    late = {
        name: found[number] if not isinstance(found, dict) or number in found else found
        for name, number in FIELDS.items()
        if name not in ("remap_pending", "remap_failure", "replays")
    }
    fabric = _struct(nvml, "c_nvmlGpuFabricInfo_v2_t")
    answer = ask("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(fabric))
    refused = answer if isinstance(answer, dict) else None
    return late | {
        "fabric_state": refused or int(fabric.state),
        "fabric_status": refused or int(fabric.status),
        "fabric_clique": refused or f"{bytes(fabric.clusterUuid).hex()[:8]}/{fabric.cliqueId}",
        "fabric_health": refused or int(fabric.healthMask),
    }


def _fields(nvml: Any, ask: _Asker, handle: Any, wanted: list[Any]) -> Any:
    """Field id → value; each may be {"unknown": …}, and so may the whole."""
    values = ask("nvmlDeviceGetFieldValues", handle, wanted)
    if isinstance(values, dict):
        return values
    found: dict[int, Any] = {}
    for value in values:
        if value.nvmlReturn != nvml.NVML_SUCCESS:
            found[value.fieldId] = {"unknown": f"NVML: {nvml.NVMLError(value.nvmlReturn)}"}
            continue
        kind = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        name = kind[value.valueType] if value.valueType < len(kind) else "ullVal"
        found[value.fieldId] = getattr(value.value, name, value.value.ullVal)
    return found


def _nvlinks(nvml: Any, ask: _Asker, handle: Any) -> Any:
    links: list[dict[str, Any]] = []
    for number in range(_MAX_NVLINKS):
        state = ask("nvmlDeviceGetNvLinkState", handle, number, then=bool)
        if isinstance(state, dict):
            break  # not supported, or no such link: the walk ends here
        fields = _fields(nvml, ask, handle, [(field, number) for field in LINK_FIELDS.values()])
        remote = ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, number, then=_bdf)
        links.append(
            {
                "number": number,
                "active": state,
                "version": ask("nvmlDeviceGetNvLinkVersion", handle, number),
                "remote_bdf": remote,
                "remote_type": ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, number),
                "replay_errors": ask("nvmlDeviceGetNvLinkErrorCounter", handle, number, 0),
                "recovery_errors": ask("nvmlDeviceGetNvLinkErrorCounter", handle, number, 1),
                "crc_errors": ask("nvmlDeviceGetNvLinkErrorCounter", handle, number, 2),
            }
            | {name: fields.get(field, fields) for name, field in LINK_FIELDS.items()}
        )
    return links


def _bdf(pci: Any) -> str:
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def _processes(get: Callable[..., Any]) -> Any:
    found: list[dict[str, Any]] = []
    for kind in ("Compute", "Graphics"):
        answer = get(f"{kind}RunningProcesses")
        if isinstance(answer, dict):
            return answer
        for process in answer:
            hidden = {"unknown": "NVML hides it here"}
            used = process.usedGpuMemory
            found.append(
                {"pid": process.pid, "kind": kind.lower(), "used_bytes": hidden if used is None else used}
            )
    return found
