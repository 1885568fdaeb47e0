"""A run as a table of 80 columns: one row a level, medians over its valid repeats."""

from collections.abc import Iterator, Sequence
from statistics import median

from uncork.bench.metrics import supports
from uncork.model.bench import BenchRun, Distribution, LevelResult

ENOUGH_TOKENS = 1000  # for a cost per token that is not the cost of starting
HEAD = f"{'level':16}{'runs':>5}{'tok/s':>9}{'+-%':>5}{'/user':>7}{'TTFT p50':>10}{'p99':>9}{'ITL p50':>9}{'p99':>9}"


def rows(run: BenchRun) -> Iterator[str]:
    """Head, one row a level, then what a reader must know about them."""
    yield HEAD
    by_level: dict[str, list[LevelResult]] = {}
    for result in run.levels:
        by_level.setdefault(result.level, []).append(result)
    weak = False
    for name, results in by_level.items():
        valid = [result for result in results if result.valid]
        if not valid:
            yield f"{name:16}{f'0/{len(results)}':>5}  void, see below"
            continue
        weak |= not supports(0.99, sum(result.completed for result in valid))
        yield _row(name, valid, len(results))
    yield ""
    yield "times in ms; tok/s of output; /user: tok/s one stream sees"
    if weak:
        yield "~ fewer than 299 requests: too few to bound a p99"
    yield from notes(run)


def _row(name: str, valid: Sequence[LevelResult], total: int) -> str:
    rates = [result.output_tok_s for result in valid]
    middle = median(rates)
    spread = f"{(max(rates) - min(rates)) / 2 / middle * 100:.0f}" if len(rates) > 1 and middle else "-"
    mark = "" if supports(0.99, sum(result.completed for result in valid)) else "~"
    ttft = [result.ttft_intended_ms or result.ttft_ms for result in valid]
    itl = [result.itl_ms or result.chunk_interval_ms for result in valid]
    users = [result.per_user_tok_s.p50 for result in valid if result.per_user_tok_s]
    return (
        f"{name[:16]:16}{f'{len(valid)}/{total}':>5}{number(middle):>9}{spread:>5}"
        f"{number(median(users)) if users else '-':>7}"
        f"{_p50(ttft):>10}{_p99(ttft, mark):>9}{_p50(itl):>9}{_p99(itl, mark):>9}"
    )


def _p50(values: Sequence[Distribution | None]) -> str:
    known = [value.p50 for value in values if value]
    return number(median(known)) if known else "-"


def _p99(values: Sequence[Distribution | None], mark: str) -> str:
    known = [value.p99 for value in values if value]
    return mark + number(median(known)) if known else "-"


def number(value: float) -> str:
    """Three significant figures, without an exponent."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def notes(run: BenchRun) -> Iterator[str]:
    """Void levels, failures, short answers, disturbances; then the client's own account."""
    for result in run.levels:
        where = f"{result.level}, repeat {result.repeat + 1}"
        if not result.valid:
            yield f"void: {where}: {result.invalid_reason}"
        elif result.failed:
            said = ", ".join(f"{n} {outcome}" for outcome, n in result.failed.items())
            yield f"failed: {where}: {said} of {result.requests}"
        for flag, meaning in FLAGS.items():
            if result.flags.get(flag):
                yield f"note: {where}: {result.flags[flag]} of {result.completed} {meaning}"
        for disturbance in result.disturbances:
            yield f"disturbed: {where}: {disturbance}"
    yield from client_notes(run)


FLAGS = {
    "short": "answers were shorter than asked for",
    "long": "answers were longer than asked for",
    "no-usage": "answers had no usage record: tokens are events",
    "wrong-finish": "answers of full length gave another finish reason",
    "off-length": "prompts were not of the length asked for (see requests.jsonl)",
}


def client_notes(run: BenchRun) -> Iterator[str]:
    """What measured, and at what cost to the host it measured."""
    checks = [result.client for result in run.levels]
    if not checks:
        return
    sources = sorted({check.stamp_source for check in checks})
    costs = [
        result.client.cpu_us_per_token
        for result in run.levels
        if result.client.cpu_us_per_token is not None and result.output_tokens >= ENOUGH_TOKENS
    ]
    lags = [check.lag_p99_ms for check in checks if check.lag_p99_ms is not None]
    reads = ", read in " + "/".join(sorted({check.reads.title() for check in checks}))
    cost = f", {min(costs):.0f} to {max(costs):.0f} us/token" if costs else ""
    lag = f", read up to {max(lags):.1f} ms late (p99)" if lags else ""
    yield f"client: {'/'.join(sources)} receive stamps{reads}{lag}{cost}"
