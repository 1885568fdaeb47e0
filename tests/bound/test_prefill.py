"""The time to the first token, and what prompts leave of throughput."""

from pathlib import Path

import pytest

from uncork.bound import bound_for, caches, hardware, model_bytes
from uncork.bound.prefill import prefill_bound, throughput_limit_tok_s, throughput_serial_tok_s
from uncork.errors import BadInput
from uncork.model.bound import Parallel

MODELS = Path(__file__).parent / "models"
LLAMA = model_bytes(MODELS / "Llama-3.1-70B-FP8")
GLM = model_bytes(MODELS / "GLM-5-NVFP4")


def test_a_dense_prompt_is_two_flops_a_parameter_and_token() -> None:
    card = hardware.by_name("h200_sxm")
    length, layers = 4096, 68.45e9  # parameters without embedding and output layer
    matrices = 2 * layers * length / 1978.9e12
    # 80 layers, 64 heads of 128, half of the square: 4 FLOPs a pair and number.
    attention = 80 * 4 * 64 * 128 * length * (length / 2) / 1978.9e12

    first = prefill_bound(LLAMA, card, Parallel(), length)

    assert first.compute_ms == pytest.approx((matrices + attention) * 1e3, rel=0.001)
    assert first.silicon_ms == first.compute_ms


def test_eight_cards_on_pcie_are_bound_by_the_fabric() -> None:
    card = hardware.by_name("rtx_pro_6000_server")
    message = 8192 * 6144 * 2
    assert message / 1e6 == pytest.approx(100.7, abs=0.1)

    first = prefill_bound(GLM, card, Parallel(tp=8), 8192)

    # 156 messages at 24.5 GB/s of bus bandwidth (2 x 7/8 of the message): 1.12 s.
    assert first.collective_ms == pytest.approx(156 * 1.75 * message / 24.5e6, rel=0.05)
    assert 8192 / (first.collective_ms / 1e3) == pytest.approx(7303, rel=0.05)
    assert first.compute_ms < first.collective_floor_ms < first.collective_ms


def test_latent_attention_of_a_prompt_works_on_plain_heads() -> None:
    model = model_bytes(MODELS / "DeepSeek-R1")
    length = 32_768
    by_hand = 61 * 2 * 128 * (128 + 64 + 128) * length * length / 2

    assert caches.prompt_flops(model, length) == pytest.approx(by_hand)
    assert caches.attention_flops(model, length / 2) * length > 3 * by_hand  # absorbed, as decoding does it


def test_a_window_limits_what_a_prompt_attends_to() -> None:
    model = model_bytes(MODELS / "gpt-oss-120b")
    length, window = 1024, 128
    seen = sum(min(i, window) for i in range(length)) / length  # 120 of 128: the first tokens see less
    by_hand = length * (18 * seen + 18 * (length - 1) / 2) * 4 * 64 * 64

    assert caches.prompt_flops(model, length) == pytest.approx(by_hand, rel=0.002)


def test_a_short_prompt_is_bound_by_reading_the_weights() -> None:
    card = hardware.by_name("h200_sxm")

    first = prefill_bound(LLAMA, card, Parallel(), 1)

    assert first.silicon_ms == first.memory_ms == pytest.approx(70.56e9 / 4800e6, rel=0.001)


def test_prompts_take_their_share_of_throughput() -> None:
    card = hardware.by_name("h200_sxm")
    bound = bound_for(LLAMA, card, Parallel(), 1536, 16)
    prompt = prefill_bound(LLAMA, card, Parallel(), 1024)

    # 16 sequences of 1,000 tokens: 0.016 prompts a step, hidden while reading memory takes longer.
    assert throughput_limit_tok_s(bound, prompt, 1000) == pytest.approx(bound.silicon.tok_s)
    serial = 16e3 / (bound.fabric.ms_per_token_uniform + 16 / 1000 * prompt.fabric_ms)
    assert throughput_serial_tok_s(bound, prompt, 1000) == pytest.approx(serial)


def test_long_prompts_with_short_answers_are_bound_by_computing() -> None:
    card = hardware.by_name("h200_sxm")
    bound = bound_for(LLAMA, card, Parallel(), 8192, 16)
    prompt = prefill_bound(LLAMA, card, Parallel(), 8192)

    by_hand = 10 * 1e3 / prompt.compute_ms  # ten tokens a prompt
    assert throughput_limit_tok_s(bound, prompt, 10) == pytest.approx(by_hand, rel=0.01)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(BadInput):
        prefill_bound(LLAMA, hardware.by_name("h200_sxm"), Parallel(), 0)
