"""A server that answers, with everything needed to ask it."""

import hashlib
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from uncork.bench import api as dialects
from uncork.bench.datasets import read_prompts
from uncork.bench.endpoint import Endpoint, ask, parse_endpoints, tls_context
from uncork.bench.lengths import Lengths, measure_lengths
from uncork.bench.pool import Pool
from uncork.bench.probe import find_api, find_model
from uncork.bench.prompts import level_prompts
from uncork.bench.sockets import keep_stamps_on
from uncork.bench.spec import Level, SuiteSpec
from uncork.bench.workload import Prompt
from uncork.errors import MeasureFailed


class Target:
    """Endpoints, model, dialect, prompt lengths and what the warm-up learnt."""

    def __init__(
        self, spec: SuiteSpec, endpoints: tuple[Endpoint, ...], model: str, api: dialects.Api
    ) -> None:
        self.spec = spec
        self.endpoints = endpoints
        self.model = model
        self.api = api
        self.context = tls_context(spec.insecure) if any(e.tls for e in endpoints) else None
        weakref.finalize(self, keep_stamps_on().close)
        self.lengths = Lengths()
        self.e2e_ns = 0  # of a warm request, 0 before any
        self.warm: set[str] = set()  # levels whose shape the server has seen
        self.options = dialects.Options(
            model=model,
            temperature=spec.temperature,
            ignore_eos=spec.ignore_eos,
            usage_per_chunk=spec.usage_per_chunk,
            extra=spec.body,
        )

    @property
    def workload_hash(self) -> str:
        """Of everything that decides what kind of requests are sent, but not to whom.

        The seed and the number of repeats stay out: a second run must draw other prompts of the same kind, or a
        prefix cache answers it.
        """
        spec = self.spec
        path = Path(spec.workload.path)
        content = (
            hashlib.sha256(path.read_bytes()).hexdigest() if spec.workload.path and path.is_file() else ""
        )
        decides = (
            *(spec.levels, spec.requests, spec.input_len, spec.output_len),
            *(spec.workload, content, spec.ignore_eos, spec.temperature, spec.body, self.api.name),
        )
        return hashlib.sha256(msgspec.json.encode(decides, order="deterministic")).hexdigest()[:16]

    def requests(self, level: Level) -> int:
        """How many requests one repeat of a level has."""
        asked = level.requests or self.spec.requests
        if level.arrival == "trace":
            lines = len(self.trace_s())
            return min(asked or lines, lines)
        if asked:
            return asked
        if level.concurrency:
            return max(16, 4 * level.concurrency)
        return max(16, round(30 * (level.rate_s or 1)))

    def sizes(self, level: Level) -> tuple[int, int]:
        """Input and output tokens of a level."""
        return level.input_len or self.spec.input_len, level.output_len or self.spec.output_len

    def trace_s(self) -> tuple[float, ...]:
        """Send times of the workload's trace."""
        workload = self.spec.workload
        found = read_prompts("trace", Path(workload.path), self.spec.output_len, self.lengths)
        return tuple(prompt.at_s for prompt in found)

    def prompts(self, level: Level, seed: int) -> Iterator[Prompt]:
        """The prompts of a level."""
        sizes = self.sizes(level)
        return level_prompts(self.spec.workload, seed, *sizes, self.lengths, level.concurrency or 1)

    def pool(self) -> Pool:
        """A new pool of connections."""
        return Pool(self.endpoints, self.api.path, self.spec.headers, self.context)

    def ask_usage(self, text: str) -> int | None:
        """Prompt tokens of one request for one token, as the server counts them."""
        prompt = Prompt(text, 0, 1)
        body = self.api.body(prompt, 1, self.options)
        body |= {"stream": False} | ({"stream_options": None} if "stream_options" in body else {})
        body = {name: value for name, value in body.items() if value is not None}
        status, answer = ask(
            self.endpoints[0],
            self.api.path,
            body,
            headers=self.spec.headers,
            insecure=self.spec.insecure,
            timeout_s=min(120.0, self.spec.request_timeout_s),
        )
        if status >= 400:
            raise refused(self.endpoints[0], status, answer)
        counts = _first(answer, ("usage", "meta_info")) or answer
        found = _first(counts, ("prompt_tokens", "prompt_eval_count"))
        return found if isinstance(found, int) else None


def refused(endpoint: Endpoint, status: int, answer: Any) -> MeasureFailed:
    """What to say when a server does not take our requests."""
    said = _first(answer, ("error", "detail", "message"))
    detail = _first(said, ("message",)) or said or "no reason given"
    return MeasureFailed(
        f"{endpoint.url} refuses a request with HTTP {status}: {str(detail)[:200]}; nothing was measured.",
        next="check --model and --api; a server that refuses ignore_eos takes --stop-early",
    )


def _first(value: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in names if value.get(name) is not None), None)


def prepare(spec: SuiteSpec, *, lengths: Lengths | None = None) -> Target:
    """Find out what answers at the endpoint. Raises `NoServer`, `BadInput`, `MeasureFailed`."""
    endpoints = parse_endpoints(spec.endpoint)
    model = ""
    for endpoint in endpoints:
        model = find_model(endpoint, spec) or model
    api = find_api(endpoints[0], spec)
    target = Target(spec, endpoints, model, dialects.load(api))
    target.lengths = lengths or measure_lengths(endpoints[0], spec, model, api, target.ask_usage)
    return target
