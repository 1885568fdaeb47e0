"""Redaction: the same in, the same out, and a second pass changes nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncork.host import redact

SECRETS = [
    "hf_abcdefghijklmnopqrstuvwxyz012345",
    "sk-proj-abcdefghijklmnop1234",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "AKIAABCDEFGHIJKLMNOP",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3.SflKxwRJSMeKKF2QT4",
    "Bearer abcdef0123456789",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_token_is_gone_wherever_it_stands(secret):
    assert secret not in redact.secrets(f"start {secret} end")
    assert secret not in redact.secrets(f'{{"x":"{secret}"}}')


@pytest.mark.parametrize(
    "line",
    [
        "--api-key SECRETVALUE",
        "--api-key=SECRETVALUE",
        "--hf-token\0SECRETVALUE\0",
        "OPENAI_API_KEY: SECRETVALUE",
        "password=SECRETVALUE",
        "http://user:SECRETVALUE@host/",
    ],
)
def test_the_value_behind_a_secret_name_is_gone(line):
    assert "SECRETVALUE" not in redact.secrets(line)


@pytest.mark.parametrize(
    "line",
    [
        "--max-num-batched-tokens 8192",
        "Avg generation throughput: 12.3 tokens per second",
        "tokenizer=/models/x",
        "00000000:06:00.0 Off",
        "NVRM version: 550.90.07",
        "kernel.keys.maxkeys = 200",
        "Serial Number: N/A",
    ],
)
def test_what_is_no_secret_stays(line):
    assert redact.text(line) == line


def test_two_uuids_stay_apart_and_one_stays_itself():
    a, b = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeef"

    assert redact.text(a) == redact.text("GPU-" + a[4:].upper()) != redact.text(b)
    assert redact.text(a).startswith("GPU-00000000-")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=30),
            st.uuids().map(str),
            st.sampled_from([*SECRETS, "b8:59:9f:12:34:56", "Serial Number: 123", "--api-key x1234"]),
        ),
        max_size=8,
    )
)
def test_a_second_pass_changes_nothing(parts):
    once = redact.text("\n".join(parts))

    assert redact.text(once) == once


def test_an_environment_keeps_only_known_names():
    kept = redact.environment(
        b"NCCL_DEBUG=INFO\0AWS_SECRET_ACCESS_KEY=x\0VLLM_API_KEY=abc\0SHELL=/bin/sh\0broken\0"
    )

    assert kept == b"NCCL_DEBUG=INFO\0VLLM_API_KEY=[redacted]\0"


def test_the_serial_number_capability_is_blanked_and_the_rest_kept():
    config = bytearray(4096)
    config[0:4] = b"\xde\x10\x65\x0a"
    config[0x100:0x104] = (0x0003 | 1 << 16 | 0x150 << 20).to_bytes(4, "little")
    config[0x104:0x10C] = b"\x01\x02\x03\x04\x05\x06\x07\x08"
    config[0x150:0x154] = (0x000D | 1 << 16).to_bytes(4, "little")

    clean = redact.config_space(bytes(config))

    assert clean[0x104:0x10C] == bytes(8)
    assert clean[:0x104] + clean[0x10C:] == bytes(config[:0x104] + config[0x10C:])


def test_a_looping_capability_list_ends():
    config = bytearray(4096)
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")

    assert redact.config_space(bytes(config)) == bytes(config)


def test_serial_strings_of_a_memory_module_are_blanked_at_the_same_length():
    body = bytearray(0x28)
    body[0], body[1], body[0x10], body[0x18] = 17, 0x28, 1, 2
    table = bytes(body) + b"DIMM_A1\0SER123\0\0" + bytes([127, 4, 0, 0]) + b"\0\0"

    clean = redact.smbios(table)

    assert len(clean) == len(table)
    assert b"DIMM_A1\0xxxxxx\0\0" in clean
