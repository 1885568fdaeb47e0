"""A file is replaced whole or not at all."""

import os
import stat

import pytest

from uncork.state import write_whole


def test_the_file_is_replaced_and_nothing_stays_beside_it(tmp_path):
    target = tmp_path / "record"
    target.write_bytes(b"old and longer")

    write_whole(target, b"new")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"record": b"new"}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_the_mode_holds_less_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "report", b"", mode=0o644)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == 0o640


def test_a_target_that_cannot_be_replaced_stays_and_leaves_nothing_beside_it(tmp_path):
    target = tmp_path / "folder"
    (target / "kept").mkdir(parents=True)

    with pytest.raises(OSError):
        write_whole(target, b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert (target / "kept").is_dir()
