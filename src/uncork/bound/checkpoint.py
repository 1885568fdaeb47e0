"""A model folder or GGUF file → what its weights and its cache take, exactly where headers are there."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from uncork.bound.caches import caches_of
from uncork.bound.config import Config, read_json, text_config
from uncork.bound.formats import BF16, FP32, Format, matrix_bytes
from uncork.bound.layers import Layer, experts_of, layers_of
from uncork.bound.quantisation import Scheme, read_scheme
from uncork.bound.weights import Weight, is_tied, weights_of
from uncork.errors import BadInput
from uncork.model.bound import ModelBytes, Part, Role, Sharding


def model_bytes(folder: Path) -> ModelBytes:
    """The bytes of the model in `folder` (or in a GGUF file). Raises BadInput naming the key that is wrong."""
    if not folder.exists():
        raise BadInput(f"{folder} does not exist", next="give a folder with a config.json, or a .gguf file")
    if folder.suffix == ".gguf" or not (folder / "config.json").exists():
        from uncork.bound.gguf import find_gguf, gguf_model

        file = folder if folder.is_file() else find_gguf(folder)
        if file is not None:
            return gguf_model(file)
    config = read_json(folder / "config.json")
    quant_path = folder / "hf_quant_config.json"
    quant = read_json(quant_path) if quant_path.exists() else None
    model = from_config(config, quant, name=folder.name)
    if next(folder.glob("*.safetensors"), None) is None:
        return model
    from uncork.bound.safetensors import headers_in, with_headers

    return with_headers(model, headers_in(folder), read_scheme(config, quant))


def from_config(
    config: dict[str, Any],
    quant: dict[str, Any] | None = None,
    *,
    name: str = "",
    scheme: Scheme | None = None,
) -> ModelBytes:
    """The same from the two JSON documents alone, or in a scheme that no document describes.

    Raises BadInput naming the key that is wrong.
    """
    inner = text_config(config)
    scheme = scheme or read_scheme(config, quant)
    layers = layers_of(inner)
    weights = list(weights_of(inner))
    parts = parts_of((weight, format_of(weight, scheme)) for weight in weights)
    top_k = inner.positive("num_experts_per_tok", "experts_per_token", "moe_topk") if experts_of(inner) else 0
    architectures = inner.words("architectures") or ["unknown architecture"]
    return assemble(
        name=name or str(config.get("_name_or_path") or architectures[0]),
        architecture=architectures[0],
        config=inner,
        layers=layers,
        parts=parts,
        top_k=top_k,
        kv_format=scheme.kv_format,
        source="config.json",
        assumptions=_assumed(config, scheme, quant is not None, weights),
    )


# Families whose totals were checked against published ones; others are read by the same keys.
CHECKED = (
    *(
        "llama",
        "qwen3",
        "qwen3_moe",
        "qwen3_5_moe",
        "qwen3_5",
        "deepseek_v3",
        "deepseek_v32",
        "kimi_k2",
        "kimi_k25",
    ),
    *("glm_moe_dsa", "gpt_oss", "minimax_m2", "mixtral", "nemotron_h", "gemma4"),
)


def _assumed(
    config: dict[str, Any], scheme: Scheme, quant_file: bool, weights: Iterable[Weight]
) -> tuple[str, ...]:
    where = "hf_quant_config.json" if quant_file else "config.json"
    lines = [
        f"bytes computed from config.json; weights {scheme.name} by {where}; no safetensors headers were there"
    ]
    kind = config.get("model_type")
    if kind not in CHECKED:
        lines.append(
            f"`model_type` {kind!r} was not checked against a published size; its keys are read as a Llama's"
        )
    if config.get("vision_config") or config.get("audio_config"):
        lines.append("what sees or hears is not counted: decoding does not read it")
    if any(weight.mtp for weight in weights):
        lines.append("MTP layers are counted on disk and not read, unless speculation is asked for")
    return tuple(lines)


def format_of(weight: Weight, scheme: Scheme) -> Format:
    """The number format of one weight: norms, routers, embeddings and convolutions are never quantised."""
    if not weight.linear:
        return FP32 if weight.name.endswith(".decay") else BF16
    if weight.role is Role.HEAD and not scheme.quantises_head:
        return BF16
    if weight.name.endswith(".eh_proj"):
        return BF16
    return scheme.format_of(weight.name)


def parts_of(weights: Iterable[tuple[Weight, Format]]) -> tuple[Part, ...]:
    """Weights gathered by role, format, sharding and whether plain decoding reads them."""
    sums: dict[tuple[Role, str, Sharding, int, bool], list[int]] = {}
    for weight, form in weights:
        key = (weight.role, form.name, weight.sharding, round(form.bits), weight.mtp)
        total = sums.setdefault(key, [0, 0])
        total[0] += weight.count * weight.rows * weight.columns
        total[1] += weight.count * matrix_bytes(form, weight.rows, weight.columns)
    return tuple(
        Part(role, form, sharding, parameters, size, bits, mtp)
        for (role, form, sharding, bits, mtp), (parameters, size) in sums.items()
    )


def assemble(
    *,
    name: str,
    architecture: str,
    config: Config,
    layers: list[Layer],
    parts: tuple[Part, ...],
    top_k: int,
    kv_format: str,
    source: str,
    assumptions: tuple[str, ...],
) -> ModelBytes:
    """A ModelBytes with its totals. An embedding that is also the output layer counts once, and is read."""
    experts = experts_of(config)
    if experts and top_k > experts:
        raise BadInput(
            f"{config.where}: `num_experts_per_tok` is {top_k}, more than the {experts} experts there are"
        )
    if is_tied(config):
        parts = tuple(
            Part(Role.HEAD, p.format, p.sharding, p.parameters, p.bytes, p.bits, p.mtp)
            if p.role is Role.EMBEDDING
            else p
            for p in parts
        )
    plain = [part for part in parts if not part.mtp and part.role is not Role.OTHER]
    active = sum(
        part.parameters * top_k // experts if part.role is Role.ROUTED else part.parameters
        for part in plain
        if part.role is not Role.EMBEDDING
    )
    blocks = sum((layer.attention != "none") + (layer.mlp != "none") for layer in layers)
    return ModelBytes(
        name=name,
        architecture=architecture,
        family=_family(layers),
        layers=len(layers),
        hidden=config.positive("hidden_size", "n_embd"),
        vocab=config.positive("vocab_size"),
        kv_heads=config.integer("num_key_value_heads", "num_attention_heads", "n_head"),
        experts=experts,
        experts_per_token=top_k,
        moe_layers=sum(layer.mlp == "moe" for layer in layers),
        all_reduces=blocks,
        parts=parts,
        caches=caches_of(config, layers),
        parameters=sum(part.parameters for part in plain),
        active_parameters=active,
        mtp_parameters=sum(part.parameters for part in parts if part.mtp),
        weight_bytes=sum(part.bytes for part in parts),
        kv_format=kv_format,
        max_context=config.integer("max_position_embeddings", default=0),
        source=source,
        assumptions=assumptions,
    )


def _family(layers: list[Layer]) -> str:
    kinds = {layer.attention for layer in layers}
    if kinds & {"linear", "mamba", "state"}:
        return "hybrid"
    experts = any(layer.mlp == "moe" for layer in layers)
    if kinds & {"latent", "sparse"}:
        return "mla-moe"
    return "moe" if experts else "dense"
