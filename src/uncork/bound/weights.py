"""The weight matrices of a model, named as its checkpoint names them, from the config alone.

Shapes follow the public modelling code of each family (transformers): grouped-query attention, multi-head
latent attention (DeepSeek-V3), the sparse-attention indexer (DeepSeek-V3.2), gated delta networks (Qwen3.5),
Mamba 2 and latent experts (NemotronH). The routed experts of a layer stand once, with a count.
"""

from collections.abc import Iterator

import msgspec

from uncork.bound.config import Config
from uncork.bound.layers import Layer, experts_of, layers_of
from uncork.model.bound import Role, Sharding

TENSOR, KV, SAME, EXPERT = Sharding.TENSOR, Sharding.KV_HEADS, Sharding.REPLICATED, Sharding.EXPERT


class Weight(msgspec.Struct, frozen=True):
    """`count` matrices of `rows` outputs by `columns` inputs; `linear` ones may be quantised."""

    name: str
    rows: int
    columns: int
    role: Role
    sharding: Sharding
    count: int = 1
    linear: bool = True
    mtp: bool = False


def weights_of(config: Config) -> Iterator[Weight]:
    """Every weight of the model. Raises BadInput naming a key that is missing."""
    hidden, vocab = config.positive("hidden_size", "n_embd"), config.positive("vocab_size")
    layers = layers_of(config)
    yield Weight("embed_tokens", vocab, hidden, Role.EMBEDDING, TENSOR, linear=False)
    for layer in layers:
        yield from _layer(config, layer, f"layers.{layer.index}")
    yield Weight("norm", 1, hidden, Role.NORM, SAME, linear=False)
    if not is_tied(config):
        yield Weight("lm_head", vocab, hidden, Role.HEAD, TENSOR)
    yield from _mtp(config, layers)


def is_tied(config: Config) -> bool:
    """Whether the embedding is also the output layer. Gemma's configs leave it out and mean yes."""
    return config.flag(
        "tie_word_embeddings", default=str(config.values.get("model_type", "")).startswith("gemma")
    )


def _layer(config: Config, layer: Layer, at: str) -> Iterator[Weight]:
    hidden = config.positive("hidden_size", "n_embd")
    if layer.attention in {"full", "window"}:
        yield from _grouped_query(config, layer, f"{at}.self_attn")
    elif layer.attention in {"latent", "sparse"}:
        yield from _latent(config, layer, f"{at}.self_attn")
    elif layer.attention == "linear":
        yield from _delta_network(config, f"{at}.linear_attn")
    elif layer.attention == "mamba":
        yield from _mamba(config, f"{at}.mixer")
    if layer.mlp == "dense":
        own = config.has("intermediate_size_mlp")  # Llama 4: dense layers beside experts of another width
        width = config.positive("intermediate_size_mlp" if own else "intermediate_size")
        yield from _mlp(config, f"{at}.mlp", width, Role.DENSE)
    elif layer.mlp == "moe":
        yield from _experts(config, f"{at}.mlp")
    blocks = (layer.attention != "none") + (layer.mlp != "none")
    norms = 4 if str(config.values.get("model_type", "")).startswith("gemma") else blocks
    yield Weight(f"{at}.layernorms", norms, hidden, Role.NORM, SAME, linear=False)


def heads_of(config: Config, attention: str) -> tuple[int, int, int]:
    """(query heads, KV heads, head size) of a grouped-query layer."""
    heads = config.positive("num_attention_heads", "n_head")
    kv_heads = config.positive("num_key_value_heads", default=heads)
    size = config.integer("head_dim", default=0) or config.positive("hidden_size", "n_embd") // heads
    if attention == "full" and config.has("global_head_dim"):
        # Gemma 4: the global layers have wider and fewer heads than the sliding ones.
        size = config.positive("global_head_dim")
        kv_heads = config.positive("num_global_key_value_heads", default=kv_heads)
    return heads, kv_heads, size


