"""Running servers, one by one: how to find and restart them."""

from collections.abc import Callable, Iterable, Iterator

from uncork.checks import INFO, NONE, Verdict, check, not_applicable, passes, unknown
from uncork.checks.gpus import each, ranks
from uncork.checks.hosts import known
from uncork.model.facts import Facts
from uncork.model.facts.engine import Server
from uncork.model.unknown import is_unknown


def name_of(server: Server) -> str:
    """What a finding calls a server."""
    return f"{server.kind} ({server.pid})" if server.pid else server.kind


def flag(server: Server, name: str) -> bool:
    """Whether a switch is on."""
    return server.flags.get(name, "false").lower() not in ("false", "0", "no", "")


def sign(facts: Facts, what: str) -> tuple[str, ...]:
    """Lines of the engine's log of one kind; none also where no log was given."""
    return () if is_unknown(facts.engine.signs) else facts.engine.signs.get(what, ())


def each_server(
    facts: Facts, judge: Callable[[Server], Iterable[Verdict]], *, kinds: tuple[str, ...] = ()
) -> Iterator[Verdict]:
    """Judge every server of these kinds; not applicable where none runs."""
    servers = [server for server in known(facts.engine.servers) if not kinds or server.kind in kinds]
    if not servers:
        yield not_applicable(
            "no inference server of this kind runs here"
            if facts.engine.servers
            else "no inference server runs here"
        )
        return
    yield from each(servers, name_of, judge)


@check("engine.discovery", INFO, NONE)
def discovery(facts: Facts) -> Iterator[Verdict]:
    """Which inference servers run.

    Effect: everything said about engines rests on it
    Sure: high
    Fix: none
    Undo: nothing to undo
    Wrong when: a server of a kind that is not known here
    Source: command lines of vLLM, SGLang, TensorRT-LLM, TGI, llama.cpp, lmdeploy, transformers, Ollama
    """

    def judge(server: Server) -> Iterator[Verdict]:
        version = "" if is_unknown(server.version) else f" {server.version}"
        model = "" if is_unknown(server.model) else f", {server.model}"
        where = "" if is_unknown(server.endpoint) else f" at {server.endpoint}"
        yield passes(f"{server.kind}{version}{model}{where}, {ranks(server)} ranks", name_of(server))

    yield from each_server(facts, judge)


@check("engine.restart-ability", INFO, NONE)
def restart(facts: Facts) -> Iterator[Verdict]:
    """Who would start a server again.

    Effect: a fix that needs a restart is planned only where its owner is known
    Sure: high
    Fix: none
    Undo: nothing to undo
    Wrong when: a supervisor that leaves no trace in control groups
    Source: systemd and container control group names
    """

    def judge(server: Server) -> Iterator[Verdict]:
        if is_unknown(server.unit):
            yield unknown(server.unit.reason, name_of(server))
        else:
            yield passes(f"started by {server.unit}", name_of(server))

    yield from each_server(facts, judge)
