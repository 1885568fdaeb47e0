"""Read-only tools for a model: bounded, escaped, redacted, and every answer kept for the check of quotes."""

import posixpath
import re

from uncork.agents.explorers.facts import facts_text
from uncork.host import Host, redact
from uncork.host.printable import printable
from uncork.model.facts import Facts
from uncork.model.unknown import Unknown

ANSWER_CHARS = 4_000
PATHS_SHOWN = 100

# Where settings and states are; a process's environment and memory, keys and home folders are not among them.
_READABLE = re.compile(
    r"^(?:/proc/(?!kcore|kmsg|kallsyms|keys|key-users|timer_list)|/sys/|/etc/(?:os-release|modprobe\.d/|sysctl\.d/"
    r"|sysctl\.conf|security/limits|tuned/|default/grub|udev/rules\.d/|systemd/system/|docker/daemon\.json|fstab$)"
    r"|/boot/config-|/run/systemd/container)"
)
_NEVER = re.compile(
    r"^/proc/(?:\d+|self|thread-self)/(?:environ|mem|auxv|map_files|fd|fdinfo|root|cwd|task/\d+/environ)"
)

# Exactly these: a prefix would let an argument turn a reader into a writer (sysctl -w, nvidia-smi -pl).
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("lscpu",),
    ("lspci",),
    ("lspci", "-vvv"),
    ("lspci", "-tv"),
    ("numactl", "--hardware"),
    ("dmesg",),
    ("uname", "-a"),
    ("lsmod",),
    ("ip", "-s", "link"),
    ("df", "-h"),
    ("mount",),
    ("ps", "-eo", "pid,ppid,ni,psr,stat,comm"),
    ("nvidia-smi",),
    ("nvidia-smi", "-q"),
    ("nvidia-smi", "topo", "-m"),
    ("nvidia-smi", "topo", "-p2p", "r"),
    ("nvidia-smi", "nvlink", "-s"),
    ("rocm-smi",),
    ("ibstat",),
)


class Eyes:
    """The tools of one explorer; `seen` holds (source, text) of every answer, in order."""

    def __init__(self, host: Host, facts: Facts | None = None) -> None:
        self._host = host
        self._facts = facts
        self.seen: list[tuple[str, str]] = []
        self.refused = 0

    def read(self, path: str) -> str:
        """The text of a file under /proc, /sys and parts of /etc and /boot."""
        plain = posixpath.normpath(path)
        if not (_allowed(plain) and _allowed(self._target(plain))):
            self.refused += 1
            return f"refused: {path!r} is not among the files that an explorer may read"
        return self._keep(plain, self._host.read(plain))

    def glob(self, pattern: str) -> str:
        """The paths that match a pattern, one a line."""
        if ".." in pattern or not _allowed(posixpath.normpath(pattern)):
            self.refused += 1
            return f"refused: {pattern!r} is not among the folders that an explorer may list"
        paths = self._host.glob(pattern)
        more = f"\n... and {len(paths) - PATHS_SHOWN} more" if len(paths) > PATHS_SHOWN else ""
        return self._keep(f"glob {pattern}", "\n".join(paths[:PATHS_SHOWN]) + more)

    def run(self, argv: list[str]) -> str:
        """The output of one of a fixed list of reading commands."""
        if tuple(argv) not in COMMANDS:
            self.refused += 1
            known = "; ".join(" ".join(command) for command in COMMANDS)
            return f"refused: {' '.join(argv)!r} is not on the list: {known}"
        answer = self._host.run(tuple(argv), timeout_s=5.0)
        return self._keep(
            " ".join(argv), answer if isinstance(answer, Unknown) else answer.stdout + answer.stderr
        )

    def facts(self, dimension: str) -> str:
        """What the rule-based explorer of this dimension read, as JSON."""
        if self._facts is None or not hasattr(self._facts, dimension):
            return f"refused: there is no dimension {dimension!r}"
        return self._keep(f"facts {dimension}", facts_text(getattr(self._facts, dimension)))

    def _target(self, path: str) -> str:
        real = self._host.link(path)
        return path if isinstance(real, Unknown) else real

    def _keep(self, source: str, text: str | Unknown) -> str:
        if isinstance(text, Unknown):
            return f"could not be read: {text.reason}"
        safe = printable(redact.text(text), keep="\n\t")
        cut = safe[:ANSWER_CHARS]
        self.seen.append((source, cut))
        return cut + (f"\n... cut, {len(safe)} characters in all" if len(safe) > len(cut) else "")


def _allowed(path: str) -> bool:
    return "\0" not in path and bool(_READABLE.match(path)) and not _NEVER.match(path)
