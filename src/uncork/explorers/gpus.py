"""The GPUs of a host: NVML, else nvidia-smi's text, and amdgpu's sysfs; always the same structs."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from uncork.explorers import gpu_amd, reading
from uncork.host import Host, Output
from uncork.model.facts.driver import NOT_READ, Gpu, GpuProcess, NvLink
from uncork.model.unknown import Unknown
from uncork.parsers import pci_address

if TYPE_CHECKING:  # the parsers' expressions cost more than a live host's whole reading
    from uncork.parsers.nvidia_smi import Report
    from uncork.parsers.nvidia_smi_gpu import Gpu as Printed

# nvidia-smi's reasons → bits of nvmlClocksEventReasons (nvml.h).
REASON_BITS = {
    "idle": 0x1,
    "applications_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
_FABRIC = {"n/a": 0, "not started": 1, "in progress": 2, "completed": 3}
_RECOVERY = {
    "none": 0,
    "reset": 1,
    "gpu reset": 1,
    "reboot": 2,
    "node reboot": 2,
    "drain p2p": 3,
    "drain and reset": 4,
    "recover imex domain": 5,
    "bus reset": 6,
    "system reboot": 7,
}
_VIRTUALIZATION = {"none": 0, "pass-through": 1, "vgpu": 2, "host vgpu": 3, "host vsga": 4}


class Reading(msgspec.Struct, frozen=True):
    """GPUs and what their source said besides; a matrix cell is a status word, None on the diagonal."""

    gpus: tuple[Gpu, ...] | Unknown
    source: str
    error: str = ""  # what NVML or nvidia-smi answered instead
    driver: str | Unknown = NOT_READ
    library: str | Unknown = NOT_READ
    cuda: str | Unknown = NOT_READ
    confidential: bool | Unknown = NOT_READ
    nvlink_bw_mode: int | Unknown = NOT_READ
    levels: tuple[tuple[str | Unknown | None, ...], ...] | Unknown = NOT_READ
    p2p: dict[str, tuple[tuple[str | Unknown | None, ...], ...]] = {}


def read(host: Host) -> Reading:
    """Every GPU that a driver tells about; three explorers ask, and a recorded host's text is parsed once."""
    return reading.shared(host, "gpus", _read)


def _read(host: Host) -> Reading:
    nvml = host.query("nvml")
    if isinstance(nvml, dict):
        return _with_amd(host, _from_nvml(nvml))
    error = nvml.reason if isinstance(nvml, Unknown) else "NVML gave no reading"
    printed = _printed(host)
    if printed is not None:
        return _with_amd(host, _from_text(printed, "" if printed.gpus else error))
    absent = isinstance(nvml, Unknown) and nvml.absent
    amd = gpu_amd.gpus(host, 0)
    if amd:
        return Reading(amd, "amdgpu sysfs")
    for tool in ("rocm-smi", "amd-smi") if not host.live else ():
        smi = host.run((tool,))
        if not isinstance(smi, Unknown):
            missing = Unknown(f"{tool}'s text names no GPU")
            return Reading(gpu_amd.printed(smi.stdout) or missing, tool)
    return Reading(() if absent else Unknown(error), "nothing", "" if absent else error)


def _with_amd(host: Host, found: Reading) -> Reading:
    gpus = () if isinstance(found.gpus, Unknown) else found.gpus
    return msgspec.structs.replace(found, gpus=gpus + gpu_amd.gpus(host, len(gpus)))


def value(found: Any) -> Any:
    """A reading of NVML with every {"unknown": reason} as Unknown."""
    if isinstance(found, dict) and set(found) == {"unknown"}:
        return Unknown(str(found["unknown"]))
    return found


