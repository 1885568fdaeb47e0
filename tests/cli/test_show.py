"""What verbs print for programs and for a terminal."""

from uncork.cli.show import clean, print_json
from uncork.model.unknown import Unknown


def test_json_is_the_same_in_every_run_and_numbers_may_be_keys(capsys):
    print_json({"b": {2: 0.5, 1: Unknown("not read")}, "a": frozenset("zyx")})

    said = capsys.readouterr().out
    assert "".join(said.split()) == '{"a":["x","y","z"],"b":{"1":{"unknown":"notread"},"2":0.5}}'


def test_a_terminal_is_told_nothing_by_what_it_shows():
    assert clean("\x1b[2Jx\u202ey\nz") == "\\x1b[2Jx\\u202ey\nz"
