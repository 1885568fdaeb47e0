"""How exact and how cheap is the load generator, beside those of others, against a server with a known schedule.

    python benchmarks/bench_client.py [--peers VENV] [--streams 1,64,256,1024] [--runs 3] [--json FILE]

The reference server (C, on the first processor, real-time where allowed) logs the clock around every send; what
a client reports is held against that, answer by answer. CPU is that of the whole client process with its threads
(user and system, parsing and result file included) less that of the same client asking one request for one token
(median of three).
MB is its peak resident memory. `others` is what everybody else used of this machine meanwhile, in cores: runs with
more than a few hundredths say less about the client than about its neighbours. Clients run at niceness -20
where allowed, and with --realtime ahead of everything else, for a machine that others use meanwhile.

Peers are the Rust clients inside the wheels of vLLM and sglang, used where VENV holds them:
    python -m venv peers && peers/bin/pip install --no-deps --require-hashes -r requirements/peers.lock
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from uncork.bench.metrics import quantile
from uncork.bench.reference_server import Truth, reference_server

TOKENS = 128
FEWEST = 8  # requests of a run: with fewer the CPU of its tokens drowns in that of its start
INTERRUPTED_NS = 100_000
REALTIME = False


class Reported(NamedTuple):
    """What a client said of one request: the server's number of it, TTFT and gaps in ms."""

    number: int
    ttft_ms: float
    gaps_ms: list[float]


class Cost(NamedTuple):
    """What running a client took."""

    cpu_s: float
    memory_mb: float
    wall_s: float
    others: float


Client = Callable[[str, int, int, int, Path], tuple[list[str], Callable[[], list[Reported]]]]


def uncork(url: str, streams: int, requests: int, tokens: int, folder: Path):
    """Ourselves, as a process of its own."""
    out = folder / "run"

    def read() -> list[Reported]:
        said = map(json.loads, (out / "requests.jsonl").read_text("utf-8").splitlines())
        return [
            Reported(
                int(record["server_id"].removeprefix("ref-")),
                (record["event_ns"][0] - record["sent_ns"]) / 1e6,
                [(b - a) / 1e6 for a, b in pairwise(record["event_ns"])],
            )
            for record in said
            if record["outcome"] == "ok"
        ]

    words = [url, streams, requests, tokens, out]
    return [sys.executable, __file__, "--own", *map(str, words)], read


def own(url: str, streams: int, requests: int, tokens: int, out: Path) -> None:
    """Run one level and keep its requests."""
    from uncork.bench.lengths import Lengths
    from uncork.bench.level import run_level
    from uncork.bench.spec import Level, SuiteSpec
    from uncork.bench.store import Store
    from uncork.bench.target import prepare

    level = Level(concurrency=streams, requests=requests)
    spec = SuiteSpec(endpoint=url, levels=(level,), input_len=16, output_len=tokens, repeats=1, processes=1)
    outcome = run_level(prepare(spec, lengths=Lengths()), level, 0, 0, 0, lambda *_: None)
    shutil.rmtree(out, ignore_errors=True)
    Store(out).add(outcome.result, outcome.records)
    (out / "void").write_text(outcome.result.invalid_reason, encoding="utf-8")


def find_peers(venv: Path | None) -> dict[str, Client]:
    """The peers that are installed there."""
    found: dict[str, Client] = {}
    if venv is None:
        return found
    for site in venv.glob("lib/python*/site-packages"):
        if (program := site / "vllm" / "vllm-rs").exists():
            found["vllm-rs"] = lambda *about, program=program: vllm_rs(program, *about)
        for library in site.glob("sglang/srt/rust_extensions/_bench*.so"):
            found["sglang-rs"] = lambda *about, library=library: sglang_rs(library, *about)
    return found


def vllm_rs(program: Path, url: str, streams: int, requests: int, tokens: int, folder: Path):
    """vLLM's `vllm-rs bench serve`. It counts the role and the finish chunk as tokens: those gaps are taken out."""

    def read() -> list[Reported]:
        said = json.loads((folder / "vllm.json").read_text("utf-8"))
        rows = zip(said["generated_texts"], said["ttfts"], said["itls"], strict=True)
        return [
            Reported(number_in(text), ttft * 1e3, [gap * 1e3 for gap in trim(gaps, tokens)])
            for text, ttft, gaps in rows
            if text
        ]

    words = [
        *("--backend", "openai-chat", "--base-url", url, "--endpoint", "/v1/chat/completions"),
        *("--model", "reference", "--tokenizer", tokenizer(folder), "--dataset-name", "random"),
        *("--random-input-len", 16, "--random-output-len", tokens, "--random-range-ratio", 0),
        *("--num-prompts", requests, "--max-concurrency", streams, "--ignore-eos", "--disable-tqdm"),
        *("--num-warmups", 0, "--ready-check-timeout-sec", 0, "--no-steady-state"),
        *("--save-result", "--save-detailed", "--result-dir", folder, "--result-filename", "vllm.json"),
    ]
    return [str(program), "bench", "serve", *map(str, words)], read


