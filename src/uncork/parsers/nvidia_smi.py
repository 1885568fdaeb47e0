"""nvidia-smi: `-q`, `-q -x`, the table, `--query-gpu` and its fields quoted one a line, all to the same struct."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from xml.etree import ElementTree

import msgspec

from uncork.parsers import nvidia_smi_fields as fields
from uncork.parsers.nvidia_smi_gpu import Gpu

_GPU_HEADER = re.compile(r"^\s{0,4}GPU ((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_FAILURE = re.compile(
    r"^(?:Failed to initialize NVML.*|NVIDIA-SMI has failed.*|No devices were found.*)$", re.MULTILINE
)
_LOST = re.compile(r"^Unable to determine the device handle for GPU ?(\S*?):? (.*)$", re.MULTILINE)
XML_LIMIT_BYTES = 32 << 20


class Report(msgspec.Struct, frozen=True):
    """What one nvidia-smi printed. `failure` is its own error line, `attached` the count it claims."""

    driver: str | None = None
    cuda: str | None = None
    attached: int | None = None
    gpus: tuple[Gpu, ...] = ()
    failure: str = ""
    lost: tuple[str, ...] = ()  # bus ids whose handle it could not get


@lru_cache(maxsize=4)  # several explorers ask about one text
def parse(text: str) -> Report:
    """Whatever form `text` has. Never raises; what it does not say is None."""
    if "<nvidia_smi_log" in text:
        return parse_xml(text)
    if "| NVIDIA-SMI" in text or "|=====" in text:
        return parse_table(text)
    return parse_q(text)


def _failure(text: str) -> tuple[str, tuple[str, ...]]:
    found = _FAILURE.search(text)
    return (found[0] if found else "", tuple(bus.lower() for bus, _ in _LOST.findall(text)))


def parse_q(text: str) -> Report:
    """`nvidia-smi -q`, old and new layouts, one section (`-d`) or a `grep -A` of it."""
    head: dict[str, str] = {}
    gpus: list[dict[str, str]] = []
    stack: list[tuple[int, str]] = []
    for line in text.split("\n"):
        line = line[:500].rstrip()
        if found := _GPU_HEADER.match(line):
            gpus.append({"bus": found[1]})
            stack = []
            continue
        key, colon, value = line.partition(" :")
        key = key.strip()
        if not key or key.startswith("="):
            continue
        if key == "--" or (not colon and ":" in key):
            continue
        indent = len(line) - len(line.lstrip())
        while stack and stack[-1][0] >= indent:
            stack.pop()
        path = "/".join((*(name for _, name in stack), key))
        stack.append((indent, key))
        if not colon:
            continue
        if indent == 0 and key in ("Timestamp", "Driver Version", "CUDA Version", "Attached GPUs"):
            head.setdefault(key, value.strip())
        else:
            _enter(gpus, path, value.strip())
    failure, lost = _failure(text)
    attached = head.get("Attached GPUs", "")
    return Report(
        head.get("Driver Version"),
        head.get("CUDA Version"),
        int(attached) if attached.isdigit() else None,
        _unique(fields.from_q(found, number) for number, found in enumerate(gpus)),
        failure,
        lost,
    )


def _enter(gpus: list[dict[str, str]], path: str, value: str) -> None:
    """Keep a value; where no header named the GPU, a path that comes again begins the next one."""
    if not gpus or ("bus" not in gpus[-1] and path in gpus[-1] and not path.startswith("Processes")):
        gpus.append({})
    gpus[-1].setdefault(path, value)


def _unique(found: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Each GPU once, the first print of a value kept (people attach the same query twice)."""
    kept: dict[str, Gpu] = {}
    for number, gpu in enumerate(found):
        key = gpu.bus_id or f"#{number}"
        kept[key] = fields.filled(kept[key], gpu) if key in kept else gpu
    return tuple(kept.values())


def parse_xml(text: str) -> Report:
    """`nvidia-smi -q -x`; a cut document gives the GPUs it holds. One that declares entities is refused."""
    if "<!ENTITY" in text:
        return Report(failure="the XML declares entities and was not read")
    start = text.find("<nvidia_smi_log")
    parser: Any = ElementTree.XMLPullParser(events=("start", "end"))
    root: Any = None
    try:
        parser.feed(text[start : start + XML_LIMIT_BYTES])
        parser.close()
    except (ElementTree.ParseError, ValueError):
        pass
    try:
        for _, element in parser.read_events():
            root = element if root is None else root
    except (ElementTree.ParseError, ValueError):
        pass
    if root is None:
        return Report()
    attached = (root.findtext("attached_gpus") or "").strip()
    gpus = [
        fields.from_xml(_flat(gpu), gpu.get("id") or "", number, map(_flat, gpu.iter("mig_device")))
        for number, gpu in enumerate(root.iter("gpu"))
    ]
    return Report(
        (root.findtext("driver_version") or "").strip() or None,
        (root.findtext("cuda_version") or "").strip() or None,
        int(attached) if attached.isdigit() else None,
        _unique(gpus),
    )


