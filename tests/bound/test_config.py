"""What is said about a config that cannot be used names the key."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncork.bound import model_bytes
from uncork.bound.checkpoint import from_config
from uncork.errors import BadInput

MODELS = Path(__file__).parent / "models"
GLM = json.loads((MODELS / "GLM-5-NVFP4/config.json").read_text(encoding="utf-8"))
GPT = json.loads((MODELS / "gpt-oss-120b/config.json").read_text(encoding="utf-8"))
QWEN = json.loads((MODELS / "Qwen3.5-397B-A17B/config.json").read_text(encoding="utf-8"))

NEEDED = {
    "hidden_size": GLM,
    "vocab_size": GLM,
    "num_hidden_layers": GLM,
    "num_attention_heads": GLM,
    "qk_nope_head_dim": GLM,
    "v_head_dim": GLM,
    "index_n_heads": GLM,
    "num_experts_per_tok": GLM,
    "intermediate_size": GLM,
    "sliding_window": GPT,
}


@pytest.mark.parametrize("key", NEEDED)
def test_a_missing_key_is_named(key: str) -> None:
    config = {name: value for name, value in NEEDED[key].items() if name != key}
    config.pop("experts_per_token", None)

    with pytest.raises(BadInput) as caught:
        from_config(config)

    assert f"`{key}` is missing" in caught.value.says


@pytest.mark.parametrize("key", ["linear_num_key_heads", "linear_value_head_dim"])
def test_a_missing_key_of_a_part_names_the_part(key: str) -> None:
    inner = {name: value for name, value in QWEN["text_config"].items() if name != key}

    with pytest.raises(BadInput, match=rf"config.json text_config: `{key}` is missing"):
        from_config({**QWEN, "text_config": inner})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": "big"}, "`hidden_size` is 'big'"),
        ({"hidden_size": 0}, "`hidden_size` is 0"),
        ({"num_hidden_layers": -1}, "`num_hidden_layers` is -1"),
        ({"tie_word_embeddings": "no"}, "`tie_word_embeddings` is 'no'"),
        ({"num_experts_per_tok": 999}, "`num_experts_per_tok` is 999"),
        (
            {"kv_lora_rank": None, "layer_types": ["odd_attention"] * 78},
            "`layer_types` names 'odd_attention'",
        ),
        ({"kv_lora_rank": None, "layer_types": ["full_attention"]}, "`layer_types` has 1 entries for 78"),
        ({"hybrid_override_pattern": "MX"}, "`hybrid_override_pattern` holds 'X'"),
        ({"dtype": "float12"}, "`torch_dtype` is 'float12'"),
        ({"quantization_config": {"quant_method": "odd"}}, "quantization_config.quant_method"),
    ],
)
def test_an_odd_value_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput) as caught:
        from_config({**GLM, **change})

    assert named in caught.value.says


def test_a_family_whose_layers_are_not_known_is_refused() -> None:
    with pytest.raises(BadInput, match=r"`model_type` is 'jamba'"):
        from_config({**GLM, "model_type": "jamba"})


def test_a_family_that_was_not_checked_says_so() -> None:
    model = from_config({**GLM, "model_type": "newcomer"})

    assert any("'newcomer' was not checked" in line for line in model.assumptions)
    assert not any("was not checked" in line for line in from_config(GLM).assumptions)


def test_gemma_leaves_its_pattern_of_windows_to_the_code() -> None:
    config = {
        "model_type": "gemma3_text",
        "hidden_size": 64,
        "num_hidden_layers": 12,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 100,
        "sliding_window": 512,
    }

    assert {cache.kind: cache.layers for cache in from_config(config).caches} == {"window": 10, "full": 2}


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_a_file_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")

    with pytest.raises(BadInput, match=r"config.json"):
        model_bytes(tmp_path)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"config.json cannot be read"):
        model_bytes(tmp_path)
    with pytest.raises(BadInput, match="does not exist"):
        model_bytes(tmp_path / "nowhere")


@settings(deadline=None)
@given(
    st.sampled_from(sorted(GLM)),
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 70000),
        st.text(max_size=3),
        st.lists(st.integers(), max_size=3),
    ),
)
def test_no_single_value_brings_it_down(key: str, value: Any) -> None:
    try:
        model = from_config({**GLM, key: value})
    except BadInput as error:
        assert error.says
    else:
        assert model.weight_bytes > 0
