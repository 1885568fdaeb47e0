"""Parameter totals and bytes from a config equal the published ones."""

from pathlib import Path

import pytest

from uncork.bound import model_bytes
from uncork.bound.report import read_bytes_per_token
from uncork.model.bound import Role

MODELS = Path(__file__).parent / "models"
SHARED = Path(__file__).parents[2] / "../shared/facts/model-configs"

# Billions: total without MTP, active (what a token multiplies with: no embedding, the output layer counted).
PUBLISHED = {
    "GLM-5-NVFP4": (743.9, 40.83),
    "DeepSeek-R1": (671.0, 36.63),
    "Kimi-K2.5": (1026.4, 31.69),
    "Qwen3.5-397B-A17B": (396.3, 16.33),
    "MiniMax-M2.5": (228.7, 10.42),
    "gpt-oss-120b": (116.8, 5.13),
    "Qwen3-235B-A22B": (235.1, 21.57),
    "Llama-3.1-70B-FP8": (70.55, 69.50),
    "Nemotron-3-Super-120B-A12B-NVFP4": (120.67, 12.23),
    "Gemma-4-31B-NVFP4": (30.70, 30.70),
    "Qwen3.6-27B-NVFP4": (26.90, 25.62),
}
SHARED_TOTALS = {
    "zai-org--GLM-5": 743.9,
    "zai-org--GLM-5-FP8": 743.9,
    "nvidia--GLM-5-NVFP4": 743.9,
    "nvidia--GLM-5.1-NVFP4": 743.9,
    "deepseek-ai--DeepSeek-R1": 671.0,
    "nvidia--DeepSeek-V3.1-NVFP4": 671.0,
    "moonshotai--Kimi-K2.5": 1026.4,
    "nvidia--Kimi-K2.5-NVFP4": 1026.4,
    "nvidia--Kimi-K2.6-NVFP4": 1026.4,
    "Qwen--Qwen3.5-397B-A17B": 396.3,
    "nvidia--Qwen3.5-397B-A17B-NVFP4": 396.3,
    "MiniMaxAI--MiniMax-M2.5": 228.7,
    "nvidia--MiniMax-M2.5-NVFP4": 228.7,
    "openai--gpt-oss-120b": 116.8,
    "openai--gpt-oss-20b": 20.9,
    "Qwen--Qwen3-235B-A22B": 235.1,
    "nvidia--Qwen3-235B-A22B-NVFP4": 235.1,
    "Qwen--Qwen3-8B": 8.19,
    "Qwen--Qwen3-0.6B": 0.596,
    "meta-llama--Meta-Llama-3.1-70B": 70.55,
    "meta-llama--Meta-Llama-3.1-8B": 8.03,
    "mistralai--Mixtral-8x7B-v0.1": 46.7,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_equal_the_published_ones(name: str) -> None:
    model = model_bytes(MODELS / name)

    total, active = PUBLISHED[name]
    assert model.parameters / 1e9 == pytest.approx(total, rel=1e-3)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=1e-3)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared model configs beside the checkout")
@pytest.mark.parametrize("name", SHARED_TOTALS)
def test_parameters_of_whole_configs_equal_the_published_ones(name: str) -> None:
    assert model_bytes(SHARED / name).parameters / 1e9 == pytest.approx(SHARED_TOTALS[name], rel=1e-3)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared model configs beside the checkout")
def test_every_shared_config_is_understood() -> None:
    folders = [folder for folder in SHARED.iterdir() if folder.is_dir()]

    assert len(folders) == 28
    assert all(model_bytes(folder).parameters > 0 for folder in folders)


def test_glm5_parameters_by_hand() -> None:
    hidden, layers, dense, moe = 6144, 78, 3, 75
    q_a, q_b = 2048 * hidden, 64 * (192 + 64) * 2048
    kv_a, kv_b = (512 + 64) * hidden, 64 * (192 + 256) * 512
    out = hidden * 64 * 256
    indexer = 32 * 128 * 2048 + 128 * hidden + 32 * hidden
    expert = 3 * hidden * 2048
    matrices = {
        Role.ATTENTION: layers * (q_a + q_b + kv_a + kv_b + out),
        Role.INDEXER: layers * indexer,
        Role.ROUTED: moe * 256 * expert,
        Role.SHARED: moe * expert,
        Role.DENSE: dense * 3 * hidden * 12288,
        Role.ROUTER: moe * 256 * hidden,
        Role.HEAD: 154880 * hidden,
        Role.EMBEDDING: 154880 * hidden,
    }

    model = model_bytes(MODELS / "GLM-5-NVFP4")

    for role, parameters in matrices.items():
        assert sum(p.parameters for p in model.parts if p.role is role and not p.mtp) == parameters, role
    norms = sum(p.parameters for p in model.parts if p.role is Role.NORM and not p.mtp)
    assert model.parameters == sum(matrices.values()) + norms
    assert (model.parameters + model.mtp_parameters) / 1e9 == pytest.approx(753.86, rel=1e-4)


