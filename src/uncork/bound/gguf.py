"""GGUF header → model bytes, exact: every tensor's shape and type stand in the header.

Format: the GGUF specification in ggml's repository (docs/gguf.md); block sizes: ggml's type traits.
"""

import mmap
import re
import struct
from pathlib import Path
from typing import Any

import msgspec

from uncork.bound.config import Config
from uncork.bound.layers import Layer
from uncork.bound.roles import role_of
from uncork.errors import BadInput
from uncork.model.bound import ModelBytes, Part, Role, Sharding

# ggml type: name, weights a block, bytes a block
TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST_KEPT = 4096  # arrays with more entries (vocabularies) are counted, not kept


class Tensor(msgspec.Struct, frozen=True):
    """One tensor of the header."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int

    def numbers(self) -> int:
        """How many numbers it holds."""
        total = 1
        for size in self.shape:
            total *= size
        return total

    def bytes(self) -> int:
        """How many bytes its data takes. Raises BadInput naming a type that is not known."""
        if self.type not in TYPES:
            raise BadInput(f"GGUF tensor `{self.name}` has the type {self.type}, which is not known")
        _, block, size = TYPES[self.type]
        return -(-self.numbers() // block) * size


class _Reader:
    def __init__(self, data: mmap.mmap, name: str) -> None:
        self.data, self.at, self.name = data, 0, name
        self.doing = "the header"

    def take(self, code: str) -> Any:
        try:
            (value,) = struct.unpack_from("<" + code, self.data, self.at)
        except struct.error:
            raise BadInput(
                f"{self.name} is cut short inside {self.doing}", next="fetch the file again"
            ) from None
        self.at += struct.calcsize("<" + code)
        return value

    def text(self) -> str:
        length = self.take("Q")
        if self.at + length > len(self.data):
            raise BadInput(f"{self.name} is cut short inside {self.doing}", next="fetch the file again")
        raw = self.data[self.at : self.at + length]
        self.at += length
        return raw.decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.take(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise BadInput(f"{self.name}: {self.doing} has the value type {kind}, which GGUF does not know")
        inner, count = self.take("I"), self.take("Q")
        if inner == _STRING:
            self._skip_texts(count)
            return count
        if inner not in _SCALARS:
            raise BadInput(f"{self.name}: {self.doing} is an array of type {inner}, which is not read")
        if count > _LONGEST_KEPT:
            self.at += count * struct.calcsize("<" + _SCALARS[inner])
            return count
        return [self.take(_SCALARS[inner]) for _ in range(count)]

    def _skip_texts(self, count: int) -> None:
        """A vocabulary is a hundred thousand strings; only their lengths are read."""
        unpack, data, at, end = struct.Struct("<Q").unpack_from, self.data, self.at, len(self.data) - 8
        for _ in range(count):
            if at > end:
                raise BadInput(f"{self.name} is cut short inside {self.doing}", next="fetch the file again")
            at += 8 + unpack(data, at)[0]
        self.at = at


def read_header(path: Path) -> tuple[dict[str, Any], list[Tensor]]:
    """(metadata, tensors) of a GGUF file. Raises BadInput naming what is cut short or unknown."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(_Reader(data, path.name), data)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path.name} cannot be read as GGUF: {error}") from None


def _read(reader: _Reader, data: mmap.mmap) -> tuple[dict[str, Any], list[Tensor]]:
    if data[:4] != b"GGUF":
        raise BadInput(f"{reader.name} is not a GGUF file: it starts with {bytes(data[:4])!r}")
    reader.at = 4
    version = reader.take("I")
    if version not in {2, 3}:
        raise BadInput(f"{reader.name}: GGUF version {version} is not read; 2 and 3 are")
    tensors, pairs = reader.take("Q"), reader.take("Q")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        reader.doing = "the metadata"
        key = reader.text()
        reader.doing = f"`{key}`"
        metadata[key] = reader.value(reader.take("I"))
    found = []
    for _ in range(tensors):
        reader.doing = "the tensor list"
        name = reader.text()
        reader.doing = f"the tensor `{name}`"
        shape = tuple(reader.take("Q") for _ in range(reader.take("I")))
        found.append(Tensor(name, shape, reader.take("I"), reader.take("Q")))
    return metadata, found


