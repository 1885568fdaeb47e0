"""C text becomes a library or a program, once, and nothing where that cannot be."""

import ctypes
import subprocess

import pytest

from uncork import compiler

ONE = "int one(void) { return 1; }\nint main(void) { return one(); }"

needs_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler")


def test_code_that_does_not_compile_is_no_library(tmp_path):
    assert compiler.library("this is not C", "broken", cache=tmp_path) is None
    assert [path.name for path in tmp_path.glob("cache/*")] == []


@needs_compiler
def test_a_library_is_built_once(tmp_path):
    first = compiler.library(ONE, "one", cache=tmp_path)
    assert first is not None
    before = first.stat().st_mtime_ns

    assert compiler.library(ONE, "one", cache=tmp_path) == first
    assert first.stat().st_mtime_ns == before
    assert ctypes.CDLL(str(first)).one() == 1


@needs_compiler
def test_a_program_runs(tmp_path):
    program = compiler.program(ONE, "one", cache=tmp_path)

    assert program is not None
    assert subprocess.run([program], check=False).returncode == 1


@pytest.mark.parametrize("library", [compiler.library, compiler.program])
def test_without_a_compiler_or_a_place_to_keep_it_there_is_none(library, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("not a folder")
    assert library(ONE, "one", cache=tmp_path) is None

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert library(ONE, "one", cache=tmp_path / "other") is None
