"""safetensors headers → exact bytes of every tensor. Only headers are read, never data.

Format: 8 bytes of little-endian length, then that many bytes of JSON (huggingface/safetensors, README).
"""

import struct
from pathlib import Path
from typing import Any

import msgspec

from uncork.bound.config import read_json
from uncork.errors import BadInput
from uncork.model.bound import ModelBytes

_LONGEST_HEADER = 100_000_000  # the format's own limit


class Header(msgspec.Struct, frozen=True):
    """One tensor as a header lists it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


def read_header(path: Path) -> list[Header]:
    """The tensors of one file. Raises BadInput naming the file, and the tensor whose entry is wrong."""
    try:
        with path.open("rb") as file:
            first = file.read(8)
            if len(first) < 8:
                raise BadInput(
                    f"{path.name}: the safetensors header is cut short", next="fetch the file again"
                )
            (length,) = struct.unpack("<Q", first)
            if length > _LONGEST_HEADER:
                raise BadInput(
                    f"{path.name}: the header length is {length}, so this is not a safetensors file"
                )
            raw = file.read(length)
    except OSError as error:
        raise BadInput(f"{path.name} cannot be read: {error.strerror}") from None
    if len(raw) < length:
        raise BadInput(
            f"{path.name}: the safetensors header is cut short: {len(raw)} of {length} bytes are there",
            next="fetch the file again",
        )
    try:
        entries = msgspec.json.decode(raw, type=dict[str, dict[str, Any]])
    except msgspec.DecodeError as error:
        raise BadInput(f"{path.name}: the safetensors header is not JSON: {error}") from None
    return [_header(path.name, name, entry) for name, entry in entries.items() if name != "__metadata__"]


def _header(file: str, name: str, entry: dict[str, Any]) -> Header:
    try:
        first, last = entry["data_offsets"]
        return Header(name, entry["dtype"], tuple(entry["shape"]), last - first)
    except KeyError as missing:
        raise BadInput(f"{file}: tensor `{name}` has no {missing} in the header") from None
    except (TypeError, ValueError):
        raise BadInput(f"{file}: tensor `{name}` has a `data_offsets` that is not two numbers") from None


def headers_in(folder: Path) -> list[Header]:
    """The tensors of all files of a checkpoint, [] where only the config is there.

    Raises BadInput where the index names files that are missing beside others that are there.
    """
    index = folder / "model.safetensors.index.json"
    files = sorted(folder.glob("*.safetensors"))
    if index.exists() and files:
        mapping = read_json(index).get("weight_map")
        if not isinstance(mapping, dict):
            raise BadInput("model.safetensors.index.json: `weight_map` is missing")
        files = [folder / name for name in sorted(set(mapping.values()))]
        missing = [file.name for file in files if not file.exists()]
        if missing:
            raise BadInput(
                f"model.safetensors.index.json names {missing[0]}, which is not there",
                next="fetch the missing files, or keep only config.json in the folder",
            )
    return [header for file in files for header in read_header(file)]


def with_headers(model: ModelBytes, headers: list[Header]) -> ModelBytes:
    """The model with the bytes of its real tensors instead of computed ones."""
    raise BadInput("safetensors headers are not read yet")
