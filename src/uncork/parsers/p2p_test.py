"""What people run to see whether GPUs reach each other: simpleP2P, p2pBandwidthLatencyTest, copy tests, tables."""

import re

import msgspec

_DEVICE = re.compile(
    r"^\s*Device: ?(\d{1,3}), (.+?), pciBusID: ?([0-9a-fA-F]+), pciDeviceID: ?([0-9a-fA-F]+), pciDomainID: ?(\d+)"
)
_ACCESS = re.compile(r"Device=(\d{1,3}) (CAN|CANNOT) Access Peer Device=(\d{1,3})")
_TITLE = re.compile(r"^\s*(Unidirectional|Bidirectional|P2P=\w+|P2P Connectivity).*")
_HEADER = re.compile(r"^\s*(?:D\\D|GPU|CPU)((?:\s+\d{1,3})+)\s*$")
_ROW = re.compile(r"^\s*(\d{1,3})((?:\s+\d{1,7}(?:\.\d{1,4})?)+)\s*$")
_VERIFY = re.compile(
    r"Verification error|verification failed|Test (?:FAILED|failed)|data mismatch|nan, ref", re.IGNORECASE
)
_PASSED = re.compile(r"Test passed|Verification: PASS|\bPASS\b.* 0 corrupt", re.IGNORECASE)
_TENSOR = re.compile(r"^\s*tensor\(\[(.*?)\](?:, device='(\w+(?::\d+)?)')?.*\)")
_PAIR = re.compile(r"GPU ?(\d{1,3}) ?(<->|->|→|↔|<=>|to) ?GPU ?(\d{1,3}(?:/\d{1,3})*)")
_FIGURE = re.compile(r"~?(\d{1,6}(?:\.\d{1,4})?)\s*(?:GB/s)?\s*(?:\(.*\))?\s*$")
_ACS_COLUMNS = re.compile(r"ACS redirect ON\s+ACS redirect OFF", re.IGNORECASE)
_REFUSED = re.compile(r"MAP_NOT_SUPPORTED|= 0, .*= 0|ERROR_OUT_OF_DEVICE_MEMORY|nothing transferred")


class Matrix(msgspec.Struct, frozen=True):
    """One table: its title, and (row, column) → value in the title's unit."""

    title: str
    cells: dict[tuple[int, int], float]


class Pairing(msgspec.Struct, frozen=True):
    """A line of a table in a person's words: the pairs that ran at once and one figure in GB/s."""

    pairs: tuple[tuple[int, int], ...]
    gb_s: float
    text: str


class Test(msgspec.Struct, frozen=True):
    """What the tests said. `wrong` are lines that show data that did not arrive; empty proves nothing."""

    names: dict[int, str] = {}
    buses: dict[int, str] = {}
    access: dict[tuple[int, int], bool] = {}
    matrices: tuple[Matrix, ...] = ()
    pairings: tuple[Pairing, ...] = ()
    wrong: tuple[str, ...] = ()
    passed: bool = False
    acs_redirect_refused: str = ""  # the line that shows peer access refused while ACS redirect is on


def parse(text: str) -> Test:
    """Read any mix of the tests' outputs."""
    build = _Builder()
    for line in text.split("\n"):
        build.line(line[:2000].rstrip())
    return build.done()


class _Builder:
    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.buses: dict[int, str] = {}
        self.access: dict[tuple[int, int], bool] = {}
        self.matrices: list[Matrix] = []
        self.pairings: list[Pairing] = []
        self.wrong: dict[str, None] = {}
        self.passed = False
        self.title = ""
        self.columns: list[int] = []
        self.source: str | None = None
        self.acs_columns = False
        self.acs = ""

    def line(self, line: str) -> None:
        if found := _DEVICE.match(line):
            self.names[int(found[1])] = found[2]
            self.buses[int(found[1])] = (
                f"{int(found[5]):04x}:{found[3].lower().zfill(2)}:{found[4].lower().zfill(2)}.0"
            )
        elif found := _ACCESS.search(line):
            self.access[int(found[1]), int(found[3])] = found[2] == "CAN"
        elif _TITLE.match(line):
            self.title, self.columns = line.strip(), []
        elif found := _HEADER.match(line):
            self.columns = [int(word) for word in found[1].split()]
            self.matrices.append(Matrix(self.title, {}))
        elif self.columns and (found := _ROW.match(line)):
            for column, word in zip(self.columns, found[2].split(), strict=False):
                self.matrices[-1].cells[int(found[1]), column] = float(word)
        else:
            self.columns = []
            self.words(line)

    def words(self, line: str) -> None:
        if _VERIFY.search(line):
            if len(self.wrong) < 100:
                self.wrong[line.strip()] = None
        elif _PASSED.search(line):
            self.passed = True
        if _ACS_COLUMNS.search(line):
            self.acs_columns = True
        elif self.acs_columns and not self.acs and (found := _REFUSED.search(line)) and found.start() < 70:
            self.acs = line.strip()
        if found := _TENSOR.match(line):
            self.tensor(found[1], found[2] or "cpu", line)
        elif pairs := _PAIR.findall(line):
            self.pairing(pairs, line)

    def tensor(self, values: str, device: str, line: str) -> None:
        """A copy printed on each device in turn: the first is what was sent, one that differs did not arrive."""
        if device == "cpu" or self.source is None:
            self.source = values
        elif values != self.source and device.startswith(("cuda", "xpu", "hip")):
            self.wrong[line.strip()] = None

    def pairing(self, pairs: list[tuple[str, str, str]], line: str) -> None:
        found = _FIGURE.search(line)
        if found is None:
            return
        ends = tuple((int(a), int(b)) for a, _, several in pairs for b in several.split("/"))
        self.pairings.append(Pairing(ends, float(found[1]), line.strip()))

    def done(self) -> Test:
        return Test(
            self.names,
            self.buses,
            self.access,
            tuple(matrix for matrix in self.matrices if matrix.cells),
            tuple(self.pairings),
            tuple(self.wrong),
            self.passed,
            self.acs,
        )