def test_glm5_nvfp4_reads_44_06_gb_a_token() -> None:
    nvfp4 = 4 / 8 + 1 / 16  # 4 bits, and an FP8 scale for 16 weights
    gigabytes = {
        "routed": 75 * 8 * 37.748736e6 * nvfp4 / 1e9,
        "shared": 75 * 37.748736e6 * nvfp4 / 1e9,
        "dense": 3 * 226.492416e6 * nvfp4 / 1e9,
        "attention": 12.8715e9 * 2 / 1e9,
        "indexer": 0.73052e9 * 2 / 1e9,
        "router": 0.11796e9 * 2 / 1e9,
        "lm_head": 0.95158e9 * 2 / 1e9,
    }
    assert sum(gigabytes.values()) == pytest.approx(44.06, abs=0.005)

    model = model_bytes(MODELS / "GLM-5-NVFP4")

    assert read_bytes_per_token(model) / 1e9 == pytest.approx(44.06, abs=0.005)


def test_other_checkpoints_of_the_same_model_read_other_bytes() -> None:
    if not SHARED.is_dir():
        pytest.skip("needs the shared model configs beside the checkout")

    assert read_bytes_per_token(model_bytes(SHARED / "nvidia--GLM-5.1-NVFP4")) / 1e9 == pytest.approx(
        49.11, abs=0.01
    )
    assert read_bytes_per_token(model_bytes(SHARED / "zai-org--GLM-5")) / 1e9 == pytest.approx(
        2 * 40.833, abs=0.01
    )


def test_checkpoints_have_the_size_that_their_index_states() -> None:
    # total_size of the published model.safetensors.index.json of each; the config alone gets this near.
    assert model_bytes(MODELS / "DeepSeek-R1").weight_bytes == pytest.approx(688_586_727_753, rel=1e-4)
    assert model_bytes(MODELS / "gpt-oss-120b").weight_bytes == pytest.approx(65_248_815_744, rel=1e-6)


def test_mtp_layers_are_counted_apart_and_not_read() -> None:
    model = model_bytes(MODELS / "GLM-5-NVFP4")
    mtp = sum(part.bytes for part in model.parts if part.mtp)

    assert mtp / 1e9 == pytest.approx(19.9, abs=0.05)
    assert (model.weight_bytes - mtp) / 1e9 == pytest.approx(440.9, abs=0.05)


def test_a_mixed_checkpoint_takes_each_layers_own_format() -> None:
    model = model_bytes(MODELS / "Qwen3.6-27B-NVFP4")

    formats = {(part.role, part.format) for part in model.parts if not part.mtp}
    assert (Role.DENSE, "NVFP4") in formats
    assert (Role.HEAD, "NVFP4") in formats
    assert (Role.LINEAR_ATTENTION, "FP8") in formats
    assert (Role.LINEAR_ATTENTION, "BF16") in formats  # in_proj_a, in_proj_b and the convolution
    assert (Role.EMBEDDING, "BF16") in formats


def test_int4_experts_leave_attention_alone() -> None:
    model = model_bytes(MODELS / "Kimi-K2.5")

    formats = {part.role: part.format for part in model.parts}
    assert formats[Role.ROUTED] == "INT4 g32"
    assert {formats[role] for role in (Role.ATTENTION, Role.SHARED, Role.DENSE, Role.HEAD)} == {"BF16"}
    # Symmetric groups of 32 with an FP16 scale and no zero point: 0.5 + 2/32 bytes a weight.
    routed = next(part for part in model.parts if part.role is Role.ROUTED)
    assert routed.bytes / routed.parameters == pytest.approx(0.5 + 2 / 32)
