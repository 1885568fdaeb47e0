"""The sealed part of the record never changes a byte."""

import pytest

from uncork.errors import Corrupt, StateUnwritable
from uncork.record import seal


def test_finishing_keeps_the_sealed_bytes(tmp_path):
    path = tmp_path / "record" / seal.NAME
    digest = seal.seal(path, "# before\n\nbefore | after\n")
    sealed = path.read_bytes()

    seal.finish(path, "# after")
    seal.finish(path, "# after, written twice")

    assert path.read_bytes().startswith(sealed)
    assert path.read_text(encoding="utf-8").count("# after") == 1
    seal.verify(path, digest)


@pytest.mark.parametrize("where", [0, 9])
def test_a_changed_byte_is_found(tmp_path, where):
    path = tmp_path / seal.NAME
    digest = seal.seal(path, "# before\n\ntext")
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)

    with pytest.raises(Corrupt):
        seal.verify(path, digest)


def test_an_unwritable_folder_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(StateUnwritable, match="nothing was changed"):
        seal.seal(tmp_path / "file" / seal.NAME, "text")
