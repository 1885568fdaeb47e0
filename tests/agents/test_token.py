"""The token of the HTTP transport: made once into a file of its owner, refused from any other."""

import os
import stat

import pytest

from uncork.agents import token
from uncork.errors import BadInput


def test_a_missing_file_is_made_with_a_token_and_read_again(tmp_path):
    path = tmp_path / "token"

    first = token.kept(path)

    assert len(first) >= 24 and token.kept(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_tokens_differ(tmp_path):
    made = {token.new() for _ in range(50)} | {token.kept(tmp_path / str(n)) for n in range(50)}

    assert len(made) == 100


def good(path, text="a-token-of-a-person-0123456789\n"):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.chmod(0o640),
        lambda path: path.chmod(0o604),
        lambda path: good(path, ""),
        lambda path: good(path, "short"),
        lambda path: good(path, "a-token-of-a-person-0123456789\nand more"),
        lambda path: good(path, "a token of a person 0123456789"),
        lambda path: good(path, "a-token-of-a-person-0123456789\u00e9"),
        lambda path: (path.rename(path.with_name("x")), path.symlink_to(path.with_name("x"))),
        lambda path: (path.unlink(), path.mkdir(0o700)),
        lambda path: (path.unlink(), os.mkfifo(path, 0o600)),
        lambda path: (path.unlink(), path.parent.joinpath("none").mkdir(), path.symlink_to("/nowhere/x")),
    ],
    ids=[
        *("group", "others", "empty", "short", "two", "spaces", "letter"),
        *("link", "directory", "fifo", "dangling"),
    ],
)
def test_a_file_that_others_can_read_or_that_holds_no_token_is_refused(tmp_path, spoil):
    path = tmp_path / "token"
    good(path)
    assert token.kept(path) == "a-token-of-a-person-0123456789"
    spoil(path)

    with pytest.raises(BadInput, match="nothing was started"):
        token.kept(path)


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(BadInput, match="cannot be used"):
        token.kept(tmp_path / "no" / "token")
