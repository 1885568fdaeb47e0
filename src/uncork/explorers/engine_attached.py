"""An engine that is known only from what people attached: a command line, a unit or YAML file, its log."""

from uncork.explorers import engine_environ, reading
from uncork.explorers.engine_argv import ALIASES, MASK, masked
from uncork.host import Host
from uncork.model.facts.engine import Server
from uncork.model.unknown import Unknown
from uncork.parsers import collect_env, engine_command, engine_log, environment, packages

_ONLY_TEXT = Unknown("the engine is known from text only")
# Keys of engines' files that tell which engine they are for.
_VLLM = {"enforce-eager", "gpu-memory-utilization", "max-num-seqs", "tensor-parallel-size", "max-model-len"}
_SGLANG = {
    "mem-fraction-static",
    "disable-cuda-graph",
    "disable-radix-cache",
    "tp-size",
    "chunked-prefill-size",
}


def read(
    host: Host,
) -> tuple[tuple[Server, ...], dict[str, str] | Unknown, dict[str, tuple[str, ...]] | Unknown, bool]:
    """Servers, variables and log lines of the attached texts, and whether a log holds its start."""
    commands = reading.attached(host, "engine-command")
    told = [engine_log.parse(text) for text in reading.attached(host, "application-log")]
    logs = [engine_log.parse(text) for text in reading.attached(host, "engine-log")]
    reports = [collect_env.parse(text) for text in reading.attached(host, "collect-env")]
    variables: dict[str, str] = {}
    for report in reports:
        variables |= report.environment
    for text in reading.attached(host, "environment"):
        variables |= environment.parse(text)
    found: dict[str, str] = {}
    for report in reports:
        found |= report.packages
    for text in reading.attached(host, "packages"):
        found |= packages.parse(text)
    kept = engine_environ.kept("\0".join(f"{name}={value}" for name, value in variables.items()))
    environ = kept or Unknown("no environment was given")
    signs = _signs(logs + told)
    from_start = any(log.arguments or log.version for log in logs)
    flags, kind, version = _command(commands, logs, found)
    if not flags and kind is None:
        return (), environ, signs, from_start
    return (_server(kind or "engine", flags, version, environ, found),), environ, signs, from_start


def _signs(logs: list[engine_log.Log]) -> dict[str, tuple[str, ...]] | Unknown:
    if not logs:
        return Unknown("the engine's log was not given")
    found: dict[str, list[str]] = {}
    for log in logs:
        for sign in log.signs:
            found.setdefault(sign.what, []).append(masked(sign.text))
    return {what: tuple(lines) for what, lines in found.items()}


def _command(
    commands: tuple[str, ...], logs: list[engine_log.Log], found: dict[str, str]
) -> tuple[dict[str, str], str | None, str | None]:
    """Flags, engine and version over all texts; a command line wins over what a log prints."""
    flags: dict[str, str] = {}
    kind = version = None
    for log in logs:
        kind, version = kind or log.engine, version or log.version
        flags |= {name.replace("_", "-"): value for name, value in log.arguments.items() if value != "None"}
    flags = {name: "true" if value == "True" else value for name, value in flags.items() if value != "False"}
    for text in commands:
        command = engine_command.parse(text)
        kind, version = command.engine or kind, command.version or version
        flags |= command.flags
    names = set(flags)
    if kind is None and names & _SGLANG:
        kind = "sglang"
    elif kind is None and names & _VLLM:
        kind = "vllm"
    version = version or found.get(kind or "")
    aliases = ALIASES.get(kind or "", {})
    shown = {aliases.get(name, name): masked(value) for name, value in flags.items()}
    for name in shown:
        if "key" in name or ("token" in name and "tokeni" not in name and "tokens" not in name):
            shown[name] = MASK
    return {n: v for n, v in shown.items() if v.lower() not in ("false", "no")}, kind, version


def _server(
    kind: str,
    flags: dict[str, str],
    version: str | None,
    environ: dict[str, str] | Unknown,
    found: dict[str, str],
) -> Server:
    return Server(
        kind=kind,
        pid=0,
        start_ticks=_ONLY_TEXT,
        endpoint=_ONLY_TEXT,
        model=flags.get("model") or flags.get("model-path") or _ONLY_TEXT,
        flags=flags,
        environ=environ,
        version=version or Unknown("no text names the engine's version"),
        packages=found or _ONLY_TEXT,
        command=(),
        processes=(),
        libraries=_ONLY_TEXT,
        cgroup=_ONLY_TEXT,
        unit=_ONLY_TEXT,
        oom_score_adj=_ONLY_TEXT,
        memlock_bytes=_ONLY_TEXT,
        nofile=_ONLY_TEXT,
    )
