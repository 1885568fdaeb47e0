"""safetensors headers → exact bytes of every tensor. Only headers are read, never data.

Format: 8 bytes of little-endian length, then that many bytes of JSON (huggingface/safetensors, README).
"""

import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from uncork.bound.config import read_json
from uncork.bound.quantisation import Scheme, canonical
from uncork.bound.roles import role_of
from uncork.errors import BadInput
from uncork.model.bound import ModelBytes, Part, Role, Sharding

_LONGEST_HEADER = 100_000_000  # the format's own limit


class Header(msgspec.Struct, gc=False):
    """One tensor as a header lists it."""

    name: str
    dtype: str
    bytes: int


class _Entry(msgspec.Struct, gc=False):
    dtype: str = ""
    data_offsets: tuple[int, int] | None = None


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
        entries = msgspec.json.decode(raw, type=dict[str, _Entry])
    except msgspec.ValidationError:
        raise BadInput(_what_is_wrong(path.name, raw)) from None
    except msgspec.DecodeError as error:
        raise BadInput(f"{path.name}: the safetensors header is not JSON: {error}") from None
    entries.pop("__metadata__", None)
    found = []
    for name, entry in entries.items():
        if entry.data_offsets is None or not entry.dtype:
            missing = "dtype" if entry.data_offsets else "data_offsets"
            raise BadInput(f"{path.name}: tensor `{name}` has no '{missing}' in the header")
        found.append(Header(name, entry.dtype, entry.data_offsets[1] - entry.data_offsets[0]))
    return found


def _what_is_wrong(file: str, raw: bytes) -> str:
    """The first tensor whose entry is not one. The fast decoder says where it stopped, but not in which key."""
    for name, entry in msgspec.json.decode(raw, type=dict[str, Any]).items():
        try:
            msgspec.convert(entry, _Entry)
        except msgspec.ValidationError as error:
            return f"{file}: tensor `{name}` has a wrong entry in the header: {error}"
    return f"{file}: the safetensors header is not an object of tensors"


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


# What follows a module's name in the names of its tensors. The main tensor of a module holds its weights;
# everything else is scales, zero points and bookkeeping that is read with it.
_MAIN = ("weight", "qweight", "weight_packed", "blocks")
_TAIL = re.compile(
    r"[._](weight|qweight|weight_packed|blocks|weight_scale_inv|weight_scale_2|weight_scale|scales?|qzeros|g_idx"
    r"|weight_shape|weight_zero_point|weight_global_scale|input_scale|input_global_scale|[kv]_scale|bias|SCB)$"
)

_ROLES: tuple[tuple[str, Role, Sharding], ...] = (
    (
        r"^(visual|vision|mm_projector|multi_modal|embed_vision|embed_audio|audio)",
        Role.OTHER,
        Sharding.TENSOR,
    ),
    (r"embed_tokens|^wte|^embeddings", Role.EMBEDDING, Sharding.TENSOR),
    (r"^lm_head|shared_head\.head", Role.HEAD, Sharding.TENSOR),
    (r"indexer", Role.INDEXER, Sharding.REPLICATED),
    (r"shared_expert_gate", Role.ROUTER, Sharding.REPLICATED),
    (r"shared_expert|shared_mlp", Role.SHARED, Sharding.TENSOR),
    (r"latent_proj", Role.SHARED, Sharding.REPLICATED),
    (r"experts", Role.ROUTED, Sharding.EXPERT),
    (r"(mlp|mixer|feed_forward)\.gate$|router|e_score_correction", Role.ROUTER, Sharding.REPLICATED),
    (r"norm", Role.NORM, Sharding.REPLICATED),
    (r"(self_attn|attention|attn)\.(q_a_proj|kv_a_proj)", Role.ATTENTION, Sharding.REPLICATED),
    (r"(self_attn|attention|mixer)\.[kv]_proj", Role.ATTENTION, Sharding.KV_HEADS),
    (
        r"linear_attn|mamba|mixer\.(in_proj|out_proj|conv1d|A_log|D|dt_bias)",
        Role.LINEAR_ATTENTION,
        Sharding.TENSOR,
    ),
    (r"self_attn|attention|attn|mixer\.[qo]_proj", Role.ATTENTION, Sharding.TENSOR),
    (r"mlp|feed_forward|mixer\.(up|down|gate)_proj", Role.DENSE, Sharding.TENSOR),
)