_ROLES: tuple[tuple[str, Role, Sharding], ...] = (
    (r"(^|\.)nextn\.", Role.OTHER, Sharding.TENSOR),
    (r"^token_embd\.weight", Role.EMBEDDING, Sharding.TENSOR),
    (r"^output\.weight", Role.HEAD, Sharding.TENSOR),
    (r"_norm\.|norm\.|\.bias$|rope_freqs|sinks", Role.NORM, Sharding.REPLICATED),
    (r"\.ffn_\w+_(exps|chexps)\.", Role.ROUTED, Sharding.EXPERT),
    (r"\.ffn_\w+_shexp\.", Role.SHARED, Sharding.TENSOR),
    (r"\.ffn_gate_inp", Role.ROUTER, Sharding.REPLICATED),
    (r"exp_probs_b", Role.ROUTER, Sharding.REPLICATED),
    (r"\.ffn_", Role.DENSE, Sharding.TENSOR),
    (r"\.indexer", Role.INDEXER, Sharding.REPLICATED),
    (r"\.attn_(q_a|kv_a)", Role.ATTENTION, Sharding.REPLICATED),
    (r"\.attn_[kv]\.", Role.ATTENTION, Sharding.KV_HEADS),
    (r"\.ssm_|\.attn_gate", Role.LINEAR_ATTENTION, Sharding.TENSOR),
    (r"\.attn_", Role.ATTENTION, Sharding.TENSOR),
)


def find_gguf(folder: Path) -> Path | None:
    """The GGUF model of a folder (the first file of a split one). Raises BadInput where there are several."""
    files = [file for file in sorted(folder.glob("*.gguf")) if not file.name.startswith("mmproj")]
    firsts = [file for file in files if not (found := _SPLIT.search(file.name)) or int(found[1]) == 1]
    if len(firsts) > 1:
        listed = ", ".join(file.name for file in firsts[:4])
        raise BadInput(f"{folder} holds several models: {listed}", next="give one of the files")
    return next(iter(firsts or files), None)


_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def _splits(path: Path) -> list[Path]:
    """The further files of a model that is split. Raises BadInput naming one that is missing."""
    found = _SPLIT.search(path.name)
    if found is None:
        return []
    stem, count = path.name[: found.start()], int(found[2])
    files = [path.with_name(f"{stem}-{i:05}-of-{found[2]}.gguf") for i in range(1, count + 1)]
    missing = [file.name for file in files if not file.exists()]
    if missing:
        raise BadInput(f"{missing[0]} is missing beside {path.name}", next="fetch all files of the model")
    return [file for file in files if file != path]


