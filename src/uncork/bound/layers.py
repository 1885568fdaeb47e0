"""Which layers a model has, from its config: the kind of attention and of feed-forward of each."""

import msgspec

from uncork.bound.config import Config
from uncork.errors import BadInput

ATTENTION_KINDS = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "sliding_attention": "window",
    "local_attention": "window",
    "chunked_attention": "window",
    "linear_attention": "linear",
    "mamba": "mamba",
    "deepseek_sparse_attention": "sparse",
}


# Families whose layers are not described by the keys read here: a number for them would be made up.
NOT_DESCRIBED = (
    *("jamba", "bamba", "zamba", "zamba2", "falcon_h1", "falcon_mamba", "mamba", "mamba2", "rwkv", "rwkv7"),
    *(
        "granitemoehybrid",
        "minimax_text_01",
        "minimax_m1",
        "minimax",
        "lfm2",
        "lfm2_moe",
        "kimi_linear",
        "dbrx",
    ),
    *("gemma3n", "gemma3n_text", "deepseek_v4", "recurrent_gemma", "mllama", "t5", "whisper", "bloom", "mpt"),
)
# One full layer in so many, where a config gives the window and leaves the pattern to the code.
FULL_EVERY = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2}
BLOCKS = {
    "mamba": ("mamba", "none"),
    "attention": ("full", "none"),
    "moe": ("none", "moe"),
    "mlp": ("none", "dense"),
}


class Layer(msgspec.Struct, frozen=True):
    """One layer: attention full, window, latent, sparse, linear, mamba or none; feed-forward dense, moe or none."""

    index: int
    attention: str
    mlp: str
    indexer: bool = False


def experts_of(config: Config) -> int:
    """The number of routed experts a layer, 0 for a dense model."""
    for key in ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"):
        if config.has(key):
            return config.integer(key)
    return 0


def layers_of(config: Config) -> list[Layer]:
    """Every layer in order, without the MTP ones. Raises BadInput naming a key that is missing or odd."""
    kind = config.values.get("model_type")
    if kind in NOT_DESCRIBED:
        raise BadInput(f"{config.where}: `model_type` is {kind!r}, whose layers are not known here")
    if config.has("hybrid_override_pattern"):
        return _from_pattern(config)
    blocks = config.words("layers_block_type")
    if blocks is not None:
        strange = sorted(set(blocks) - set(BLOCKS))
        if strange:
            raise BadInput(
                f"{config.where}: `layers_block_type` names {strange[0]!r}; known are {', '.join(BLOCKS)}"
            )
        return [Layer(i, *BLOCKS[block]) for i, block in enumerate(blocks)]
    count = config.count("num_hidden_layers", "n_layer")
    kinds = _attention_kinds(config, count)
    indexers = config.words("indexer_types") or ["full"] * count
    if len(indexers) != count:
        raise BadInput(f"{config.where}: `indexer_types` has {len(indexers)} entries for {count} layers")
    return [
        Layer(i, kinds[i], _mlp_kind(config, i), kinds[i] == "sparse" and indexers[i] != "shared")
        for i in range(count)
    ]


def _from_pattern(config: Config) -> list[Layer]:
    """NemotronH: each block is one thing; M Mamba, * attention, E experts, - dense."""
    pattern = str(config.values["hybrid_override_pattern"])
    table = {"M": ("mamba", "none"), "*": ("full", "none"), "E": ("none", "moe"), "-": ("none", "dense")}
    strange = sorted(set(pattern) - set(table))
    if strange:
        raise BadInput(f"{config.where}: `hybrid_override_pattern` holds {strange[0]!r}; known are M * E -")
    return [Layer(i, *table[letter]) for i, letter in enumerate(pattern)]


def _attention_kinds(config: Config, count: int) -> list[str]:
    if config.has("kv_lora_rank"):
        return ["sparse" if config.has("index_topk") else "latent"] * count
    named = config.words("layer_types")
    if named is not None:
        strange = sorted(set(named) - set(ATTENTION_KINDS))
        if strange:
            known = ", ".join(ATTENTION_KINDS)
            raise BadInput(f"{config.where}: `layer_types` names {strange[0]!r}; known are {known}")
        if len(named) != count:
            raise BadInput(f"{config.where}: `layer_types` has {len(named)} entries for {count} layers")
        return [ATTENTION_KINDS[name] for name in named]
    if config.has("full_attention_interval"):
        every = config.positive("full_attention_interval")
        return ["full" if (i + 1) % every == 0 else "linear" for i in range(count)]
    window = config.integer("sliding_window", default=0)
    if not window or not config.flag("use_sliding_window", default=True):
        return ["full"] * count
    usual = FULL_EVERY.get(str(config.values.get("model_type")), 0)
    every = config.integer("sliding_window_pattern", default=usual)
    if every:
        return ["full" if (i + 1) % every == 0 else "window" for i in range(count)]
    first_windowed = config.integer("max_window_layers", default=0)
    return ["full" if i < first_windowed else "window" for i in range(count)]


def _mlp_kind(config: Config, index: int) -> str:
    if not experts_of(config):
        return "dense"
    named = config.words("mlp_layer_types")
    if named is not None and index < len(named):
        return "dense" if named[index] == "dense" else "moe"
    if index < config.integer("first_k_dense_replace", default=0):
        return "dense"
    only = config.values.get("mlp_only_layers") or []
    if not isinstance(only, list):
        raise BadInput(f"{config.where}: `mlp_only_layers` is not a list")
    if index in only:
        return "dense"
    for key in ("decoder_sparse_step", "interleave_moe_layer_step"):
        step = config.integer(key, default=1)
        if step > 1 and (index + 1) % step:
            return "dense"
    frequency = config.values.get("moe_layer_freq", 1)
    if isinstance(frequency, list):
        return "moe" if index >= len(frequency) or frequency[index] else "dense"
    return "dense" if index % config.positive("moe_layer_freq", default=1) else "moe"
