"""Questions that a read cannot answer, asked of this machine; none of them changes anything."""

import os
from pathlib import Path

import pytest

from uncork.host import probes
from uncork.host.query import query
from uncork.model.unknown import is_unknown


def test_access_tells_device_mode_and_rights_without_opening():
    assert query("access:/dev/null") == {"mode": "0o666", "read": True, "write": True, "device": "1:3"}


def test_what_is_not_there_is_absent():
    found = query("access:/dev/no-such-device")

    assert is_unknown(found) and found.absent


def test_only_settings_are_opened_for_writing(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("kept", encoding="utf-8")

    assert is_unknown(query(f"writable:{file}"))
    assert is_unknown(query("writable:/sys/bus/pci/devices/0000:00:00.0/config"))
    assert file.read_text(encoding="utf-8") == "kept"


def test_lines_and_entries_are_counted(tmp_path: Path):
    (tmp_path / "file").write_text("x\n" * 70000, encoding="utf-8")

    assert query(f"lines:{tmp_path}/file") == 70000
    assert query(f"entries:{tmp_path}") == 1


def test_the_memory_of_this_process_lies_on_some_node():
    found = probes.numa_maps(str(os.getpid()))

    if is_unknown(found):
        pytest.skip(found.reason)
    assert sum(found["nodes"].values()) == sum(found["policies"].values()) > 0


def test_weights_are_summed_by_their_kinds(tmp_path: Path):
    (tmp_path / "model-00001.safetensors").write_bytes(b"x" * 100)
    (tmp_path / "tokenizer.json").write_bytes(b"x" * 7)

    assert query(f"weights:{tmp_path}") == 100
    assert query(f"weights:{tmp_path}/tokenizer.json") == 7


def test_a_hugging_face_cache_keeps_its_weights_in_blobs(tmp_path: Path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "0123abcd").write_bytes(b"x" * 50)

    assert query(f"weights:{tmp_path}") == 50


def test_the_clock_answers():
    found = query("clock:")

    assert set(found) == {"synchronised", "maximum_error_us"}


def test_the_day_is_one():
    assert len(str(query("today:")).split("-")) == 3


def test_a_memory_policy_is_let_through_or_refused_with_a_reason():
    assert query("mempolicy:")
