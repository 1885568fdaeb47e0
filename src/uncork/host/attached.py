"""A pile of text that people attach to bug reports, answering like a host.

What was not attached is `Unknown` and never absent: an audit of attachments does not conclude from silence.
"""

import fnmatch
import re
import shlex
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from uncork.errors import BadInput
from uncork.host import Output
from uncork.host.claims import CLAIMS
from uncork.host.derived import from_bare_value, from_kind, space
from uncork.host.gather import LIMITS, Attachment, Limits, gather
from uncork.host.kinds import classify, command_kind
from uncork.host.pieces import Piece, pieces
from uncork.model.unknown import Unknown

NOT_ATTACHED = "not among the attached files"
# Several texts of these kinds are parts of one; of any other kind the longest is taken.
_JOINED = frozenset(
    ("lspci", "dmesg", "nvlink-status", "nvidia-smi-q", "sysctl", "packages", "rocm", "amd-smi", "topo")
)
WORDS_LIMIT = 1 << 18  # characters: nobody writes more by hand, a log that no kind claims may hold any amount
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ABSENT = re.compile(r"^\*\*\* (/\S+) does not exist$", re.MULTILINE)
_P2P_LETTER = re.compile(r"-p2p[ -]?([rwnap]{1,2})\b|p2p[-_.]([rwnap]{1,2})\b")
_TREE_PATH = re.compile(r"(?:^|/)((?:proc|sys|etc|run|var|boot|usr|lib)/.+)$")
_SOS_COMMAND = re.compile(r"(?:^|/)sos_commands/[^/]+/(.+)$")