def with_headers(model: ModelBytes, headers: list[Header], scheme: Scheme) -> ModelBytes:
    """The model with the bytes of its real tensors instead of computed ones.

    Raises BadInput where the files hold nothing of a kind of weights that the config says is there.
    """
    parts = _parts(model, headers, scheme)
    held = {part.role for part in parts if not part.mtp}
    wanted = {part.role for part in model.parts if not part.mtp and part.role not in {Role.NORM, Role.OTHER}}
    if Role.EMBEDDING in held and Role.HEAD not in held:
        parts = tuple(replace(p, role=Role.HEAD) if p.role is Role.EMBEDDING else p for p in parts)
        held = held | {Role.HEAD}
    missing = wanted - held - {Role.EMBEDDING}
    if missing:
        raise BadInput(
            f"the safetensors headers hold no tensors of: {', '.join(sorted(missing))}, which config.json asks for",
            next="fetch all files of the checkpoint, or keep only config.json in the folder",
        )
    total = sum(part.bytes for part in parts)
    lines = tuple(line for line in model.assumptions if not line.startswith("bytes computed"))
    said = f"bytes of all {len(headers):,} tensors from the safetensors headers: {total / 1e9:.2f} GB"
    computed = f"config.json alone would say {model.weight_bytes / 1e9:.2f} GB"
    return replace(
        model,
        parts=parts,
        weight_bytes=total,
        mtp_parameters=sum(part.parameters for part in parts if part.mtp),
        source="safetensors headers",
        assumptions=(f"{said}; {computed}", *lines),
    )


class _Group(msgspec.Struct):
    """Tensors of one name but for layer and expert numbers, and of one type."""

    example: str
    dtype: str
    mtp: bool
    bytes: int = 0


def _parts(model: ModelBytes, headers: list[Header], scheme: Scheme) -> tuple[Part, ...]:
    sums: dict[tuple[Role, str, Sharding, int, bool], list[int]] = {}
    for groups in _modules(headers, model.layers).values():
        mains = [g for g in groups if g.example.endswith(_MAIN)] or [max(groups, key=lambda g: g.bytes)]
        formats = [_format(main, scheme) for main in mains]
        # Scales and zero points belong to the narrowest of the types that layers of this name have.
        narrow = min(range(len(mains)), key=lambda i: formats[i][1])
        rest = sum(group.bytes for group in groups) - sum(main.bytes for main in mains)
        for i, (main, (label, bits)) in enumerate(zip(mains, formats, strict=True)):
            role, sharding = role_of(_module(main.example), _ROLES)
            total = sums.setdefault((role, label, sharding, bits, main.mtp), [0, 0])
            total[0] += main.bytes * 8 // bits
            total[1] += main.bytes + (rest if i == narrow else 0)
    return tuple(Part(r, f, s, n, b, bits, mtp) for (r, f, s, bits, mtp), (n, b) in sums.items())


def _module(name: str) -> str:
    return canonical(_TAIL.sub("", name))


def _experts_together(headers: list[Header]) -> Iterable[Header]:
    """One entry for the same tensor of all experts of a layer: nearly all of a mixture's tensors."""
    found: dict[tuple[str, str, str], Header] = {}
    for header in headers:
        before, _, after = header.name.partition(".experts.")
        number, _, rest = after.partition(".")
        key = (before, rest, header.dtype) if number.isdigit() else (header.name, "", header.dtype)
        known = found.get(key)
        if known is None:
            found[key] = Header(header.name, header.dtype, header.bytes)
        else:
            known.bytes += header.bytes
    return found.values()


def _modules(headers: list[Header], layers: int) -> dict[tuple[str, bool], list[_Group]]:
    """Groups by module; a checkpoint has a hundred thousand tensors and a few dozen of these."""
    found: dict[tuple[str, str, bool], _Group] = {}
    for header in _experts_together(headers):
        fields = header.name.split(".")
        numbers = [field for field in fields if field.isdigit()]
        mtp = "mtp" in fields or (bool(numbers) and int(numbers[0]) >= layers and "layers" in fields)
        key = (".".join([field for field in fields if not field.isdigit()]), header.dtype, mtp)
        group = found.get(key)
        if group is None:
            group = found[key] = _Group(header.name, header.dtype, mtp)
        group.bytes += header.bytes
    modules: dict[tuple[str, bool], list[_Group]] = {}
    for (pattern, _, mtp), group in found.items():
        modules.setdefault((_module(pattern), mtp), []).append(group)
    return modules


_BITS = {"F64": 64, "F32": 32, "I64": 64, "BF16": 16, "F16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "I8": 8, "F4": 4}


def _format(main: _Group, scheme: Scheme) -> tuple[str, int]:
    """(label, bits of one weight) of a module. Packed types take their width from the quantisation config."""
    if main.dtype in _BITS:
        names = {"F8_E4M3": "FP8", "F8_E5M2": "FP8", "I8": "INT8", "F16": "FP16", "F32": "FP32"}
        return names.get(main.dtype, main.dtype), _BITS[main.dtype]
    form = scheme.format_of(_module(main.example))
    if main.dtype in {"U8", "I32", "U32"} and form.bits < 16:
        return form.name, round(form.bits)
    if main.dtype in {"U8", "I32", "U32", "BOOL", "I16", "U16"}:
        return main.dtype, 8 if main.dtype in {"U8", "BOOL"} else 32
    raise BadInput(f"safetensors: tensor `{main.example}` has the type {main.dtype!r}, which is not known")
