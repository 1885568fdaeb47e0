"""rocm-smi and amd-smi: topology tables, per-GPU text and JSON."""

import json
import re

import msgspec

_HEADING = re.compile(r"^\s*=+ (.+?) =+\s*$")
_ROW = re.compile(r"^\s*GPU(\d{1,3})\s+(\S.*)$")
_GPU_LINE = re.compile(r"^\s*GPU\[(\d{1,3})\]\s*: ?(?:\(Topology\) )?(.+?):\s*(.*)$")
_AMD_SMI = re.compile(r'^GPU: \d+\s*$|^LINK TYPE TABLE|"gpu"\s*:\s*\d', re.MULTILINE)
_PCIE = re.compile(r"\(([\d.]+)GT/s x(\d+)\)")


class Gpu(msgspec.Struct, frozen=True):
    """One GPU: every value it printed by its own name, and those that are read."""

    index: int
    values: dict[str, str] = {}
    numa_node: int | None = None
    vbios: str | None = None
    performance_level: str | None = None
    link_speed_gts: float | None = None
    link_width: int | None = None
    power_cap_w: float | None = None  # in force
    power_average_w: float | None = None
    temperature_junction_c: float | None = None
    memory_total_bytes: int | None = None
    name: str | None = None
    power_cap_max_w: float | None = None


class Report(msgspec.Struct, frozen=True):
    """GPUs and the tables between them; a cell as printed (`XGMI`, `52`)."""

    gpus: tuple[Gpu, ...] = ()
    weight: dict[tuple[int, int], str] = {}
    hops: dict[tuple[int, int], str] = {}
    link_type: dict[tuple[int, int], str] = {}
    driver: str | None = None


def parse(text: str) -> Report:
    """Read the text or the JSON of rocm-smi or amd-smi, whole or cut."""
    if _AMD_SMI.search(text):
        from uncork.parsers import amd_smi

        return amd_smi.parse(text)
    start = text.find("{")
    if start >= 0 and '"card' in text[start : start + 200]:
        return _json(text[start:])
    tables: dict[str, dict[tuple[int, int], str]] = {"weight": {}, "hops": {}, "link type": {}}
    values: dict[int, dict[str, str]] = {}
    current: dict[tuple[int, int], str] | None = None
    count = 0
    for line in text.split("\n"):
        line = line[:2000]
        if heading := _HEADING.match(line):
            title = heading[1].lower()
            current = next((table for name, table in tables.items() if title.startswith(name)), None)
        elif found := _GPU_LINE.match(line):
            values.setdefault(int(found[1]), {})[found[2].strip()] = found[3].strip()
        elif current is not None and (found := _ROW.match(line)) and not found[2].startswith("GPU"):
            count = max(count, int(found[1]) + 1)
            for column, cell in enumerate(found[2].split()):
                current[int(found[1]), column] = cell
    for index in range(min(count, 1024)):
        values.setdefault(index, {})
    gpus = tuple(gpu_of(index, values[index]) for index in sorted(values))
    return Report(gpus, tables["weight"], tables["hops"], tables["link type"])


def _json(text: str) -> Report:
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return Report()
    if not isinstance(found, dict):
        return Report()
    gpus = []
    for name, values in found.items():
        number = re.fullmatch(r"card(\d{1,4})", str(name))
        if number and isinstance(values, dict):
            gpus.append(gpu_of(int(number[1]), {str(key): str(value) for key, value in values.items()}))
    system = found.get("system")
    driver = system.get("Driver version") if isinstance(system, dict) else None
    return Report(tuple(gpus), driver=str(driver) if driver else None)


def _number(text: str | None) -> float | None:
    found = re.match(r"^\(?(\d{1,12}(?:\.\d{1,6})?)", (text or "").strip())
    return float(found[1]) if found else None


def gpu_of(index: int, values: dict[str, str]) -> Gpu:
    """A GPU from values under rocm-smi's names."""
    numa = values.get("Numa Node") or values.get("(Topology) Numa Node")
    link = _PCIE.search(values.get("pcie clock level", ""))
    memory = _number(values.get("VRAM Total Memory (B)"))
    return Gpu(
        index,
        values,
        int(numa) if numa and numa.lstrip("-").isdecimal() and len(numa) < 6 else None,
        values.get("VBIOS version"),
        values.get("Performance Level"),
        float(link[1]) if link and link[1].count(".") < 2 and link[1] != "." else None,
        int(link[2][:3]) if link else None,
        _number(values.get("Max Graphics Package Power (W)")),
        _number(
            values.get("Average Graphics Package Power (W)")
            or values.get("Current Socket Graphics Package Power (W)")
        ),
        _number(values.get("Temperature (Sensor junction) (C)")),
        int(memory) if memory is not None else None,
        values.get("Card Series") or values.get("Card series"),
        _number(values.get("Highest Power Cap (W)")),
    )