def plain(data: bytes) -> str:
    """Bytes of any origin as text: UTF-16 marks honoured; ANSI codes, carriage returns and NULs gone."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", "replace")
    else:
        text = data.decode("utf-8-sig", "replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


class AttachedHost:
    """The files and folders in `paths`, each split and recognised by content. Raises `BadInput`."""

    live = False

    def __init__(self, paths: Iterable[Path], *, limits: Limits = LIMITS) -> None:
        named = tuple(paths)
        pile = gather(named, limits=limits)
        if not pile.files:
            raise BadInput(
                "Nothing to read in " + ", ".join(str(path) for path in named) + "; nothing was audited.",
                next="name files, or a folder that holds some",
            )
        self.left_out = pile.left_out
        self._name = named[0].resolve().name + (f" and {len(named) - 1} more" if len(named) > 1 else "")
        self._texts: dict[str, list[Piece]] = {}
        self._files: dict[str, str] = {}
        self._derived: dict[str, str] = {}
        self._commands: dict[tuple[str, ...], str] = {}
        self._listings: dict[str, tuple[str, ...]] = {}
        self._absent: set[str] = set()
        self._tree = any("sos_commands/" in file.name for file in pile.files)
        for file in pile.files:
            self._take(file)
        if any(path.startswith("/sys/fs/cgroup/cpu.") for path in (*self._files, *self._derived)):
            # Read at the root of what the reporter sees: in a container its own group, the only one shown.
            self._derived.setdefault("/proc/self/cgroup", "0::/\n")
            self._derived.setdefault("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")

    def _take(self, file: Attachment) -> None:
        text = plain(file.data)
        if self._tree and (found := _SOS_COMMAND.search(file.name)):
            self._place(Piece(file.name, _sos_command(found[1]), text))
            return
        if self._tree and (found := _TREE_PATH.search(file.name)):
            self._place(Piece(file.name, "cat /" + found[1], text))
            return
        self._absent.update(_ABSENT.findall(text))
        for piece in pieces(file.name, text):
            self._place(piece)

    def _place(self, piece: Piece) -> None:
        """Enter one piece under its path or command, its kinds, and the files it gives back."""
        text = "\n".join(line for line in piece.text.split("\n") if line.strip() not in ("$", "#"))
        argv, filtered = _words(piece.hint)
        path = _path_of(piece.hint, argv, filtered)
        for alias, kept in _ALIASES:
            path = alias.sub(kept, path)
        if path:
            self._files.setdefault(path, text.rstrip("\n") + "\n")
        elif argv and not filtered:
            self._commands.setdefault(argv, text)
        if argv[:1] == ("ls",) and len(argv) > 1 and argv[-1].startswith("/") and not filtered:
            self._listings[argv[-1].rstrip("/")] = tuple(sorted(text.split()))
        kinds = self._kinds_of(piece, argv, text)
        if path and kinds.keys() <= {"statements"}:
            kinds = {}  # a file of the host, not a person's words
        for kind, part in kinds.items():
            if kind == "statements":
                part = part[:WORDS_LIMIT]
            self._texts.setdefault(kind, []).append(Piece(piece.name, piece.hint, part))
            if not filtered:
                for known, content in from_kind(kind, part):
                    self._derived.setdefault(known, content)
        if kinds.keys() <= {"statements", "limits"}:
            for known, content in from_bare_value(path or piece.name, text):
                self._derived.setdefault(known, content)

    def _kinds_of(self, piece: Piece, argv: tuple[str, ...], text: str) -> dict[str, str]:
        said = command_kind(argv) if argv else None
        if said and said != "nvidia-smi":
            found = {} if said in ("dmesg", "lspci", "dmidecode", "lscpu", "sysctl") else classify(text)
            spoken = found.pop("statements", "")
            return found if said in found and not spoken.strip() else found | {said: text}
        found = classify(text)
        if said and found.keys() <= {"statements"}:
            return {said: text}
        return found

    @property
    def name(self) -> str:
        return self._name

    def kinds(self) -> dict[str, list[Piece]]:
        """Every kind found, with its texts."""
        return self._texts

    def read(self, path: str, *, sample: int = 1) -> str | Unknown:
        if sample == 1:
            for known in (self._files, self._derived):
                if path in known:
                    return known[path]
        return self._missing(path)

    def _missing(self, path: str) -> Unknown:
        if path in self._absent:
            return Unknown(f"{path}: does not exist, the report says", absent=True)
        return Unknown(f"{path}: {NOT_ATTACHED}")

    def read_bytes(self, path: str, *, sample: int = 1) -> bytes | Unknown:
        text = self.read(path, sample=sample)
        return text if isinstance(text, Unknown) else text.encode()

    def list(self, path: str) -> tuple[str, ...] | Unknown:
        path = path.rstrip("/")
        if path in self._listings:
            return self._listings[path]
        if self._tree or path in _COMPLETE or path.startswith("/sys/class/infiniband/"):
            inside = {
                known[len(path) + 1 :].split("/")[0]
                for known in (*self._files, *self._derived)
                if known.startswith(path + "/")
            }
            if inside:
                return tuple(sorted(inside))
        return self._missing(path)

    def glob(self, pattern: str) -> tuple[str, ...]:
        depth = pattern.count("/")
        matched = re.compile(fnmatch.translate(pattern)).match
        found = set()
        for known in (*self._files, *self._derived):
            parts = known.split("/")
            if len(parts) > depth and matched(prefix := "/".join(parts[: depth + 1])):
                found.add(prefix)
        return tuple(sorted(found))

    def link(self, path: str) -> str | Unknown:
        return self._missing(path)

    def exists(self, path: str) -> bool | Unknown:
        path = path.rstrip("/")
        if path in self._files or path in self._derived or path in self._listings:
            return True
        if path in self._absent:
            return False
        folder, _, name = path.rpartition("/")
        if folder in self._listings:
            return name in self._listings[folder]
        return self._missing(path)

    def run(self, argv: tuple[str, ...], *, timeout_s: float = 10.0) -> Output | Unknown:
        kind = command_kind(argv)
        texts = self._texts.get(kind, []) if kind else []
        if kind == "rocm":
            texts = texts or self._texts.get("amd-smi", [])  # the same facts, and one parser reads both
        if kind == "topo-p2p":
            texts = [text for text in texts if _p2p_letters(text) & set(argv[-1])]
        elif kind in ("lsmod", "lspci-tree"):
            texts = [text for text in texts if not _words(text.hint)[1]]
        if texts:
            return _output(_joined(kind or "", texts))
        asked = (argv[0].rpartition("/")[2], *sorted(argv[1:]))
        for known, text in self._commands.items():
            if (known[0].rpartition("/")[2], *sorted(known[1:])) == asked:
                return _output(text)
        return Unknown(f"{' '.join(argv)}: {NOT_ATTACHED}")

    def query(self, source: str) -> object | Unknown:
        name, _, kind = source.partition(":")
        if name == "statvfs":
            found = (space(piece.text, kind) for piece in self._texts.get("df", []))
            return next(filter(None, found), None) or self._missing(source)
        if name != "attached":
            return Unknown(f"{source}: {NOT_ATTACHED}")
        if kind not in CLAIMS:
            return Unknown(f"no such kind: {kind}", absent=True)
        texts = self._texts.get(kind)
        if not texts:
            return Unknown(f"{kind}: {NOT_ATTACHED}")
        return [{"name": piece.name, "hint": piece.hint, "text": piece.text} for piece in texts]


# Folders of which a derived listing is the whole: lscpu and numactl name every node.
_COMPLETE = frozenset(
    (
        "/sys/devices/system/node",
        "/sys/devices/system/cpu/cpufreq",
        "/sys/class/infiniband",
        "/etc/modprobe.d",
    )
)
# Names by which people reach a file that the kernel keeps elsewhere.
_ALIASES = (
    (re.compile(r"^/sys/devices/system/cpu/cpu(\d+)/cpufreq/"), r"/sys/devices/system/cpu/cpufreq/policy\1/"),
)


def _words(hint: str) -> tuple[tuple[str, ...], bool]:
    """A hint's command as words, and whether its output was filtered before we saw it."""
    if not hint:
        return (), False
    command, pipe, _ = hint.partition("|")
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    while words and (words[0] == "sudo" or (words[0].startswith("-") and len(words) > 1)):
        words = words[1:]
    if not words:
        return (), False
    words[0] = words[0].rpartition("/")[2] if not words[0].startswith("/proc") else words[0]
    filtered = bool(pipe) or words[0] in ("grep", "egrep", "zgrep", "head", "tail")
    return tuple(words), filtered


