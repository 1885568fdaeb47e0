"""The figures of nvbandwidth and nccl-tests beside ours, where they are on PATH; a second opinion, never a verdict."""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from uncork.model.gate import Cell, Figure, Matrix
from uncork.model.unknown import Unknown

TIMEOUT_S = 180
NVBANDWIDTH = (
    "nvbandwidth",
    "-j",
    "-t",
    "device_to_device_memcpy_read_ce",
    "device_to_device_memcpy_write_ce",
)


def run(program: str, *arguments: str) -> str | Unknown:
    """What a program prints; Unknown (absent) where it is not installed, Unknown where it fails or hangs."""
    path = shutil.which(program)
    if path is None:
        return Unknown(f"{program} is not on PATH", absent=True)
    try:
        done = subprocess.run(
            [path, *arguments], capture_output=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Unknown(f"{program}: {error}")
    if done.returncode != 0:
        return Unknown(
            f"{program} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-200:].strip()}"
        )
    return done.stdout.decode(errors="replace")


def nvbandwidth_matrices(text: str) -> tuple[Matrix, ...] | Unknown:
    """The matrices of `nvbandwidth -j`: its cells are strings, `N/A` where a pair was not run."""
    try:
        cases: list[dict[str, Any]] = json.loads(text[text.index("{") :])["nvbandwidth"]["testcases"]
    except (ValueError, KeyError, TypeError) as error:
        return Unknown(f"nvbandwidth's JSON: {error!r}")
    found = []
    for case in cases:
        rows = case.get("bandwidth_matrix")
        if not rows:
            continue
        cells = [
            Cell(src, dst, float(value)) if _is_number(value) else Cell(src, dst, None, why=str(value))
            for src, row in enumerate(rows)
            for dst, value in enumerate(row)
            if src != dst
        ]
        labels = tuple(f"gpu{at}" for at in range(len(rows)))
        found.append(Matrix(f"nvbandwidth {case.get('name', '')}", "GB/s", labels, tuple(cells)))
    return tuple(found)


def _is_number(value: object) -> bool:
    return bool(re.fullmatch(r"\d+(\.\d+)?", str(value).strip()))


def nccl_tests_figures(text: str) -> tuple[Figure, ...] | Unknown:
    """Microseconds by size of `all_reduce_perf -J FILE`."""
    try:
        rows: list[dict[str, Any]] = json.loads(text)["results"]
        found = []
        for row in rows:
            kind = "out_of_place" if row.get("out_of_place") else "in_place"
            us = float(row[kind]["time"])
            found.append(
                Figure(f"nccl-tests all-reduce {row['size']} B", us, "us", how=kind.replace("_", " "))
            )
        return tuple(found)
    except (ValueError, KeyError, TypeError) as error:
        return Unknown(f"nccl-tests' JSON: {error!r}")


def cross_check(gpus: int) -> tuple[tuple[Matrix, ...], tuple[Figure, ...], tuple[str, ...]]:
    """Matrices, figures and notes of the tools that are installed; one that is not says nothing."""
    matrices: tuple[Matrix, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes = []
    said = run(*NVBANDWIDTH)
    read = said if isinstance(said, Unknown) else nvbandwidth_matrices(said)
    if not isinstance(read, Unknown):
        matrices = read
    elif not read.absent:
        notes.append(read.reason)
    measured = _nccl_tests(gpus)
    if not isinstance(measured, Unknown):
        figures = measured
    elif not measured.absent:
        notes.append(measured.reason)
    return matrices, figures, tuple(notes)


def _nccl_tests(gpus: int) -> tuple[Figure, ...] | Unknown:
    # A file that exists already is left alone and another name is taken, so the name must be new.
    with tempfile.TemporaryDirectory(prefix="uncork-") as folder:
        report = Path(folder, "all_reduce.json")
        said = run("all_reduce_perf", "-b", "8", "-e", "64K", "-f", "8", "-g", str(gpus), "-J", str(report))
        if isinstance(said, Unknown):
            return said
        try:
            return nccl_tests_figures(report.read_text(encoding="utf-8"))
        except OSError as error:
            return Unknown(f"all_reduce_perf wrote no {report.name}: {error.strerror}")
