"""The one door to a machine: read, list, glob, run, write.

`LiveHost` is this machine, `SnapshotHost` a recorded one, `AttachedHost` a pile of text that people attach to
bug reports. Explorers cannot tell them apart.
"""

from typing import Protocol

import msgspec

from uncork.model.unknown import Unknown


class Output(msgspec.Struct, frozen=True):
    """What a command answered."""

    rc: int
    stdout: str
    stderr: str


class Host(Protocol):
    """What explorers read from. Paths are absolute; every answer may be `Unknown` and nothing raises.

    A second sample of a counter is asked for with `sample=2`; an equal call with an equal sample is answered
    from memory, so that fourteen explorers share one read and a recording can be replayed.
    """

    @property
    def name(self) -> str:
        """What a person calls this host."""
        ...

    @property
    def live(self) -> bool:
        """Whether it answers as a machine does, now or when it was recorded: what is not found is not there.

        False for attachments, whose silence says nothing.
        """
        ...

    def read(self, path: str, *, sample: int = 1) -> str | Unknown:
        """The text of a file, undecodable bytes replaced."""
        ...

    def read_bytes(self, path: str, *, sample: int = 1) -> bytes | Unknown:
        """The bytes of a file (at most 1 MiB)."""
        ...

    def list(self, path: str) -> tuple[str, ...] | Unknown:
        """The names in a folder, sorted."""
        ...

    def glob(self, pattern: str) -> tuple[str, ...]:
        """The paths that match, sorted; none where nothing matches or may be listed."""
        ...

    def link(self, path: str) -> str | Unknown:
        """The absolute path a symbolic link leads to."""
        ...

    def exists(self, path: str) -> bool | Unknown:
        """Whether the path is there."""
        ...

    def run(self, argv: tuple[str, ...], *, timeout_s: float = 10.0) -> Output | Unknown:
        """What a read-only command answers; Unknown (absent) where it is not installed. Never a shell."""
        ...

    def query(self, source: str) -> object | Unknown:
        """JSON-shaped readings from a library: `nvml`, `amdsmi`, `statvfs:/path`, `proc-status:self`."""
        ...