def _path_of(hint: str, argv: tuple[str, ...], filtered: bool) -> str:
    if re.match(r"/(?:proc|sys|etc|dev|var|run|boot)/", hint) and " " not in hint:
        return str(PurePosixPath(hint))
    paths = [word for word in argv[1:] if word.startswith("/")]
    if argv[:1] == ("cat",) and len(paths) == 1 and not filtered:
        return str(PurePosixPath(paths[0]))
    return ""


def _sos_command(file: str) -> str:
    """`lspci_-nnvv` → `lspci -nnvv`: how sos spells a command in a file's name."""
    words = re.sub(r"\.(?:txt|out|log)$", "", file.rpartition("/")[2]).split("_")
    if words[0] in (
        "nvidia-smi",
        "lspci",
        "dmesg",
        "sysctl",
        "lscpu",
        "numactl",
        "uname",
        "dmidecode",
        "lsmod",
    ):
        return " ".join(words)
    return " ".join(words)


def _p2p_letters(piece: Piece) -> set[str]:
    found = _P2P_LETTER.search(piece.hint) or _P2P_LETTER.search(piece.name)
    # Without a letter nobody can tell reads from writes; the tool's own default and first example is r.
    return set((found[1] or found[2]) if found else "r")


def _joined(kind: str, texts: list[Piece]) -> str:
    if kind in _JOINED:
        return "\n".join(piece.text for piece in texts) + "\n"
    return max((piece.text for piece in texts), key=len) + "\n"


def _output(text: str) -> Output:
    failed = text.startswith(("Failed to initialize NVML", "NVIDIA-SMI has failed"))
    return Output(255 if failed else 0, text, "")
