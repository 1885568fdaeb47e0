"""The machine uncork stands on."""

import glob as globbing
import os
import pathlib
import platform
import shutil
import subprocess

from uncork.host import Output
from uncork.model.unknown import Unknown

READ_LIMIT_BYTES = 1 << 20

# The tools print other words and numbers in other languages; PATH of a service may lack sbin.
_ENVIRONMENT = {"LC_ALL": "C", "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"}


def unread(path: str, error: OSError) -> Unknown:
    """The Unknown for a failed read; absent where there is no such file."""
    absent = isinstance(error, FileNotFoundError | NotADirectoryError)
    return Unknown(f"{path}: {error.strerror or error}", absent=absent)


class LiveHost:
    """This machine, read where `root` is mounted (a folder of fake files in tests)."""

    live = True

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")

    @property
    def name(self) -> str:
        return platform.node()

    def read_bytes(self, path: str, *, sample: int = 1) -> bytes | Unknown:
        try:
            with open(self._root + path, "rb") as file:
                return file.read(READ_LIMIT_BYTES)
        except OSError as error:
            return unread(path, error)

    def read(self, path: str, *, sample: int = 1) -> str | Unknown:
        data = self.read_bytes(path, sample=sample)
        return data if isinstance(data, Unknown) else data.decode("utf-8", "replace")

    def list(self, path: str) -> tuple[str, ...] | Unknown:
        try:
            return tuple(sorted(os.listdir(self._root + path)))
        except OSError as error:
            return unread(path, error)

    def glob(self, pattern: str) -> tuple[str, ...]:
        found = globbing.glob(self._root + pattern)
        return tuple(sorted(path[len(self._root) :] for path in found))

    def link(self, path: str) -> str | Unknown:
        try:
            pathlib.Path(self._root + path).readlink()
            return os.path.realpath(self._root + path)[len(self._root) :]
        except OSError as error:
            return unread(path, error)

    def exists(self, path: str) -> bool | Unknown:
        try:
            os.stat(self._root + path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            return unread(path, error)
        return True

    def run(self, argv: tuple[str, ...], *, timeout_s: float = 10.0) -> Output | Unknown:
        program = shutil.which(argv[0], path=_ENVIRONMENT["PATH"])
        if program is None:
            return Unknown(f"{argv[0]} is not installed", absent=True)
        try:
            done = subprocess.run(
                (program, *argv[1:]),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                env=os.environ | _ENVIRONMENT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Unknown(f"{argv[0]} did not answer within {timeout_s:g} s")
        except OSError as error:
            return Unknown(f"{argv[0]}: {error.strerror}")
        return Output(
            done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        )

    def query(self, source: str) -> object | Unknown:
        from uncork.host.query import query

        return query(source)
