"""Coverage-guided fuzzing of every text parser: python tests/parsers/fuzz_atheris.py [-max_total_time=60]

Needs `atheris` (not a dependency of the project: pip install atheris). Ends with status 0 where no input made a
parser raise; libFuzzer's own options are passed on.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["uncork.parsers", "uncork.host"]):
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from uncork.host.attached import plain
    from uncork.host.derived import from_bare_value, from_kind
    from uncork.host.kinds import classify
    from uncork.host.pieces import pieces

from tests.parsers.test_fuzz import LINES, PARSERS


def once(data: bytes) -> None:
    """Everything that happens to an attachment, and every parser on its whole text."""
    text = plain(data)
    for piece in pieces("file", text):
        for kind, part in classify(piece.text).items():
            list(from_kind(kind, part))
        list(from_bare_value(piece.name, piece.text))
    for parse in PARSERS:
        parse(text)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, line in enumerate(LINES):
            Path(folder, str(number)).write_text(line, encoding="utf-8")
        Path(folder, "all").write_text("\n".join(LINES), encoding="utf-8")
        options = sys.argv[1:] or ["-max_total_time=60"]
        atheris.Setup([sys.argv[0], "-max_len=4096", "-timeout=10", *options, folder], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