def _grouped_query(config: Config, layer: Layer, at: str) -> Iterator[Weight]:
    hidden = config.positive("hidden_size", "n_embd")
    heads, kv_heads, size = heads_of(config, layer.attention)
    queries, keys = heads * size, kv_heads * size
    gate = 2 if config.flag("attn_output_gate") else 1
    yield Weight(f"{at}.q_proj", queries * gate, hidden, Role.ATTENTION, TENSOR)
    yield Weight(f"{at}.k_proj", keys, hidden, Role.ATTENTION, KV)
    if not (layer.attention == "full" and config.flag("attention_k_eq_v")):
        yield Weight(f"{at}.v_proj", keys, hidden, Role.ATTENTION, KV)
    yield Weight(f"{at}.o_proj", hidden, queries, Role.ATTENTION, TENSOR)
    kind = str(config.values.get("model_type", ""))
    if config.flag("attention_bias") or kind.startswith("qwen2"):
        out = hidden if config.flag("attention_bias") else 0
        yield Weight(f"{at}.bias", 1, queries + 2 * keys + out, Role.NORM, SAME, linear=False)
    if kind == "gpt_oss":
        yield Weight(f"{at}.sinks", 1, heads, Role.NORM, SAME, linear=False)
    if config.values.get("qk_norm_type") == "per_layer":
        yield Weight(f"{at}.qk_norm", 1, queries + keys, Role.NORM, SAME, linear=False)
    elif kind.startswith(("qwen3", "gemma3", "gemma4")):
        yield Weight(f"{at}.qk_norm", 2, size, Role.NORM, SAME, linear=False)


def _latent(config: Config, layer: Layer, at: str) -> Iterator[Weight]:
    """MLA. The down-projections and the indexer are not sharded: SGLang and vLLM build them replicated."""
    hidden, heads = config.positive("hidden_size"), config.positive("num_attention_heads")
    nope, rope = config.positive("qk_nope_head_dim"), config.positive("qk_rope_head_dim")
    latent, value = config.positive("kv_lora_rank"), config.positive("v_head_dim")
    q_rank = config.integer("q_lora_rank", default=0)
    if q_rank:
        yield Weight(f"{at}.q_a_proj", q_rank, hidden, Role.ATTENTION, SAME)
        yield Weight(f"{at}.q_b_proj", heads * (nope + rope), q_rank, Role.ATTENTION, TENSOR)
    else:
        yield Weight(f"{at}.q_proj", heads * (nope + rope), hidden, Role.ATTENTION, TENSOR)
    yield Weight(f"{at}.kv_a_proj_with_mqa", latent + rope, hidden, Role.ATTENTION, SAME)
    yield Weight(f"{at}.kv_b_proj", heads * (nope + value), latent, Role.ATTENTION, TENSOR)
    yield Weight(f"{at}.o_proj", hidden, heads * value, Role.ATTENTION, TENSOR)
    yield Weight(f"{at}.latent_norms", 1, q_rank + latent, Role.NORM, SAME, linear=False)
    if layer.indexer:
        index_heads, index_size = config.positive("index_n_heads"), config.positive("index_head_dim")
        yield Weight(f"{at}.indexer.wq_b", index_heads * index_size, q_rank, Role.INDEXER, SAME)
        yield Weight(f"{at}.indexer.wk", index_size, hidden, Role.INDEXER, SAME)
        yield Weight(f"{at}.indexer.weights_proj", index_heads, hidden, Role.INDEXER, SAME, linear=False)
        yield Weight(f"{at}.indexer.k_norm", 2, index_size, Role.NORM, SAME, linear=False)


def _delta_network(config: Config, at: str) -> Iterator[Weight]:
    hidden = config.positive("hidden_size")
    keys = config.positive("linear_num_key_heads") * config.positive("linear_key_head_dim")
    value_heads = config.positive("linear_num_value_heads")
    values = value_heads * config.positive("linear_value_head_dim")
    role = Role.LINEAR_ATTENTION
    yield Weight(f"{at}.in_proj_qkv", 2 * keys + values, hidden, role, TENSOR)
    yield Weight(f"{at}.in_proj_z", values, hidden, role, TENSOR)
    yield Weight(f"{at}.in_proj_b", value_heads, hidden, role, TENSOR)
    yield Weight(f"{at}.in_proj_a", value_heads, hidden, role, TENSOR)
    yield Weight(f"{at}.out_proj", hidden, values, role, TENSOR)
    kernel = config.integer("linear_conv_kernel_dim", default=4)
    yield Weight(f"{at}.conv1d", 2 * keys + values, kernel, role, TENSOR, linear=False)
    small = 2 * value_heads + config.positive("linear_value_head_dim")
    yield Weight(f"{at}.decay", 1, small, Role.NORM, SAME, linear=False)


def mamba_sizes(config: Config) -> tuple[int, int, int, int]:
    """(heads, inner width, groups × state, state size) of a Mamba 2 block."""
    heads = config.positive("mamba_num_heads", "mamba_n_heads")
    inner = heads * config.positive("mamba_head_dim", "mamba_d_head")
    state = config.positive("ssm_state_size", "mamba_d_state")
    return heads, inner, config.positive("n_groups", "mamba_n_groups") * state, state