def _flat(element: Any) -> dict[str, str]:
    """Paths below an element → text; of equal paths the first."""
    found: dict[str, str] = {}
    waiting = [(child, child.tag) for child in reversed(element)]
    while waiting:
        here, path = waiting.pop()
        if len(here) == 0:
            found.setdefault(path, (here.text or "").strip())
        if path.count("/") < 8:
            waiting += [(child, f"{path}/{child.tag}") for child in reversed(here)]
    return found


_ROW_1 = re.compile(
    r"^\|\s+(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?:(?P<persistence>On|Off)\s+)?\|\s*(?P<bus>[0-9A-Fa-f:.]{7,16})\s+(?P<display>On|Off)?"
    r"\s*\|\s*(?P<ecc>\S+)?.*\|$"
)
_ROW_2 = re.compile(
    r"^\|\s*(?P<fan>\S+)\s+(?P<temp>\d+C|N/A)\s+(?P<perf>P\d+|N/A)\s+(?P<draw>[\d.]+W|N/A|ERR!)\s*/\s*(?P<limit>[\d.]+W|N/A|ERR!)\s*\|"
    r"\s*(?P<used>\d+MiB|N/A)\s*/\s*(?P<total>\d+MiB|N/A)\s*\|\s*(?P<util>\d+%|N/A)?\s+(?P<mode>.*?)\s*\|$"
)
_MIG_ROW = re.compile(r"^\|.*\|.*\|\s+(Enabled\*?|Disabled\*?|N/A)\s*\|$")
_VERSIONS = re.compile(r"Driver Version: ([\d.]+)(?:.*?CUDA (?:\w+ )?Version: ([\d.]+))?")
_PROCESS = re.compile(r"^\|\s+(\d+)\s+(?:\S+\s+\S+\s+)?(\d+)\s+([CGM+]+)\s+(\S.*?)\s+(\d+)MiB \|$")


def parse_table(text: str) -> Report:
    """The table that plain `nvidia-smi` prints, from 2016's to today's."""
    versions = _VERSIONS.search(text)
    found: list[dict[str, str]] = []
    for line in text.split("\n"):
        line = line.strip()[:300]
        if row := _ROW_1.match(line):
            found.append({key: value for key, value in row.groupdict().items() if value})
        elif found and (row := _ROW_2.match(line)):
            found[-1].update({key: value for key, value in row.groupdict().items() if value})
        elif found and "used" in found[-1] and (row := _MIG_ROW.match(line)):
            found[-1].setdefault("mig", row[1].rstrip("*"))
        elif process := _PROCESS.match(line):
            for gpu in found:
                if gpu["index"] == process[1]:
                    gpu[f"process {process[2]}"] = f"{process[5]} {process[4]}"
    failure, lost = _failure(text)
    return Report(
        versions[1] if versions else None,
        versions[2] if versions else None,
        None,
        _unique(fields.from_table(row) for row in found),
        failure,
        lost,
    )


_QUOTED = re.compile(r"^\s*([a-z_]+(?:\.[a-z_]+)*)\s*(?:\[[\w%/ ]+\])?\s*(?:\(.*?\))?\s*[:=]\s*(.*)$")


def parse_csv(text: str) -> Report:
    """`--query-gpu=… --format=csv` (header kept), or its field names quoted one a line as `power.limit: 500 W`."""
    rows: list[dict[str, str]] = []
    columns: list[str] = []
    for line in text.split("\n"):
        line = line[:2000]
        cells = [cell.strip() for cell in line.split(",")]
        names = [re.sub(r"\s*\[.*\]$", "", cell) for cell in cells]
        if len(cells) > 1 and all(fields.is_csv_field(name) for name in names):
            columns = names
        elif columns and len(cells) == len(columns):
            rows.append(dict(zip(columns, cells, strict=True)))
        elif (quoted := _QUOTED.match(line)) and fields.is_csv_field(quoted[1]):
            if not rows or quoted[1] in rows[-1]:
                rows.append({})
            rows[-1][quoted[1]] = quoted[2]
    driver = next((row["driver_version"] for row in rows if row.get("driver_version")), None)
    return Report(driver, None, None, _unique(fields.from_csv(row) for row in rows))


def merged(reports: Iterable[Report]) -> Report:
    """Several prints of one machine as one report: the first that says a thing wins, GPUs meet by bus id or index."""
    whole = Report()
    for report in reports:
        gpus = list(whole.gpus)
        for gpu in report.gpus:
            place = next((at for at, known in enumerate(gpus) if fields.same(known, gpu)), None)
            if place is None:
                gpus.append(gpu)
            else:
                gpus[place] = fields.filled(gpus[place], gpu)
        whole = Report(
            whole.driver or report.driver,
            whole.cuda or report.cuda,
            whole.attached if whole.attached is not None else report.attached,
            tuple(gpus),
            whole.failure or report.failure,
            (*whole.lost, *(bus for bus in report.lost if bus not in whole.lost)),
        )
    return whole