def trim(gaps: list[float], tokens: int) -> list[float]:
    """Without the gaps to the role chunk and to the finish chunk."""
    return gaps[1:-1] if len(gaps) == tokens + 1 else gaps


def sglang_rs(library: Path, url: str, streams: int, requests: int, tokens: int, folder: Path):
    """sglang's Rust client, its extension called without the package around it (which would import torch)."""
    program = (
        "import importlib.util as u, sys;"
        "s = u.spec_from_file_location('_bench', sys.argv[1]); m = u.module_from_spec(s); s.loader.exec_module(m);"
        "m.run_argv(['sglang-bench', *sys.argv[2:]])"
    )

    def read() -> list[Reported]:
        said = json.loads((folder / "sglang.json").read_text("utf-8").splitlines()[-1])
        rows = zip(said["generated_texts"], said["ttfts"], said["itls"], strict=True)
        return [
            Reported(number_in(text), ttft * 1e3, [g * 1e3 for g in gaps])
            for text, ttft, gaps in rows
            if text
        ]

    words = [
        *(
            "--backend",
            "vllm-chat",
            "--base-url",
            url,
            "--model",
            "reference",
            "--tokenizer",
            tokenizer(folder),
        ),
        *("--dataset-name", "random-ids", "--random-input-len", 16, "--random-output-len", tokens),
        *("--random-range-ratio", 1.0, "--num-prompts", requests, "--max-concurrency", streams),
        *("--warmup-requests", 0, "--disable-tqdm", "--disable-retokenize", "--output-details"),
        *("--output-file", folder / "sglang.json"),
    ]
    return [sys.executable, "-c", program, str(library), *map(str, words)], read


def tokenizer(folder: Path) -> Path:
    """A tokenizer of a few hundred words, which the peers ask for."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    home = folder / "tokenizer"
    home.mkdir(exist_ok=True)
    made = Tokenizer(
        models.WordLevel({"[UNK]": 0, **{f"w{i}": i + 1 for i in range(500)}}, unk_token="[UNK]")
    )
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(home / "tokenizer.json"))
    (home / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}', encoding="utf-8"
    )
    return home


def number_in(text: str) -> int:
    """The server's number of a request, which its first token spells."""
    found = re.match(r" ?r(\d+)", text)
    return int(found.group(1)) if found else -1


def busy_s() -> float:
    """CPU seconds of the whole machine so far."""
    with Path("/proc/stat").open(encoding="utf-8") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def go_first() -> None:
    """In a client before it starts: a session of its own, and ahead of other sessions where that is allowed.

    With autogroups niceness works within a session only (sched(7)), so the session's own is set as well.
    """
    os.setsid()
    try:
        if REALTIME:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        Path("/proc/self/autogroup").write_text("-20", encoding="ascii")
    except OSError:
        pass


def measure(command: list[str], server_pid: int) -> Cost:
    """Run a client to its end. Raises RuntimeError where it fails."""
    began_s, busy_before, server_before = time.monotonic(), busy_s(), process_s(server_pid)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=go_first)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        log.seek(0)
        if status != 0:
            raise RuntimeError(f"{command[0]} failed: {log.read()[-600:].decode(errors='replace')}")
    wall_s = time.monotonic() - began_s
    cpu_s = used.ru_utime + used.ru_stime
    others_s = busy_s() - busy_before - cpu_s - (process_s(server_pid) - server_before)
    return Cost(cpu_s, used.ru_maxrss / 1024, wall_s, max(0.0, others_s / wall_s))


def process_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def errors(reported: list[Reported], truths: dict[int, Truth]) -> tuple[list[float], list[float], int]:
    """|TTFT error| and |ITL error| in ms, and answers that could not be matched."""
    ttft: list[float] = []
    itl: list[float] = []
    unmatched = 0
    for item in reported:
        truth = truths.get(item.number)
        if truth is None or len(truth.before_ns) != len(item.gaps_ms) + 1:
            unmatched += 1
            continue
        clean = [a - b < INTERRUPTED_NS for b, a in zip(truth.before_ns, truth.after_ns, strict=True)]
        if clean[0]:
            ttft.append(abs(item.ttft_ms - (truth.before_ns[0] - truth.arrival_ns) / 1e6))
        for i, (gap, (a, b)) in enumerate(zip(item.gaps_ms, pairwise(truth.before_ns), strict=True)):
            if clean[i] and clean[i + 1]:
                itl.append(abs(gap - (b - a) / 1e6))
    return ttft, itl, unmatched