def _mamba(config: Config, at: str) -> Iterator[Weight]:
    hidden = config.positive("hidden_size")
    heads, inner, grouped, _ = mamba_sizes(config)
    role = Role.LINEAR_ATTENTION
    yield Weight(f"{at}.in_proj", 2 * inner + 2 * grouped + heads, hidden, role, TENSOR)
    yield Weight(f"{at}.out_proj", hidden, inner, role, TENSOR)
    kernel = config.integer("conv_kernel", "mamba_d_conv", default=4)
    yield Weight(f"{at}.conv1d", inner + 2 * grouped, kernel + 1, role, TENSOR, linear=False)
    yield Weight(f"{at}.decay", 1, 3 * heads + inner, Role.NORM, SAME, linear=False)


def _gated(config: Config) -> bool:
    act = str(config.values.get("mlp_hidden_act", config.values.get("hidden_act", "silu")))
    return act not in {"relu2", "relu", "gelu_new", "gelu"}


def _mlp(
    config: Config, at: str, width: int, role: Role, *, count: int = 1, inputs: int = 0
) -> Iterator[Weight]:
    hidden = inputs or config.positive("hidden_size", "n_embd")
    sharding = EXPERT if role is Role.ROUTED else TENSOR
    if _gated(config):
        yield Weight(f"{at}.gate_proj", width, hidden, role, sharding, count)
    yield Weight(f"{at}.up_proj", width, hidden, role, sharding, count)
    yield Weight(f"{at}.down_proj", hidden, width, role, sharding, count)


def _experts(config: Config, at: str) -> Iterator[Weight]:
    hidden, experts = config.positive("hidden_size"), experts_of(config)
    width = config.positive("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    latent = config.integer("moe_latent_size", default=0)
    kind = str(config.values.get("model_type", ""))
    yield from _mlp(config, f"{at}.experts.0", width, Role.ROUTED, count=experts, inputs=latent)
    if kind == "gpt_oss":
        # Expert biases stay in BF16; they are read with their expert.
        bias = 2 * width + hidden
        yield Weight(f"{at}.experts.0.bias", 1, bias, Role.ROUTED, EXPERT, experts, linear=False)
    if latent:
        yield Weight(f"{at}.fc1_latent_proj", latent, hidden, Role.SHARED, SAME)
        yield Weight(f"{at}.fc2_latent_proj", hidden, latent, Role.SHARED, SAME)
    yield Weight(f"{at}.router", experts, hidden, Role.ROUTER, SAME, linear=False)
    shared = shared_width(config, width)
    if shared:
        name = "shared_expert" if config.has("shared_expert_intermediate_size") else "shared_experts"
        yield from _mlp(config, f"{at}.{name}", shared, Role.SHARED)
        if name == "shared_expert":
            yield Weight(f"{at}.shared_expert_gate", 1, hidden, Role.ROUTER, SAME, linear=False)


def shared_width(config: Config, width: int) -> int:
    """The width of the shared expert (all of them together), 0 where there is none."""
    for key in (
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
    ):
        if config.has(key):
            return config.integer(key)
    if str(config.values.get("model_type", "")).startswith("llama4"):
        return width
    return config.integer("n_shared_experts", "num_shared_experts", default=0) * width


def _mtp(config: Config, layers: list[Layer]) -> Iterator[Weight]:
    """Multi-token-prediction layers: a whole layer behind a projection of [embedding, hidden] each."""
    # MiniMax names `num_mtp_modules` and publishes no weights for them, so they do not count.
    count = config.count("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0)
    hidden = config.positive("hidden_size", "n_embd")
    pattern = config.values.get("mtp_hybrid_override_pattern")
    kinds = layers[-1:]
    if pattern:
        kinds = layers_of(Config({**config.values, "hybrid_override_pattern": pattern}, config.where))
    for i in range(count):
        in_line = config.has("num_nextn_predict_layers")
        at = f"layers.{len(layers) + i}" if in_line else f"mtp.layers.{i}"
        yield Weight(f"{at}.eh_proj", hidden, 2 * hidden, Role.OTHER, TENSOR, mtp=True)
        if str(config.values.get("model_type", "")).startswith("deepseek"):
            # DeepSeek's checkpoints repeat the embedding and the output layer here: 685 B = 671 + 14.
            vocab = config.positive("vocab_size")
            yield Weight(f"{at}.embed_tokens", vocab, hidden, Role.EMBEDDING, TENSOR, linear=False, mtp=True)
            yield Weight(f"{at}.shared_head.head", vocab, hidden, Role.HEAD, TENSOR, mtp=True)
        for kind in kinds:
            block = msgspec.structs.replace(kind, indexer=kind.attention == "sparse")
            for weight in _layer(config, block, at):
                yield msgspec.structs.replace(weight, mtp=True)