def _from_nvml(nvml: dict[str, Any]) -> Reading:
    return Reading(
        gpus=tuple(_gpu(found) for found in nvml["gpus"]),
        source="NVML",
        driver=value(nvml["driver"]),
        # "13.580.82.09": CUDA's major number before the driver's version
        library=_library(value(nvml["library"])),
        cuda=value(nvml["cuda"]),
        confidential=value(nvml["confidential"]),
        nvlink_bw_mode=value(nvml["nvlink_bw_mode"]),
        levels=_matrix(nvml["levels"]),
        p2p={name: _matrix(matrix) for name, matrix in nvml["p2p"].items()},
    )


def _library(version: str | Unknown) -> str | Unknown:
    if isinstance(version, Unknown):
        return version
    major, _, rest = version.partition(".")
    return rest if major.isdigit() and int(major) < 100 and rest.count(".") else version


def _matrix(rows: list[list[Any]]) -> tuple[tuple[str | Unknown | None, ...], ...]:
    return tuple(tuple(value(cell) for cell in row) for row in rows)


def _gpu(found: dict[str, Any]) -> Gpu:
    known = {name: value(given) for name, given in found.items() if name in Gpu.__struct_fields__}
    for name, struct in (("nvlinks", _nvlink), ("processes", _process)):
        if isinstance(known.get(name), list):
            known[name] = tuple(struct(one) for one in known[name])
    return Gpu(**known)


def _nvlink(found: dict[str, Any]) -> NvLink:
    known = {name: value(given) for name, given in found.items() if name in NvLink.__struct_fields__}
    speed = value(found.get("speed_mb_s"))
    known["speed_gb_s"] = speed / 1000 if isinstance(speed, int | float) else speed or NOT_READ
    return NvLink(**known)


def _process(found: dict[str, Any]) -> GpuProcess:
    return GpuProcess(found["pid"], found["kind"], value(found["used_bytes"]))


def _printed(host: Host) -> "Report | None":
    """What nvidia-smi printed, in any of its forms; a live machine without NVML is asked once."""
    commands: list[tuple[str, ...]] = [("nvidia-smi", "-q", "-x")]
    if not host.live:
        commands += [("nvidia-smi", "-q"), ("nvidia-smi",)]
    texts = [answer for command in commands if not isinstance(answer := host.run(command), Unknown)]
    table: Output | Unknown = Unknown("not asked")
    if not host.live:
        table = host.run(("nvidia-smi", "--query-gpu=name,power.limit", "--format=csv"))
    if not texts and isinstance(table, Unknown):
        return None
    from uncork.parsers import nvidia_smi

    reports = [nvidia_smi.parse(text.stdout + text.stderr) for text in texts]
    if not isinstance(table, Unknown):
        reports.append(nvidia_smi.parse_csv(table.stdout))
    return nvidia_smi.merged(reports)


def _from_text(report: "Report", error: str) -> Reading:
    gpus = tuple(_from_printed(at, gpu) for at, gpu in enumerate(report.gpus))
    lost = tuple(
        Gpu(index=len(gpus) + at, bdf=pci_address.full(bdf), lost="nvidia-smi cannot get its handle")
        for at, bdf in enumerate(report.lost)
    )
    confidential = next((gpu.confidential for gpu in report.gpus if gpu.confidential is not None), None)
    return Reading(
        gpus=gpus + lost if gpus or lost else Unknown(report.failure or "nvidia-smi's text names no GPU"),
        source="nvidia-smi",
        error=report.failure or ("" if gpus else error),
        driver=_or(report.driver),
        cuda=_or(report.cuda),
        confidential=NOT_READ if confidential is None else confidential.lower() not in ("none", "no", "n/a"),
    )


def _or(found: Any) -> Any:
    return NOT_READ if found is None else found


def _milli(watts: float | None) -> int | Unknown:
    return NOT_READ if watts is None else round(watts * 1000)


def _word(found: str | None, table: dict[str, int]) -> int | Unknown:
    return (
        NOT_READ if found is None else table.get(found.strip().lower(), Unknown(f"a word not known: {found}"))
    )


