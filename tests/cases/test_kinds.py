"""Kinds of trouble as people attach them, beside the public cases: other wording, other tools, other layouts.

`kinds.txt` holds blocks of `#### ID: title` with files behind `== name`. The id must be answered *fail*; those in
`quiet.txt` look like it and must not be.
"""

from pathlib import Path

import pytest

from uncork.audit import audit
from uncork.host.attached import AttachedHost
from uncork.host.recording import RecordingHost
from uncork.model.findings import Answer


def _blocks(name="kinds.txt"):
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    for block in text.split("#### ")[1:]:
        head, _, body = block.partition("\n")
        id, _, title = head.partition(": ")
        files, name = {}, ""
        for line in body.split("\n"):
            if line.startswith("== ") and not line.endswith("=="):
                name = line[3:]
                files[name] = []
            elif name:
                files[name].append(line)
        yield id, title, {name: "\n".join(lines) + "\n" for name, lines in files.items()}


def _cases(name):
    return [pytest.param(*one, id=f"{one[0]}: {one[1]}") for one in _blocks(name)]


def _audit(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    found = audit(RecordingHost(AttachedHost([folder])))
    assert {name: ending for name, ending in found.explorers.items() if "crashed" in ending} == {}
    assert [one.id for one in found.results if "the check itself failed" in one.reason] == []
    return found.results


@pytest.mark.parametrize(("id", "title", "files"), _cases("kinds.txt"))
def test_a_kind_of_trouble_is_found_in_what_people_attach(tmp_path, id, title, files):
    answers = {(one.answer, one.reason or one.says) for one in _audit(tmp_path, files) if one.id == id}

    assert Answer.FAIL in {answer for answer, _ in answers}, answers


@pytest.mark.parametrize(("id", "title", "files"), _cases("quiet.txt"))
def test_what_only_looks_like_trouble_is_left_alone(tmp_path, id, title, files):
    found = [(one.answer, one.reason or one.says) for one in _audit(tmp_path, files) if one.id == id]

    assert found and Answer.FAIL not in {answer for answer, _ in found}, found


def test_nothing_passes_because_one_line_of_a_log_is_silent(tmp_path):
    results = _audit(tmp_path, {"dmesg.txt": "[ 5351.000000] usb 1-1: new high-speed USB device number 2\n"})

    assert [one.id for one in results if one.answer is Answer.PASS] == []


def test_a_text_that_says_nothing_settles_nothing(tmp_path):
    results = _audit(tmp_path, {"note.txt": "hello world\n"})

    assert [one.id for one in results if one.answer in (Answer.PASS, Answer.FAIL)] == []
