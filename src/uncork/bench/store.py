"""DIR of a run: summary.json, one file a finished level and repeat, and requests.jsonl.

A level is finished when its file is there: it is written last, whole, after its lines of requests.jsonl are
on the disk. What a kill left behind after the last finished level is cut off at the next start.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from uncork.bench.records import Record, encode_array
from uncork.errors import BadInput, MeasureFailed
from uncork.model.bench import BenchRun, LevelResult
from uncork.state import write_whole

SUMMARY, REQUESTS, LEVELS = "summary.json", "requests.jsonl", "levels"


class Finished(msgspec.Struct, frozen=True):
    """A finished level as its file holds it: where its requests end in requests.jsonl, and the result."""

    end_byte: int
    result: LevelResult


_LINE = msgspec.json.Encoder(enc_hook=encode_array)


class Store:
    """The folder of one run. Raises `MeasureFailed` where it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            (folder / LEVELS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from error

    def load(self) -> BenchRun | None:
        """The run that was begun here, None in an empty folder. Raises `BadInput` on something else."""
        path = self.folder / SUMMARY
        try:
            return msgspec.json.decode(path.read_bytes(), type=BenchRun)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise BadInput(
                f"{path} is not a run of this version ({error}); nothing was sent.",
                next="choose another --out",
            ) from error

    def finished(self) -> dict[tuple[str, int], LevelResult]:
        """Levels that are done; cuts off the lines of one that is not."""
        found, end = {}, 0
        for path in sorted((self.folder / LEVELS).glob("*.json")):
            item = msgspec.json.decode(path.read_bytes(), type=Finished)
            found[item.result.level, item.result.repeat] = item.result
            end = max(end, item.end_byte)
        requests = self.folder / REQUESTS
        if requests.exists() and requests.stat().st_size > end:
            os.truncate(requests, end)
        return found

    def add(self, result: LevelResult, records: list[Record]) -> None:
        """Write a finished level: its requests first, its own file last."""
        try:
            with (self.folder / REQUESTS).open("ab") as file:
                for record in records:
                    file.write(_LINE.encode(record) + b"\n")
                file.flush()
                os.fsync(file.fileno())
                end = file.tell()
            name = f"{result.level}.{result.repeat}.json"
            write_whole(self.folder / LEVELS / name, msgspec.json.encode(Finished(end, result)), mode=0o644)
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    def save(self, run: BenchRun) -> None:
        """Replace summary.json."""
        try:
            text = msgspec.json.format(msgspec.json.encode(run), indent=2)
            write_whole(self.folder / SUMMARY, text + b"\n", mode=0o644)
        except OSError as error:
            raise _unwritable(self.folder, error) from error


def _unwritable(folder: Path, error: OSError) -> MeasureFailed:
    return MeasureFailed(
        f"{folder} cannot be written ({error.strerror}); levels finished before are kept.",
        next="choose another --out, or make room, and start again: finished levels are not repeated",
    )