# Field of ours → nvidia-smi's parsed field of the same meaning; powers come in watts.
_SAME = {
    "name": "name",
    "uuid": "uuid",
    "vbios": "vbios",
    "memory_total_bytes": "memory_total_bytes",
    "memory_used_bytes": "memory_used_bytes",
    "bar1_total_bytes": "bar1_total_bytes",
    "bar1_used_bytes": "bar1_used_bytes",
    "persistence": "persistence",
    "mig": "mig",
    "mig_pending": "mig_pending",
    "ecc": "ecc",
    "ecc_pending": "ecc_pending",
    "ecc_uncorrected_volatile": "ecc_volatile_uncorrectable",
    "ecc_uncorrected_aggregate": "ecc_aggregate_uncorrectable",
    "ecc_corrected_volatile": "ecc_volatile_correctable",
    "remap_uncorrected": "remapped_uncorrectable",
    "remap_pending": "remap_pending",
    "remap_failure": "remap_failed",
    "retired_pending": "retired_pending",
    "utilization_percent": "utilization_percent",
    "temperature_c": "temperature_c",
    "memory_temperature_c": "temperature_memory_c",
    "slowdown_temperature_c": "temperature_slowdown_c",
    "shutdown_temperature_c": "temperature_shutdown_c",
    "temperature_margin_c": "temperature_limit_margin_c",
    "sm_clock_mhz": "clock_sm_mhz",
    "memory_clock_mhz": "clock_memory_mhz",
    "max_sm_clock_mhz": "clock_sm_max_mhz",
    "max_memory_clock_mhz": "clock_memory_max_mhz",
    "link_gen": "pcie_gen_current",
    "link_gen_max": "pcie_gen_max",
    "link_gen_device_max": "pcie_gen_device_max",
    "link_width": "width_current",
    "link_width_max": "width_max",
    "replays": "replays",
    "replay_rollovers": "replay_rollovers",
    "display_active": "display_active",
    "gsp_version": "gsp_firmware",
}
_WATTS = {
    "power_mw": "power_draw_w",
    "power_enforced_mw": "power_limit_w",
    "power_default_mw": "power_default_w",
    "power_min_mw": "power_min_w",
    "power_max_mw": "power_max_w",
}


def _from_printed(at: int, gpu: "Printed") -> Gpu:
    pstate = (gpu.performance_state or "").removeprefix("P")
    mode = (gpu.compute_mode or "").lower().replace("_", "-").replace(" ", "-")
    status = (gpu.fabric_status or "").lower()
    reasons = None if gpu.throttle is None else sum(REASON_BITS.get(word, 0) for word in set(gpu.throttle))
    copied: dict[str, Any] = {ours: _or(getattr(gpu, theirs)) for ours, theirs in _SAME.items()}
    copied |= {ours: _milli(getattr(gpu, theirs)) for ours, theirs in _WATTS.items()}
    return Gpu(
        **copied,
        index=at if gpu.index is None else gpu.index,
        bdf=pci_address.full(gpu.bus_id) if gpu.bus_id else NOT_READ,
        memory_free_bytes=_difference(gpu.memory_total_bytes, gpu.memory_used_bytes),
        compute_mode=mode or NOT_READ,
        recovery_action=_word(gpu.recovery_action, _RECOVERY),
        pstate=int(pstate) if pstate.isdigit() else NOT_READ,
        power_limit_mw=_milli(gpu.power_limit_requested_w or gpu.power_limit_w),
        event_reasons=_or(reasons),
        virtualization=_word(gpu.virtualization, _VIRTUALIZATION),
        addressing_mode=(gpu.addressing_mode or "").lower() or NOT_READ,
        fabric_state=_word(gpu.fabric_state, _FABRIC),
        fabric_status=NOT_READ if not status else 0 if status == "success" else 999,
        processes=NOT_READ if gpu.processes is None else tuple(_processes(gpu)),
    )


def _difference(total: int | None, used: int | None) -> int | Unknown:
    return NOT_READ if total is None or used is None else total - used


def _processes(gpu: "Printed") -> Iterable[GpuProcess]:
    for one in gpu.processes or ():
        yield GpuProcess(one.pid, "compute", _or(one.used_bytes), one.name)
