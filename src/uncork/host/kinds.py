"""What kind of text is this? Told from its content, line by line; a file's name only helps a bare value.

A line that only one tool prints claims itself and what follows for that kind, until another kind's line
comes. Interleaved logs therefore come apart, and a mixed paste needs no marks. One compiled expression is
tried a line: the work is linear in the text.
"""

from uncork.host.claims import claimed

# Kinds whose own lines look like statements; inside them nothing else is taken for one.
_CLOSED = frozenset(
    ("lscpu", "dmidecode", "collect-env", "nvidia-smi-q", "limits", "ip-addr", "meminfo", "cpuinfo", "ibstat")
)
_ALWAYS_STAY = frozenset(("nvidia-smi-xml", "nccl-topo"))
# A line that starts so plainly goes on; most of a big file is spared the expression.
_PLAINLY: dict[str, str | tuple[str, ...]] = {
    "dmesg": ("[ ", *(f"[{digit}" for digit in range(10))),
    "lspci": "\t",
    "dmidecode": "\t",
    "nvidia-smi-q": "    ",
}
_CLOSERS = {"nvidia-smi-xml": "</nvidia_smi_log>", "nccl-topo": "</system>"}
# A report of these is also given whole: its parts are read together.
WHOLE = frozenset(("collect-env",))

# The first words of a command -> the kind of its output.
COMMANDS = (
    (("nvidia-smi", "topo", "-p2p"), "topo-p2p"),
    (("nvidia-smi", "topo"), "topo"),
    (("nvidia-smi", "nvlink"), "nvlink-status"),
    (("nvidia-smi", "-L"), "nvlink-status"),
    (("nvidia-smi",), "nvidia-smi"),
    (("lspci",), "lspci"),
    (("dmesg",), "dmesg"),
    (("dmidecode",), "dmidecode"),
    (("lscpu",), "lscpu"),
    (("numactl",), "numactl"),
    (("lsmod",), "lsmod"),
    (("sysctl",), "sysctl"),
    (("uname",), "uname"),
    (("ulimit",), "limits"),
    (("ip", "addr"), "ip-addr"),
    (("ip", "a"), "ip-addr"),
    (("ibstat",), "ibstat"),
    (("ibv_devinfo",), "ibv-devinfo"),
    (("show_gids",), "show-gids"),
    (("rocm-smi",), "rocm"),
    (("amd-smi",), "amd-smi"),
    (("dpkg",), "packages"),
    (("rpm",), "packages"),
    (("pip",), "packages"),
    (("pip3",), "packages"),
    (("df",), "df"),
    (("cpupower",), "cpupower"),
    (("env",), "environment"),
    (("printenv",), "environment"),
    (("docker", "inspect"), "container"),
    (("podman", "inspect"), "container"),
)


def command_kind(argv: tuple[str, ...]) -> str | None:
    """The kind of text that a command prints, whatever the spelling of its flags; None for one not known."""
    if not argv:
        return None
    words = (argv[0].rpartition("/")[2], *argv[1:])
    if words[0] == "nvidia-smi":
        rest = set(words[1:])
        if any(word.startswith("--query-gpu") for word in rest):
            return "nvidia-csv"
        if "topo" not in rest and "nvlink" not in rest and rest & {"-q", "--query", "-x", "--xml-format"}:
            return "nvidia-smi-xml" if rest & {"-x", "--xml-format"} else "nvidia-smi-q"
    if words[0] == "lspci" and any(
        word[:1] == "-" and word[1:2] != "-" and "t" in word for word in words[1:]
    ):
        return "lspci-tree"
    if words[0] == "journalctl":
        unit = " ".join(words[1:])
        if "fabricmanager" in unit:
            return "fabricmanager"
        return "dmesg" if {"-k", "--dmesg"} & set(words[1:]) else None
    for start, kind in COMMANDS:
        if words[: len(start)] == start:
            return kind
    return None


def classify(text: str) -> dict[str, str]:
    """Kind → the lines of `text` that are of it, in order; `statements` are lines that no tool printed."""
    if document := _json_kind(text):
        return {document: text}
    lines: dict[str, list[str]] = {}
    waiting: list[str] = []  # a matrix header belongs to the kind of the row below it
    kind = "statements"
    for line in text.split("\n"):
        found = _kind(line, kind)
        if found == "matrix-header":
            waiting.append(line)
            continue
        kind = found
        if waiting:
            lines.setdefault(kind, []).extend(waiting)
            waiting.clear()
        lines.setdefault(kind, []).append(line)
        if kind == "environment" and line.count(" ") > 1:
            lines.setdefault("statements", []).append(line)  # NAME=1 with a person's note behind it
        if _CLOSERS.get(kind, "\0") in line:
            kind = "statements"
    if waiting:
        lines.setdefault("topo", []).extend(waiting)
    found_text = {kind: "\n".join(kept).strip("\n") for kind, kept in lines.items()}
    for kind in WHOLE & found_text.keys():
        found_text[kind] = text
    return {kind: kept for kind, kept in found_text.items() if kept.strip()}


def _json_kind(text: str) -> str:
    """The kind of a text that is one JSON document, by a key in its beginning; empty for any other text."""
    head = text[:2000].lstrip()
    if head[:1] not in ("{", "["):
        return ""
    if '"card0"' in head:
        return "rocm"
    if '"gpu"' in head or '"gpu_data"' in head:
        return "amd-smi"
    return "container" if '"HostConfig"' in text and '"Id"' in text else ""


def _kind(line: str, current: str) -> str:
    if not line or line.isspace() or current in _ALWAYS_STAY or line.startswith(_PLAINLY.get(current, "\0")):
        return current
    kind = claimed(line[:600])
    if kind is None:
        return current
    if kind in ("statements", "environment") and current in _CLOSED and current != "collect-env":
        return current
    return kind
