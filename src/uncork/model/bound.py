"""The theoretical maximum: what a model reads per token, what a device can do, and the tiers between them."""

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """What weights are for; decides when they are read."""

    ATTENTION = "attention"
    LINEAR_ATTENTION = "linear attention"
    INDEXER = "indexer"
    ROUTER = "router"
    ROUTED = "routed experts"
    SHARED = "shared experts"
    DENSE = "dense mlp"
    HEAD = "lm_head"
    EMBEDDING = "embedding"
    NORM = "norms"
    OTHER = "not read in decode"


class Sharding(StrEnum):
    """How engines lay a weight out over a tensor-parallel group."""

    TENSOR = "tensor"  # 1/tp on every rank
    KV_HEADS = "kv heads"  # 1/min(tp, kv heads): heads are repeated when there are fewer heads than ranks
    REPLICATED = "replicated"
    EXPERT = "expert"


class Part(msgspec.Struct, frozen=True):
    """Weights of one role, number format and sharding, over all the layers that have them."""

    role: Role
    format: str
    sharding: Sharding
    parameters: int
    bytes: int
    bits: int  # of one weight, without scales: decides which matrix rate may be used
    mtp: bool = False  # of the multi-token-prediction layers, which plain decoding does not read


class Cache(msgspec.Struct, frozen=True):
    """What one kind of layer keeps per sequence.

    `elements` counts numbers per token and layer in the KV format; `fixed_bytes` per token and layer come on
    top whatever the format (index keys); `state_bytes` are per layer and do not grow with the context.
    """

    kind: str  # full, window, latent, sparse, state
    layers: int
    elements: int = 0
    kv_heads: int = 0  # 0: the cache is one for all heads (latent)
    fixed_bytes: int = 0
    window: int = 0
    top_k: int = 0
    state_bytes: int = 0
    flops_per_position: int = 0  # of one new token against one cached position and layer
    prompt_flops_per_position: int = 0  # the same within a prompt, where latent caches may be expanded first
    index_flops_per_position: int = 0
    packed_fp8_bytes: int = 0  # per token and layer where engines pack FP8 with its own scales


class ModelBytes(msgspec.Struct, frozen=True):
    """Everything about a model that a bound needs. Bytes are decimal; parameters exclude MTP layers."""

    name: str
    architecture: str
    family: str  # dense, moe, mla-moe, hybrid
    layers: int
    hidden: int
    vocab: int
    kv_heads: int
    experts: int
    experts_per_token: int
    moe_layers: int
    all_reduces: int  # per forward pass under tensor parallelism
    parts: tuple[Part, ...]
    caches: tuple[Cache, ...]
    parameters: int
    active_parameters: int
    mtp_parameters: int
    weight_bytes: int  # of the whole checkpoint, MTP included
    kv_format: str  # what the checkpoint asks for: bf16, fp8, nvfp4
    max_context: int
    source: str  # config.json, safetensors headers, gguf header
    assumptions: tuple[str, ...] = ()


class Curve(msgspec.Struct, frozen=True):
    """All-reduce time over message size, as measured: (bytes, microseconds), sorted by bytes."""

    points: tuple[tuple[int, float], ...]
    source: str
    ranks: int
    foreign: bool  # measured on another host


class Hardware(msgspec.Struct, frozen=True):
    """One kind of device. Bandwidth in decimal GB/s, peaks in dense TFLOPS, links per direction."""

    id: str
    name: str
    kind: str  # gpu, cpu
    bandwidth_gb_s: float
    bandwidth_source: str
    memory_bytes: int | None = None
    peaks_tflops: dict[str, float] = {}
    link_gb_s: float | None = None
    link: str = ""
    in_switch_reduction: bool = False
    copy_share: float | None = None  # achieved by a copy on this host, as a share of `bandwidth_gb_s`
    sources: tuple[str, ...] = ()
    notes: str = ""
    bus_bits: int | None = None
    read: tuple[str, ...] = ()  # what this host says that bears on the speed: a power cap, a lowered clock


class Parallel(msgspec.Struct, frozen=True):
    """Ranks: tensor, pipeline, data (attention), expert, decode-context. Devices used = tp × pp × dp."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    dcp: int = 1


class Speculation(msgspec.Struct, frozen=True):
    """Draft tokens a step, and tokens a step yields on average (the acceptance length, 1 ≤ it ≤ draft + 1)."""

    draft_tokens: int
    tokens_per_step: float
    uses_mtp_layer: bool = True


class Step(msgspec.Struct, frozen=True):
    """The times of one forward pass in ms, per device, under one assumption about routing."""

    distinct_experts: float
    read_bytes: float  # by the busiest device
    ideal_ms: float  # weights spread evenly over all devices
    replication_ms: float
    kv_ms: float
    compute_ms: float
    collective_floor_ms: float
    collective_ms: float  # by the curve; equals the floor where there is none
    bandwidth_loss_ms: float
    kernel_floor_ms: float
    draft_ms: float = 0.0


class Tier(msgspec.Struct, frozen=True):
    """One limit. `tok_s` is the most over all users; `_uniform` is with uniformly routed experts.

    The two differ only for a mixture of experts with more than one sequence: tokens that share experts read
    fewer bytes, so the true limit lies between them.
    """

    ms_per_token: float
    tok_s: float
    tok_s_user: float
    ms_per_token_uniform: float
    tok_s_uniform: float
    tok_s_user_uniform: float


class Bound(msgspec.Struct, frozen=True):
    """The three tiers at one concurrency, with everything they assume."""

    model: str
    hardware: str
    parallel: Parallel
    context_len: int
    concurrency: int
    batch: float  # sequences that fit at once
    kv_format: str
    kv_tokens: int | None  # capacity over all devices; None where the memory size is not known
    kv_bytes_per_token: int
    ideal: Tier
    silicon: Tier
    fabric: Tier
    engine: Tier
    best: Step
    uniform: Step
    tokens_per_step: float
    assumptions: tuple[str, ...]


class Prefill(msgspec.Struct, frozen=True):
    """The least time to the first token, in ms; `serial` adds the terms instead of taking the largest."""

    prompt_len: int
    compute_ms: float
    memory_ms: float
    collective_floor_ms: float
    collective_ms: float
    silicon_ms: float
    fabric_ms: float
    assumptions: tuple[str, ...] = ()


class Bar(msgspec.Struct, frozen=True):
    """One part of the waterfall. `ns` (per token) are whole, so that the bars sum to the measured value exactly."""

    part: str
    ns: int
    ms: float
    checks: tuple[str, ...]
    advice: str


class Waterfall(msgspec.Struct, frozen=True):
    """Where a token's time went; bars sum to `measured_ns`."""

    measured_ns: int
    measured_ms: float
    bars: tuple[Bar, ...]
