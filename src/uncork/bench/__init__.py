"""Load generator, suite, metrics, telemetry, fingerprint, statistics, comparison, importers.

Interface
---------
    from uncork.bench.spec import SuiteSpec, Level, parse_levels, quick_levels, full_levels
    from uncork.bench.suite import run_suite, Progress, Reading

    spec = SuiteSpec(endpoint="http://127.0.0.1:8000", levels=parse_levels("1,64"), repeats=3, seed=1)
    run = run_suite(spec, out=Path("before"), progress=show)     # -> uncork.model.bench.BenchRun

`progress` gets a `Progress` about ten times a second. `watch(level, repeat)` may give a context manager that
is entered before a level's first request and left after its last; it yields a `Reading` whose telemetry and
disturbances are written on the level. `fingerprint()` is asked once and stored as `BenchRun.fingerprint`.

`run_suite` raises `NoServer`, `ServerDied` (what was finished is in `out`), `BadInput`, `MeasureFailed`. Called
again with the same spec and `out` it runs only what is missing, and returns the whole run.

A `LevelResult` is one level in one repeat: the unit of the statistics is the repeat. Levels of two runs are
paired by `level` and `repeat`. Use only those with `valid`; `invalid_reason` says why not.

What is measured, the files of `out`, and requests.jsonl line by line: docs/bench.md.
"""
