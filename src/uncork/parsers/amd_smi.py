"""amd-smi static, metric and topology, text and JSON, to the struct of rocm-smi."""

import json
import re
from typing import Any

from uncork.parsers.rocm import Gpu, Report, gpu_of

_GPU = re.compile(r"^GPU: (\d{1,4})\s*$")
_FIELD = re.compile(r"^( +)([A-Z][A-Z0-9_ ]*?):(?: (.*))?$")
_TABLE = re.compile(r"^(WEIGHT|HOPS|LINK TYPE|ACCESS|NUMA BW) TABLE:?\s*$")
_BDF = re.compile(r"^[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$")
_DEPTH = 12
# rocm-smi's name of a value → where amd-smi keeps it.
_NAMES = {
    "PCI Bus": ("bus.bdf",),
    "Card Series": ("asic.market_name",),
    "VBIOS version": ("vbios.part_number", "vbios.version"),
    "Numa Node": ("numa.node",),
    # The cap in force, as rocm-smi prints under this name; limit.max_power is the highest cap that the board takes.
    # Newer releases, which know several limits a socket, keep both under ppt0.
    "Max Graphics Package Power (W)": (
        "limit.socket_power",
        "limit.ppt0.socket_power_limit",
        "limit.power_cap",
        "limit.current_power",
    ),
    "Highest Power Cap (W)": ("limit.max_power", "limit.ppt0.max_power_limit"),
    "Current Socket Graphics Package Power (W)": ("power.socket_power", "power.current_socket_power"),
    "Temperature (Sensor junction) (C)": ("temperature.hotspot",),
    "Temperature (Sensor memory) (C)": ("temperature.mem",),
    "PCIe Replay Count": ("pcie.replay_count",),
    "GPU use (%)": ("usage.gfx_activity",),
    "Performance Level": ("perf_level",),
}


def parse(text: str) -> Report:
    """Read any of them, whole or cut; several prints of one GPU are put together."""
    start = min((at for at in (text.find("["), text.find("{")) if at >= 0), default=-1)
    is_json = start >= 0 and '"gpu"' in text
    found = _from_json(text[start:]) if is_json else _from_text(text)
    tables = _tables(text)
    driver = next((values["driver.version"] for values in found.values() if "driver.version" in values), None)
    gpus: tuple[Gpu, ...] = tuple(gpu_of(index, _renamed(found[index])) for index in sorted(found))
    return Report(gpus, tables.get("WEIGHT", {}), tables.get("HOPS", {}), tables.get("LINK TYPE", {}), driver)


def _from_json(text: str) -> dict[int, dict[str, str]]:
    try:
        document, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    if isinstance(document, dict):
        document = document.get("gpu_data", [document])
    found: dict[int, dict[str, str]] = {}
    for one in document if isinstance(document, list) else ():
        if isinstance(one, dict) and isinstance(index := one.get("gpu"), int) and 0 <= index < 10_000:
            _flatten(one, "", found.setdefault(index, {}), _DEPTH)
    return found


def _flatten(value: Any, path: str, into: dict[str, str], depth: int) -> None:
    if isinstance(value, dict) and "value" in value:
        into.setdefault(path, f"{value['value']} {value.get('unit', '')}".strip())
    elif isinstance(value, dict) and depth:
        for key, item in value.items():
            _flatten(item, f"{path}.{key}".strip(".").lower(), into, depth - 1)
    elif not isinstance(value, list | dict):
        into.setdefault(path, str(value))


def _from_text(text: str) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    values: dict[str, str] = {}
    stack: list[tuple[int, str]] = []
    for line in text.split("\n"):
        line = line[:500].rstrip()
        if header := _GPU.match(line):
            values = found.setdefault(int(header[1]), {})
            stack = []
        elif found and (field := _FIELD.match(line)):
            indent, name = len(field[1]), field[2].lower().replace(" ", "_")
            while stack and stack[-1][0] >= indent:
                stack.pop()
            stack.append((indent, name))
            if field[3]:
                values.setdefault(".".join(name for _, name in stack[-_DEPTH:]), field[3].strip())
    return found


def _renamed(values: dict[str, str]) -> dict[str, str]:
    named = dict(values)
    for name, places in _NAMES.items():
        value = next((values[place] for place in places if values.get(place, "N/A") != "N/A"), None)
        if value is not None:
            named[name] = value
    if size := re.match(r"(\d{1,9}) (MB|GB)", values.get("vram.size", "")):
        named["VRAM Total Memory (B)"] = str(int(size[1]) << (20 if size[2] == "MB" else 30))
    speed, width = values.get("pcie.speed", ""), values.get("pcie.width", "")
    if (found := re.match(r"(\d{1,3}(?:\.\d)?) ?GT/s", speed)) and width.isdecimal():
        named["pcie clock level"] = f"0 ({found[1]}GT/s x{width})"
    return named


def _tables(text: str) -> dict[str, dict[tuple[int, int], str]]:
    """`amd-smi topology`: rows and columns are bus addresses, numbered here in the order printed."""
    tables: dict[str, dict[tuple[int, int], str]] = {}
    current: dict[tuple[int, int], str] | None = None
    row = 0
    for line in text.split("\n"):
        line = line[:4000].strip()
        if title := _TABLE.match(line):
            current, row = tables.setdefault(title[1], {}), 0
            continue
        words = line.split()
        if (
            current is None
            or not words
            or not _BDF.match(words[0])
            or all(_BDF.match(word) for word in words)
        ):
            continue
        for column, cell in enumerate(words[1:]):
            current[row, column] = "0" if cell == "SELF" else cell
        row += 1
    return tables