def gguf_model(path: Path) -> ModelBytes:
    """The bytes of a GGUF model. Raises BadInput naming the metadata key that is missing."""
    from uncork.bound.checkpoint import assemble

    metadata, tensors = read_header(path)
    for other in _splits(path):
        tensors += read_header(other)[1]
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str):
        raise BadInput(f"{path.name}: `general.architecture` is missing")
    config = _config(metadata, arch, tensors, path.name)
    layers = _layers(config, tensors)
    sums: dict[tuple[Role, str, Sharding, int], list[int]] = {}
    for tensor in tensors:
        role, sharding = role_of(tensor.name, _ROLES)
        size = tensor.bytes()  # also names an unknown type
        label, block, block_bytes = TYPES[tensor.type]
        total = sums.setdefault((role, label, sharding, max(1, block_bytes * 8 // block)), [0, 0])
        total[0] += tensor.numbers()
        total[1] += size
    parts = tuple(Part(r, f, s, n, b, bits) for (r, f, s, bits), (n, b) in sums.items())
    return assemble(
        name=str(metadata.get("general.name") or path.stem),
        architecture=arch,
        config=config,
        layers=layers,
        parts=parts,
        top_k=config.integer("num_experts_per_tok", default=0),
        kv_format="fp16",
        source="gguf header",
        assumptions=(f"bytes of every tensor from the header of {path.name}",),
    )


def _config(metadata: dict[str, Any], arch: str, tensors: list[Tensor], name: str) -> Config:
    """GGUF's keys under the names that config.json uses."""
    keys = {
        "num_hidden_layers": "block_count",
        "hidden_size": "embedding_length",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "head_dim": "attention.key_length",
        "vocab_size": "vocab_size",
        "max_position_embeddings": "context_length",
        "n_routed_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "kv_lora_rank": "attention.kv_lora_rank",
        "qk_rope_head_dim": "rope.dimension_count",
        "sliding_window": "attention.sliding_window",
        "ssm_state_size": "ssm.state_size",
        "ssm_inner_size": "ssm.inner_size",
        "conv_kernel": "ssm.conv_kernel",
    }
    values: dict[str, Any] = {}
    for ours, theirs in keys.items():
        value = metadata.get(f"{arch}.{theirs}")
        if isinstance(value, list):
            # One a layer: the smallest that is there, so that no layer's cache is taken too large.
            value = min((item for item in value if item), default=None)
        values[ours] = value
    for needed in ("block_count", "embedding_length", "attention.head_count"):
        if metadata.get(f"{arch}.{needed}") is None:
            raise BadInput(f"{name}: `{arch}.{needed}` is missing")
    tokens = metadata.get("tokenizer.ggml.tokens")
    values["vocab_size"] = values["vocab_size"] or (tokens if isinstance(tokens, int) else None)
    values["tie_word_embeddings"] = not any(tensor.name == "output.weight" for tensor in tensors)
    key_size = metadata.get(f"{arch}.attention.key_length_mla") or values["head_dim"]
    if values["kv_lora_rank"] and isinstance(key_size, int) and values["qk_rope_head_dim"]:
        values["qk_nope_head_dim"] = max(0, key_size - values["qk_rope_head_dim"])
        sizes = (f"{arch}.attention.value_length_mla", f"{arch}.attention.value_length")
        values["v_head_dim"] = next((metadata[name] for name in sizes if name in metadata), None)
    if values["sliding_window"]:
        pattern = metadata.get(f"{arch}.attention.sliding_window_pattern")
        known = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "gemma4": 6, "cohere2": 4}
        values["sliding_window_pattern"] = pattern if isinstance(pattern, int) else known.get(arch)
        values["window_flags"] = pattern if isinstance(pattern, list) else None
    return Config(values, f"{name} ({arch})")


def _layers(config: Config, tensors: list[Tensor]) -> list[Layer]:
    """The layers as their tensors show them."""
    held: dict[int, set[str]] = {}
    for tensor in tensors:
        found = re.match(r"blk\.(\d+)\.(\w+)", tensor.name)
        if found:
            held.setdefault(int(found[1]), set()).add(found[2])
    flags = config.values.get("window_flags") or []
    every = config.integer("sliding_window_pattern", default=0)
    layers = []
    for index, names in sorted(held.items()):
        if "nextn" in names:
            continue
        windowed = config.integer("sliding_window", default=0) > 0
        if flags:
            windowed = index < len(flags) and bool(flags[index])
        elif every:
            windowed = windowed and (index + 1) % every != 0
        attention = "window" if windowed else "full"
        if config.has("kv_lora_rank"):
            attention = "latent"
        if any(name.startswith("ssm_") for name in names):
            attention = "state"
        elif not any(name.startswith("attn_") for name in names - {"attn_norm"}):
            attention = "none"
        mlp = "moe" if any(name.endswith("_exps") for name in names) else "none"
        if mlp == "none" and any(name.startswith("ffn_down") for name in names):
            mlp = "dense"
        layers.append(Layer(index, attention, mlp))
    return layers