def run(client: Client, streams: int, *, itl_us: int, waves: int) -> dict[str, float | str]:
    """One client at one number of streams."""
    cpus = sorted(os.sched_getaffinity(0))
    paced = itl_us > 0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with reference_server(
            ttft_us=50_000 if paced else 0,
            itl_us=itl_us,
            mark=True,
            cpu=cpus[0] if len(cpus) > 1 else -1,
            realtime=paced and len(cpus) > 1,
        ) as server:
            starts = [measure(client(server.url, 1, 1, 1, home)[0], server.process.pid) for _ in range(3)]
            start_s = sorted(start.cpu_s for start in starts)[1]
            command, read = client(server.url, streams, waves * streams, TOKENS, home)
            cost = measure(command, server.process.pid)
            for stale in home.glob("sglang.json"):
                lines = stale.read_text("utf-8").splitlines()
                stale.write_text(lines[-1], encoding="utf-8")
        reported = read()
        said = home / "run" / "void"
        void = said.read_text("utf-8") if said.exists() else ""
        truths = {number: truth for number, truth in server.truth.items() if len(truth.before_ns) == TOKENS}
    ttft, itl, unmatched = errors(reported, truths)
    sent = [at for truth in truths.values() for at in truth.before_ns]
    window_s = (max(sent) - min(sent)) / 1e9
    tokens = waves * streams * TOKENS
    q = lambda values, at: quantile(sorted(values), at) if values else float("nan")  # noqa: E731
    return {
        "ttft_p50": q(ttft, 0.5),
        "ttft_p99": q(ttft, 0.99),
        "itl_p50": q(itl, 0.5),
        "itl_p99": q(itl, 0.99),
        "us_token": (cost.cpu_s - start_s) * 1e6 / tokens,
        "start_s": start_s,
        "mb": cost.memory_mb,
        "missing": waves * streams - len(reported) + unmatched,
        "tok_s": len(sent) / window_s if window_s else 0.0,
        "others": cost.others,
        "void": void,
    }


def rows(clients: dict[str, Client], streams: list[int], runs: int) -> Iterator[dict[str, object]]:
    """Paced at 20 ms, clients in turn; then unpaced."""
    for n in streams:
        for _ in range(runs):
            for name, client in clients.items():
                yield {
                    "client": name,
                    "streams": n,
                    "pace": "20 ms",
                    **run(client, n, itl_us=20_000, waves=max(2, FEWEST // n)),
                }
    for _ in range(runs):
        for name, client in clients.items():
            yield {"client": name, "streams": 256, "pace": "none", **run(client, 256, itl_us=0, waves=8)}


def line(row: dict[str, object]) -> str:
    """One row of the table."""
    return (
        f"{row['pace']!s:6}{row['streams']:>5} {row['client']!s:10}{row['ttft_p50']:>8.3f}{row['ttft_p99']:>9.3f}"
        f"{row['itl_p50']:>8.4f}{row['itl_p99']:>9.4f}{row['us_token']:>7.1f}{row['mb']:>6.0f}"
        f"{row['start_s']:>7.2f}{row['missing']:>5}{row['tok_s']:>9.0f}{row['others']:>7.2f}"
        f"{'  voided by its own check: ' if row['void'] else ''}{row['void']}"
    )


def ratios(found: list[dict[str, object]]) -> Iterator[str]:
    """Ours to each peer's, by the median of the runs."""
    names = ("ttft_p99", "itl_p99", "us_token", "tok_s")
    runs: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for row in found:
        runs.setdefault((row["pace"], row["streams"], row["client"]), []).append(row)
    middle = {
        key: {name: median(float(str(row[name])) for row in rows) for name in names}
        for key, rows in runs.items()
    }
    for (pace, n, name), row in middle.items():
        mine = middle.get((pace, n, "uncork"))
        if name == "uncork" or mine is None:
            continue
        by = {key: mine[key] / row[key] for key in names}
        yield (
            f"{pace} x {n}: uncork / {name}: TTFT error p99 {by['ttft_p99']:.4f}, ITL error p99 {by['itl_p99']:.4f}, "
            f"CPU a token {by['us_token']:.2f}, tokens/s {by['tok_s']:.2f}"
        )


def main() -> None:
    """Print the table as it grows, then the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--streams", default="1,64,256,1024")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--realtime", action="store_true", help="all clients ahead of all else (SCHED_RR)")
    parser.add_argument("--own", nargs=5)
    asked = parser.parse_args()
    if asked.own:
        url, streams, requests, tokens, out = asked.own
        own(url, int(streams), int(requests), int(tokens), Path(out))
        return
    global REALTIME
    REALTIME = asked.realtime
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    clients: dict[str, Client] = {"uncork": uncork, **find_peers(asked.peers)}
    print("errors are |reported - true| in ms; us: CPU a token; start: CPU s of one request; others: cores")
    print(
        f"{'pace':6}{'n':>5} {'client':10}{'TTFT p50':>8}{'p99':>9}{'ITL p50':>8}{'p99':>9}{'us':>7}{'MB':>6}"
        f"{'start':>7}{'lost':>5}{'tok/s':>9}{'others':>7}"
    )
    found = []
    for row in rows(clients, [int(n) for n in asked.streams.split(",")], asked.runs):
        found.append(row)
        print(line(row), flush=True)
    for text in ratios(found):
        print(text)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
