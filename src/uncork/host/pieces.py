"""A text that holds several outputs → its pieces, cut at the marks that say what follows.

Marks: a shell prompt with a command, `== title ==`, `==> file <==`, Markdown headings and fences, and the
rules and `*** /path` lines of nvidia-bug-report.sh. A title counts only where it names a command or a path:
reports are full of decoration that belongs to a tool's own output.
"""

import re
from collections.abc import Iterator

import msgspec


class Piece(msgspec.Struct, frozen=True):
    """A stretch of one file; `hint` is the command or path that stood above it, or empty."""

    name: str
    hint: str
    text: str


TOOLS = (
    *("cat", "head", "tail", "grep", "ls", "lspci", "setpci", "nvidia-smi", "dmesg", "journalctl", "lscpu"),
    *("numactl", "lsmod", "modinfo", "sysctl", "uname", "ip", "ifconfig", "ibstat", "ibv_devinfo", "ethtool"),
    *("rocm-smi", "rocminfo", "amd-smi", "dpkg", "rpm", "apt", "pip", "pip3", "free", "df", "mount", "ps"),
    *(
        "systemctl",
        "docker",
        "podman",
        "kubectl",
        "ulimit",
        "env",
        "printenv",
        "dmidecode",
        "perf",
        "bpftrace",
    ),
    *("funclatency", "funclatency-bpfcc", "nvcc", "nvidia-container-cli", "lsblk", "findmnt", "cpupower"),
    *("turbostat", "tuned-adm", "hostnamectl", "python", "python3", "vllm", "sglang", "mokutil", "lsof"),
    *("nvbandwidth", "all_reduce_perf", "p2pBandwidthLatencyTest", "simpleP2P", "vmstat", "mpstat", "top"),
    *("echo", "zcat", "xargs", "find", "stat", "readlink", "lstopo", "mlxlink", "mlxconfig", "show_gids"),
)
_TOOL = "|".join(re.escape(tool) for tool in sorted(TOOLS, key=len, reverse=True))
_COMMAND = rf"(?!dmidecode \d)(?:sudo\s+(?:-\w+\s+)*)?(?:\S*/)?(?:{_TOOL})(?=\s|$|\|)[^\n]*"
_PATH = r"/(?:proc|sys|etc|dev|var|run|boot|opt|usr|home|root)/?[^\s<>]*"

_PROMPT = re.compile(
    rf"^\s{{0,4}}(?:\([\w.-]+\)\s*)?(?:➜ +\S+ +|(?:\[?[\w.-]+(?:@[\w.-]+)?[: ][\w~/. -]*\]?)?[$#%❯]\s+)"
    rf"(?P<command>{_COMMAND})$"
)
_TRACE = re.compile(rf"^\++ (?P<command>{_COMMAND})$")
_TITLE = re.compile(
    rf"^(?:={{2,}}|-{{2,}}|\*{{2,}}|#{{1,6}}|>{{2,}})\s*[`'\"$]?\s*(?P<title>{_COMMAND}|{_PATH})[`'\":]?\s*"
    rf"(?:={{2,}}|-{{2,}}|\*{{2,}}|#+|<{{2,}})?\s*$"
)
_TAIL = re.compile(r"^==> (?P<title>.+?) <==$")
_BARE = re.compile(
    r"^(?:/usr/bin/|/usr/sbin/|/sbin/|/bin/)?(?:sudo )?(?P<command>"
    r"(?:nvidia-smi|lspci|numactl|lscpu|dmesg|dmidecode|lsmod|rocm-smi|amd-smi|ibstat|ibv_devinfo|uname -\w+"
    r"|sysctl -\w+|ulimit -\w+|cat /\S+|ip addr|ip a|systemctl status \S+|journalctl)(?: [-\w./= ]+)?)$"
)
_BARE_WORDS = frozenset(
    (
        *(
            "nvidia-smi",
            "lspci",
            "numactl",
            "lscpu",
            "dmesg",
            "dmidecode",
            "lsmod",
            "rocm-smi",
            "amd-smi",
            "ibstat",
        ),
        *("ibv_devinfo", "uname", "sysctl", "ulimit", "cat", "ip", "systemctl", "journalctl", "sudo"),
    )
)
_RULE = re.compile(r"^_{20,}$")
_BUG_REPORT_COMMAND = re.compile(r"^/(?:usr/)?s?bin/\S+.*$")
_FENCE = re.compile(r"^\s{0,3}(?:```|~~~)")


def _mark(line: str) -> str | None:
    """The command or path that a line announces; empty for a cut without a title; None for a plain line."""
    if not line or line[0] == "\t" or line.startswith("     ") or len(line) > 400:
        return None
    first = line.lstrip()[:1]
    if first in "`~" and _FENCE.match(line):
        return ""
    if first == "_" and _RULE.match(line):
        return ""
    if first in "=-*#>" and (found := _TAIL.match(line) or _TITLE.match(line)):
        return found["title"].rstrip("= -*#<")
    if first == "+" and (found := _TRACE.match(line)):
        return found["command"]
    if ("$ " in line or "# " in line or "% " in line or "❯" in line or "➜" in line) and (
        found := _PROMPT.match(line)
    ):
        return found["command"]
    word = line.partition(" ")[0].rpartition("/")[2]
    if word in _BARE_WORDS and (found := _BARE.match(line)):
        return found["command"]
    return None


def pieces(name: str, text: str) -> Iterator[Piece]:
    """Cut `text` (of the file `name`) at its marks; pieces without content are left out."""
    hint, lines, ruled = "", [], False
    for line in text.split("\n"):
        if line.startswith("*** ls:"):
            continue
        mark = _mark(line)
        if mark is None and ruled and _BUG_REPORT_COMMAND.match(line):
            mark = line
        ruled = (ruled and not line.strip()) or bool(line.startswith("____") and _RULE.match(line))
        if mark is None:
            lines.append(line)
            continue
        if hint or any(kept.strip() for kept in lines):
            yield Piece(name, hint, "\n".join(lines).strip("\n"))
        hint, lines = mark, []
    if hint or any(kept.strip() for kept in lines):
        yield Piece(name, hint, "\n".join(lines).strip("\n"))
