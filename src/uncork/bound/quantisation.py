"""Which number format each weight of a checkpoint is in, from its quantisation config and exclude list.

Names are compared without their outer prefixes (`model.`, `language_model.`), since a checkpoint of the same
language model carries different ones when a vision tower stands beside it.
"""

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from typing import Any

import msgspec

from uncork.bound import formats
from uncork.bound.formats import BF16, Format
from uncork.errors import BadInput

_OUTER = re.compile(r"^(?:model\.|language_model\.|backbone\.)+")
Lookup = Callable[[str], Format]


class Scheme(msgspec.Struct, frozen=True):
    """`format_of` answers for a linear layer's canonical name; `kv_format` is what the checkpoint asks for."""

    name: str
    format_of: Lookup
    kv_format: str
    quantises_head: bool = False


def canonical(name: str) -> str:
    """A weight's name without outer prefixes, with one name for the feed-forward block."""
    return _OUTER.sub("", name).replace("block_sparse_moe", "mlp").replace("mixer.experts", "mlp.experts")


class Names:
    """A set of name patterns, quick to ask: exact names, prefixes (`a.b*`), globs, and `re:` expressions."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.exact: set[str] = set()
        self.prefixes: set[str] = set()
        globs: list[str] = []
        for pattern in patterns:
            if pattern.startswith("re:"):
                globs.append(f"(?:(?:model\\.)?(?:{pattern[3:]}))")
                continue
            plain = canonical(pattern)
            if "*" not in plain:
                self.exact.add(plain)
            elif "*" not in plain[:-1]:
                self.prefixes.add(plain[:-1])
            else:
                globs.append(translate(plain).removesuffix(r"\Z").removesuffix(r"\z") + r"(?:\..*)?\Z")
        self.lengths = sorted({len(prefix) for prefix in self.prefixes})
        try:
            self.globs = re.compile("|".join(globs)) if globs else None
        except re.error as error:
            raise BadInput(
                f"quantization_config: a pattern of the exclude list cannot be used: {error}"
            ) from None

    def match(self, name: str) -> bool:
        """Whether the canonical name, or a module it lies in, is in the set."""
        parts = name.split(".")
        if (
            any(".".join(parts[:n]) in self.exact for n in range(1, len(parts) + 1))
            or parts[-1] in self.exact
        ):
            return True
        if any(name[:length] in self.prefixes for length in self.lengths):
            return True
        return bool(self.globs and (self.globs.match(name) or self.globs.match("model." + name)))


def read_scheme(config: dict[str, Any], quant_file: dict[str, Any] | None) -> Scheme:
    """The scheme of a checkpoint, from `hf_quant_config.json` (first) or config.json's `quantization_config`.

    Raises BadInput naming the key for a method or width that is not known here.
    """
    if quant_file is not None:
        section = quant_file.get("quantization")
        if not isinstance(section, dict):
            raise BadInput("hf_quant_config.json: `quantization` is missing")
        return _read(_modelopt, section, "hf_quant_config.json")
    section = config.get("quantization_config")
    for key in ("text_config", "llm_config"):
        if section is None and isinstance(config.get(key), dict):
            section = config[key].get("quantization_config")
    if section is None:
        return Scheme(_plain_dtype(config).name, lambda _: _plain_dtype(config), "bf16")
    if not isinstance(section, dict):
        raise BadInput("config.json: `quantization_config` is not an object")
    method = section.get("quant_method")
    reader = _METHODS.get(str(method))
    if reader is None:
        known = ", ".join(sorted(_METHODS))
        raise BadInput(f"config.json: `quantization_config.quant_method` is {method!r}; known are {known}")
    return _read(reader, section, "config.json quantization_config")


def _read(reader: Callable[[dict[str, Any], str], Scheme], section: dict[str, Any], where: str) -> Scheme:
    try:
        return reader(section, where)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # A key of a kind that its reader does not expect (a number where a list belongs).
        raise BadInput(f"{where}: cannot be read: {error}") from None


def _plain_dtype(config: dict[str, Any]) -> Format:
    inner = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
    dtype = config.get("dtype") or config.get("torch_dtype") or (inner or {}).get("dtype") or "bfloat16"
    known = {"bfloat16": BF16, "float16": formats.FP16, "float32": formats.FP32}
    if not isinstance(dtype, str) or dtype not in known:
        raise BadInput(f"config.json: `torch_dtype` is {dtype!r}; known are {', '.join(known)}")
    return known[dtype]


def _excluding(form: Format, patterns: Iterable[str]) -> Lookup:
    names = Names(patterns)
    return lambda name: BF16 if names.match(name) else form


def _kv_of(section: dict[str, Any]) -> str:
    algo = section.get("kv_cache_quant_algo")
    scheme = section.get("kv_cache_scheme")
    if algo in {"FP8", "NVFP4"}:
        return str(algo).lower()
    return "fp8" if isinstance(scheme, dict) and scheme.get("num_bits") == 8 else "bf16"


def _algorithm(algo: str, section: dict[str, Any], where: str) -> Format:
    group = int(section.get("group_size") or 0)
    known: dict[str, Callable[[], Format]] = {
        "NVFP4": lambda: formats.NVFP4,
        "NVFP4_AWQ": lambda: formats.NVFP4,
        "W4A16_NVFP4": lambda: formats.NVFP4,
        "MXFP4": lambda: formats.MXFP4,
        "FP8": lambda: formats.FP8,
        "FP8_PER_CHANNEL_PER_TOKEN": lambda: formats.FP8_ROW,
        "FP8_PB_WO": lambda: formats.fp8_block(128, 128),
        "W4A16_AWQ": lambda: formats.grouped_int(4, group or 128, zeros=False),
        "W4A8_AWQ": lambda: formats.grouped_int(4, group or 128, zeros=False),
        "INT8_SQ": lambda: formats.grouped_int(8, 0, zeros=False),
        "W8A16": lambda: formats.grouped_int(8, group, zeros=False),
    }
    if algo not in known:
        raise BadInput(f"{where}: `quant_algo` is {algo!r}; known are {', '.join(known)}, MIXED_PRECISION")
    return known[algo]()


def _modelopt(section: dict[str, Any], where: str) -> Scheme:
    algo = section.get("quant_algo")
    if algo is None:
        return Scheme("BF16", lambda _: BF16, _kv_of(section))
    if algo == "MIXED_PRECISION":
        layers = section.get("quantized_layers")
        if not isinstance(layers, dict):
            raise BadInput(f"{where}: `quantized_layers` is missing though `quant_algo` is MIXED_PRECISION")
        table = {canonical(n): _algorithm(str(v.get("quant_algo")), v, where) for n, v in layers.items()}
        return Scheme("MIXED", lambda name: table.get(name, BF16), _kv_of(section), "lm_head" in table)
    form = _algorithm(str(algo), section, where)
    excluded = section.get("exclude_modules") or section.get("ignore") or []
    return Scheme(form.name, _excluding(form, excluded), _kv_of(section))


def _fp8(section: dict[str, Any], where: str) -> Scheme:
    block = section.get("weight_block_size")
    form = formats.fp8_block(*block) if block else formats.FP8
    excluded = section.get("modules_to_not_convert") or section.get("ignored_layers") or []
    return Scheme(form.name, _excluding(form, excluded), "bf16")


def _mxfp4(section: dict[str, Any], where: str) -> Scheme:
    excluded = section.get("modules_to_not_convert") or []
    return Scheme("MXFP4", _excluding(formats.MXFP4, excluded), "bf16")


def _integer(section: dict[str, Any], where: str) -> Scheme:
    bits = section.get("bits", section.get("w_bit", 4))
    group = section.get("group_size", section.get("q_group_size", 128))
    if not isinstance(bits, int) or not isinstance(group, int):
        raise BadInput(f"{where}: `bits` and `group_size` must be whole numbers")
    gptq = section.get("quant_method") == "gptq"
    # GPTQ files keep a zero-point tensor also when symmetric; both layouts store packed zeros.
    form = formats.grouped_int(bits, group, zeros=True, order=gptq)
    return Scheme(form.name, _excluding(form, section.get("modules_to_not_convert") or []), "bf16")


def _bitsandbytes(section: dict[str, Any], where: str) -> Scheme:
    form = formats.NF4 if section.get("load_in_4bit") else formats.grouped_int(8, 0, zeros=False)
    return Scheme(form.name, _excluding(form, section.get("llm_int8_skip_modules") or []), "bf16")


def _group_format(weights: dict[str, Any], where: str) -> Format:
    bits, kind = weights.get("num_bits"), weights.get("type")
    group, strategy = weights.get("group_size") or 0, weights.get("strategy")
    if kind == "float" and bits == 4:
        return formats.MXFP4 if group == 32 else formats.NVFP4
    if kind == "float" and bits == 8:
        block = weights.get("block_structure")
        if strategy == "block" and block:
            return formats.fp8_block(*block)
        return formats.FP8_ROW if strategy == "channel" else formats.FP8
    if kind == "int" and isinstance(bits, int):
        return formats.grouped_int(bits, group, zeros=not weights.get("symmetric", True))
    raise BadInput(
        f"{where}: `weights` of a group has num_bits {bits!r} and type {kind!r}, which is not known"
    )


def _compressed_tensors(section: dict[str, Any], where: str) -> Scheme:
    groups = section.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise BadInput(f"{where}: `config_groups` is missing")
    ignored = Names(section.get("ignore") or [])
    everywhere: Format | None = None
    targeted: list[tuple[Names, Format]] = []
    for key, group in groups.items():
        weights = group.get("weights")
        if weights is None:
            continue
        if not isinstance(weights, dict):
            raise BadInput(f"{where}: `config_groups.{key}.weights` is not an object")
        form = _group_format(weights, f"{where} config_groups.{key}")
        targets = group.get("targets") or ["Linear"]
        if "Linear" in targets:
            everywhere = form
        targeted.append((Names(t for t in targets if t != "Linear"), form))

    def format_of(name: str) -> Format:
        if ignored.match(name):
            return BF16
        return next((form for names, form in targeted if names.match(name)), everywhere or BF16)

    label = (everywhere or targeted[0][1]).name if targeted else "BF16"
    head = any(names.match("lm_head") for names, _ in targeted)
    return Scheme(label, format_of, _kv_of(section), head)


def _modelopt_in_config(section: dict[str, Any], where: str) -> Scheme:
    return _modelopt(section, where) if section.get("quant_algo") else _compressed_tensors(section, where)


_METHODS: dict[str, Callable[[dict[str, Any], str], Scheme]] = {
    "fp8": _fp8,
    "fbgemm_fp8": lambda s, w: Scheme(
        "FP8 per row", _excluding(formats.FP8_ROW, s.get("modules_to_not_convert") or []), "bf16"
    ),
    "mxfp4": _mxfp4,
    "awq": _integer,
    "gptq": _integer,
    "auto-round": _integer,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt_in_config,
    "modelopt_fp4": _modelopt_in_config,
}
