"""What a model keeps per sequence: KV cache, latent cache, index keys, recurrent state."""

import math
from collections import Counter
from collections.abc import Iterable

from uncork.bound.config import Config
from uncork.bound.layers import Layer
from uncork.bound.weights import heads_of, mamba_sizes
from uncork.errors import BadInput
from uncork.model.bound import Cache, ModelBytes, Parallel

KV_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "nvfp4": 0.5625,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
    "f32": 4.0,
}


def caches_of(config: Config, layers: Iterable[Layer]) -> tuple[Cache, ...]:
    """One entry a kind of layer. Raises BadInput naming a missing key."""
    kinds = Counter((layer.attention, layer.indexer) for layer in layers if layer.attention != "none")
    return tuple(_cache(config, kind, indexer, count) for (kind, indexer), count in kinds.items())


def _cache(config: Config, kind: str, indexer: bool, count: int) -> Cache:
    if kind in {"latent", "sparse"}:
        return _latent(config, kind, indexer, count)
    if kind == "linear":
        heads = config.positive("linear_num_value_heads")
        key, value = config.positive("linear_key_head_dim"), config.positive("linear_value_head_dim")
        conv = 2 * config.positive("linear_num_key_heads") * key + heads * value
        kernel = config.integer("linear_conv_kernel_dim", default=4)
        # The recurrent state is kept in float32 (mamba_ssm_dtype), the convolution's window in BF16.
        return Cache("state", count, state_bytes=heads * key * value * 4 + conv * (kernel - 1) * 2)
    if kind == "mamba":
        heads, inner, grouped, state = mamba_sizes(config)
        kernel = config.integer("conv_kernel", "mamba_d_conv", default=4)
        size = 4 if config.values.get("mamba_ssm_cache_dtype", "float32") == "float32" else 2
        return Cache(
            "state", count, state_bytes=inner * state * size + (inner + 2 * grouped) * (kernel - 1) * 2
        )
    if kind == "state":  # GGUF gives the inner width and state size of whatever recurrence it is
        inner, state = config.positive("ssm_inner_size"), config.positive("ssm_state_size")
        return Cache("state", count, state_bytes=inner * state * 4)
    heads, kv_heads, size = heads_of(config, kind)
    window = config.positive("sliding_window", "attention_chunk_size") if kind == "window" else 0
    return Cache(
        kind,
        count,
        elements=2 * kv_heads * size,
        kv_heads=kv_heads,
        window=window,
        flops_per_position=4 * heads * size,
        prompt_flops_per_position=4 * heads * size,
    )


def _latent(config: Config, kind: str, indexer: bool, count: int) -> Cache:
    latent, rope = config.positive("kv_lora_rank"), config.positive("qk_rope_head_dim")
    heads = config.positive("num_attention_heads")
    index_heads = config.integer("index_n_heads", default=0) if indexer else 0
    index_size = config.integer("index_head_dim", default=0) if indexer else 0
    return Cache(
        kind,
        count,
        elements=latent + rope,
        # An FP8 index key and its float32 scale (DeepSeek-V3.2's indexer cache: 128 + 4 bytes).
        fixed_bytes=index_size + 4 if index_size else 0,
        top_k=config.positive("index_topk") if kind == "sparse" else 0,
        flops_per_position=2 * heads * (2 * latent + rope),
        # Within a prompt engines expand the latents once and then work on plain heads, which is less.
        prompt_flops_per_position=2 * heads * min(2 * latent + rope, _expanded(config)),
        index_flops_per_position=2 * index_heads * index_size,
        # FlashMLA's FP8 layout for sparse attention: FP8 latent, a float32 scale per 128, BF16 rotary part.
        packed_fp8_bytes=latent + latent // 128 * 4 + 2 * rope if kind == "sparse" else 0,
    )


def _expanded(config: Config) -> int:
    # GGUF headers may leave these out; 0 keeps the bound safe.
    return sum(
        config.integer(key, default=0) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    )


def kv_format_of(model: ModelBytes, asked: str = "auto") -> str:
    """The KV number format: what was asked for, else the checkpoint's. Raises BadInput on an unknown one."""
    name = model.kv_format if asked == "auto" else asked.lower()
    if name not in KV_BYTES:
        raise BadInput(f"--kv-dtype: {asked!r} is not known; known are auto, {', '.join(KV_BYTES)}")
    return name


def bytes_per_token(model: ModelBytes, kv_format: str) -> int:
    """What one more token of context adds over all layers, unsharded; state and full windows add nothing."""
    total = 0.0
    for cache in model.caches:
        packed = cache.packed_fp8_bytes if kv_format == "fp8" else 0
        total += cache.layers * ((packed or cache.elements * KV_BYTES[kv_format]) + cache.fixed_bytes)
    return math.ceil(total)


def _heads_share(cache: Cache, parallel: Parallel) -> float:
    """The share of a layer's cache that one rank holds: heads split as far as they go, the rest by DCP."""
    split = min(parallel.tp, cache.kv_heads) if cache.kv_heads else 1
    return 1 / (split * parallel.dcp)


def held_bytes(model: ModelBytes, kv_format: str, context: int, parallel: Parallel) -> float:
    """What one sequence of `context` tokens occupies on one rank (of its pipeline stage's share)."""
    total = 0.0
    for cache in model.caches:
        positions = min(context, cache.window) if cache.window else context
        packed = cache.packed_fp8_bytes if kv_format == "fp8" else 0
        per_token = (packed or cache.elements * KV_BYTES[kv_format]) + cache.fixed_bytes
        total += cache.layers * positions * per_token * _heads_share(cache, parallel)
        total += cache.layers * cache.state_bytes / parallel.tp
    return total / parallel.pp


def read_bytes(model: ModelBytes, kv_format: str, context: int, parallel: Parallel) -> float:
    """The least that one rank reads (and for state, writes back) to decode one token of one sequence."""
    total = 0.0
    for cache in model.caches:
        positions = min(context, cache.window) if cache.window else context
        attended = min(positions, cache.top_k) if cache.top_k else positions
        read = attended * cache.elements * KV_BYTES[kv_format] + positions * cache.fixed_bytes
        total += cache.layers * (read * _heads_share(cache, parallel) + 2 * cache.state_bytes / parallel.tp)
    return total


def attention_flops(model: ModelBytes, context: float) -> float:
    """FLOPs of attention for one new token behind `context` positions, over all layers."""
    total = 0.0
    for cache in model.caches:
        positions = min(context, cache.window) if cache.window else context
        attended = min(positions, cache.top_k) if cache.top_k else positions
        total += cache.layers * (
            attended * cache.flops_per_position + positions * cache.index_flops_per_position
        )
    return total


def prompt_flops(model: ModelBytes, length: int) -> float:
    """FLOPs of attention of a whole prompt, causal: the token at i sees i positions, or the limit of its layer."""
    total = 0.0
    for cache in model.caches:
        limit = cache.window or cache.top_k or length
        seen = length / 2 if length <= limit else limit - limit**2 / (2 * length)
        total += cache.layers * (
            seen * cache.prompt_flops_per_position + length / 2 * cache.index_flops_per_position
        )
    return length * total
