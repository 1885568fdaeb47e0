"""nvidia-smi topo -m and -p2p: matrices of GPUs, pasted in every way that tabs get lost."""

import re

import msgspec

_CELL = r"NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|X|OK|CNS|GNS|TNS|NS|DR|U|N/A"
_GLUED = re.compile(rf"{_CELL}")
_DEVICE = re.compile(r"GPU\d+|NIC\d+|mlx\d+_\w+|ib\d+|roce\w*|bnxt\w*|hfi1_\d+|rdma\w*|irdma\d+")
_LEGEND = re.compile(r"^\s*(NIC\d+): (\S+)\s*$")
_PAIR = re.compile(r"^(GPU\d+) ?- ?(GPU\d+)\s+(NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)\b")
_REST = re.compile(r"^(GPU\d+(?:, ?GPU\d+)*) to the others:?\s+(PIX|PXB|PHB|NODE|SYS|SOC)\b")
_CPUS = re.compile(r"^\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$")
# The driver's 2016 name for a path across sockets.
MODERN = {"SOC": "SYS"}


class Matrix(msgspec.Struct, frozen=True):
    """Cells by (row, column) as printed, every GPU and NIC of the header, affinities of the rows printed."""

    gpus: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()
    cells: dict[tuple[str, str], str] = {}
    cpu_affinity: dict[str, str] = {}
    numa: dict[str, str] = {}  # "0", "0-1", "N/A"
    nic_names: dict[str, str] = {}  # NIC0 → mlx5_0
    rows: tuple[str, ...] = ()

    def pair(self, a: str, b: str) -> str | None:
        """The cell of a pair in either direction, in today's words; None where neither row was printed."""
        found = self.cells.get((a, b)) or self.cells.get((b, a))
        return MODERN.get(found, found) if found else None

    def node(self, gpu: str) -> int | None:
        """The NUMA node where the row names exactly one."""
        value = self.numa.get(gpu, "")
        return int(value) if value.isdigit() else None


class _Builder:
    def __init__(self) -> None:
        self.columns: list[str] = []
        self.cells: dict[tuple[str, str], str] = {}
        self.cpus: dict[str, str] = {}
        self.numa: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.rows: list[str] = []


def parse(text: str) -> Matrix:
    """Read the first matrix in `text` (later ones only fill what it lacks), and pairs stated one a line."""
    build = _Builder()
    for line in text.split("\n"):
        line = line[:4000]
        if found := _LEGEND.match(line):
            build.names[found[1]] = found[2]
        elif found := _PAIR.match(line):
            _stated(build, (found[1], found[2]), found[3])
        elif found := _REST.match(line):
            _others(build, re.findall(r"GPU\d+", found[1]), found[2])
        elif not build.rows and line.split()[:1] == ["GPU0"] and _is_header(line):
            build.columns = _DEVICE.findall(line.partition("CPU Affinity")[0])
        elif build.columns:
            _row(build, line)
    gpus = tuple(name for name in build.columns if name.startswith("GPU"))
    nics = tuple(name for name in build.columns if not name.startswith("GPU"))
    return Matrix(gpus, nics, build.cells, build.cpus, build.numa, build.names, tuple(build.rows))


def _is_header(line: str) -> bool:
    rest = line.split()[1:]
    return not rest or rest[0] == "CPU" or _DEVICE.match(rest[0]) is not None


def _stated(build: _Builder, pair: tuple[str, str], cell: str) -> None:
    build.cells.setdefault(pair, cell)
    for name in pair:
        if name not in build.columns:
            build.columns.append(name)


def _others(build: _Builder, gpus: list[str], cell: str) -> None:
    known = list(build.columns)
    for gpu in gpus:
        for other in known:
            if other not in gpus:
                _stated(build, (other, gpu), cell)


def _row(build: _Builder, line: str) -> None:
    words = line.split()
    if not words or words[0] not in build.columns or words[0] in build.rows:
        return
    name, rest = words[0], words[1:]
    cells: list[str] = []
    while rest and len(cells) < len(build.columns):
        glued = _GLUED.findall(rest[0])
        if "".join(glued) != rest[0]:
            break
        cells += glued
        rest = rest[1:]
    if not cells:
        return
    build.rows.append(name)
    for column, cell in zip(build.columns, cells, strict=False):
        build.cells[name, column] = cell
    if rest and _CPUS.match(rest[0]):
        build.cpus[name] = rest[0]
        if len(rest) > 1:
            build.numa[name] = rest[1]
