"""Exclude lists, mixed checkpoints, and what is said about a method that is not known."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncork.bound.quantisation import Names, read_scheme
from uncork.errors import BadInput


def scheme_of(section: dict[str, Any]) -> Any:
    return read_scheme({"quantization_config": section}, None)


def test_names_match_exactly_by_prefix_by_glob_and_by_expression() -> None:
    names = Names(
        [
            "lm_head",
            "model.layers.1.*",
            "model.language_model.layers.3.self_attn*",
            "*.mlp.shared_expert.*",
            "re:.*mlp\\.(gate|up|down)_proj.*",
            "model.layers.*.self_attn",
        ]
    )

    assert names.match("lm_head")
    assert names.match("layers.1.mlp.up_proj")
    assert names.match("layers.3.self_attn.q_proj")
    assert names.match("layers.9.mlp.shared_expert.up_proj")
    assert names.match("layers.9.mlp.up_proj")
    assert names.match("layers.7.self_attn.o_proj")
    assert not names.match("layers.10.linear_attn.out_proj")
    assert not names.match("layers.9.mlp.experts.0.up_proj")


def test_awq_and_gptq_differ_by_the_order_index() -> None:
    awq = scheme_of({"quant_method": "awq", "bits": 4, "group_size": 128}).format_of("layers.0.mlp.up_proj")
    gptq = scheme_of({"quant_method": "gptq", "bits": 4, "group_size": 128}).format_of("layers.0.mlp.up_proj")

    assert (awq.per_column_bytes, gptq.per_column_bytes) == (0, 4)
    assert awq.scale_bytes == gptq.scale_bytes == 2.5


def test_compressed_tensors_groups_have_their_own_formats() -> None:
    scheme = scheme_of(
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "a": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                },
                "b": {
                    "targets": ["re:.*experts.*"],
                    "weights": {"num_bits": 4, "type": "float", "group_size": 16},
                },
            },
            "ignore": ["lm_head", "re:.*self_attn.*"],
        }
    )

    assert scheme.format_of("layers.0.mlp.experts.0.up_proj").name == "NVFP4"
    assert scheme.format_of("layers.0.mlp.up_proj").name == "FP8 per row"
    assert scheme.format_of("layers.0.self_attn.q_proj").name == "BF16"


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"quant_method": "magic"}, "quantization_config.quant_method` is 'magic'"),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, "`quant_algo` is 'FP3'"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "`quantized_layers` is missing"),
        ({"quant_method": "compressed-tensors"}, "`config_groups` is missing"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 3, "type": "x"}}},
            },
            "num_bits 3 and type 'x'",
        ),
        ({"quant_method": "awq", "bits": "four"}, "`bits` and `group_size`"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {}}, "ignore": ["re:("]},
            "exclude list",
        ),
    ],
)
def test_what_is_not_known_is_named(section: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput) as caught:
        scheme_of(section)

    assert named in caught.value.says


def test_an_hf_quant_config_without_its_section_is_named() -> None:
    with pytest.raises(BadInput, match="`quantization` is missing"):
        read_scheme({}, {})


ODD = st.one_of(st.none(), st.integers(-3, 300), st.text(max_size=4), st.lists(st.integers(), max_size=2))
SECTIONS = [
    {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]},
    {"quant_method": "awq", "bits": 4, "group_size": 128},
    {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["lm_head"],
        "kv_cache_scheme": {"num_bits": 8},
    },
    {
        "quant_method": "compressed-tensors",
        "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}},
    },
]


@settings(deadline=None)
@given(st.sampled_from(SECTIONS), st.data(), ODD)
def test_an_odd_value_is_read_or_refused(section: dict[str, Any], data: st.DataObject, odd: Any) -> None:
    key = data.draw(st.sampled_from(sorted(section)))

    try:
        scheme = scheme_of({**section, key: odd})
    except BadInput as error:
        assert error.says
    else:
        assert scheme.format_of("layers.0.mlp.up_proj").bits > 0
