"""What `uncork bound` says, as data and as lines of at most 80 columns."""

import textwrap
from functools import partial

import msgspec

from uncork.bound import efficiency, waterfall
from uncork.bound.efficiency import Efficiency
from uncork.bound.layout import UNREAD, weights_per_rank
from uncork.bound.prefill import throughput_limit_tok_s, throughput_serial_tok_s
from uncork.model.bound import Bound, Hardware, ModelBytes, Prefill, Role, Tier, Waterfall

wrap = partial(textwrap.wrap, break_on_hyphens=False)


class Steady(msgspec.Struct, frozen=True):
    """Output tokens/s over all users when answers of `output_len` tokens follow prompts, without a pause."""

    concurrency: int
    output_len: int
    silicon_tok_s: float
    fabric_tok_s: float  # with uniform routing


class Report(msgspec.Struct, frozen=True):
    """Everything that one call of `uncork bound` found."""

    model: ModelBytes
    hardware: Hardware
    bounds: tuple[Bound, ...]
    prefill: Prefill
    read_bytes_per_token: int  # of weights, one user
    weight_bytes_per_device: int
    efficiency: Efficiency | None = None
    waterfall: Waterfall | None = None
    measured_tok_s: float | None = None
    steady: tuple[Steady, ...] = ()

    @classmethod
    def of(
        cls,
        model: ModelBytes,
        hardware: Hardware,
        bounds: tuple[Bound, ...],
        prefill: Prefill,
        measured: float | None,
        output_len: int = 0,
    ) -> "Report":
        """Put together; the measured speed belongs to the first bound."""
        return cls(
            model=model,
            hardware=hardware,
            bounds=bounds,
            prefill=prefill,
            read_bytes_per_token=read_bytes_per_token(model),
            weight_bytes_per_device=round(weights_per_rank(model, bounds[0].parallel)),
            efficiency=efficiency.of(measured, bounds[0]) if measured is not None else None,
            waterfall=waterfall.of(bounds[0], measured) if measured is not None else None,
            measured_tok_s=measured,
            steady=tuple(_steady(bound, prefill, output_len) for bound in bounds) if output_len else (),
        )

    def closing(self) -> list[str]:
        """What to do next."""
        if self.measured_tok_s is None:
            return ["Next: --measured TOK_S --concurrency N shows where the rest of the time goes."]
        return ["Next: uncork audit, and look at the checks named beside the longest bars."]


def _steady(bound: Bound, prefill: Prefill, output_len: int) -> Steady:
    return Steady(
        bound.concurrency,
        output_len,
        throughput_limit_tok_s(bound, prefill, output_len),
        throughput_serial_tok_s(bound, prefill, output_len),
    )


def read_bytes_per_token(model: ModelBytes) -> int:
    """The bytes of weights that decoding one token of one user reads, over all devices, nothing replicated."""
    read = 0.0
    for part in model.parts:
        if not part.mtp and part.role not in UNREAD:
            read += part.bytes * (model.experts_per_token / model.experts if part.role is Role.ROUTED else 1)
    return round(read)


def lines(report: Report) -> list[str]:
    """The report for a person."""
    first = report.bounds[0]
    text = [*_head(report), "", *_parts(report), "", *_table(report.bounds), "", *_first_token(report)]
    if report.waterfall and report.efficiency:
        text += ["", *_efficiency(report), "", *_waterfall(report.waterfall)]
    text += ["", "Assumed:"]
    for line in dict.fromkeys((*first.assumptions, *report.prefill.assumptions)):
        text += wrap(line, 78, initial_indent="- ", subsequent_indent="  ")
    return text


def _head(report: Report) -> list[str]:
    model, first = report.model, report.bounds[0]
    layout = " ".join(
        f"{name.upper()}{n}"
        for name, n in msgspec.structs.asdict(first.parallel).items()
        if n > 1 or name == "tp"
    )
    devices = first.parallel.tp * first.parallel.pp * first.parallel.dp
    mtp = sum(part.bytes for part in model.parts if part.mtp)
    text = [
        f"{model.name} on {devices} x {report.hardware.name}"[:80],
        f"{layout}, {first.context_len:,} tokens of context, KV {first.kv_format}",
        f"{model.parameters / 1e9:,.2f} B parameters, {model.active_parameters / 1e9:.2f} B active, "
        f"{(model.weight_bytes - mtp) / 1e9:,.1f} GB of weights"
        + (f" + {mtp / 1e9:.1f} GB MTP" if mtp else ""),
        f"{report.weight_bytes_per_device / 1e9:.1f} GB of weights a device",
        f"KV cache {first.kv_bytes_per_token:,} bytes a token"
        + (f", room for {first.kv_tokens:,} tokens" if first.kv_tokens is not None else ""),
    ]
    return text


def _parts(report: Report) -> list[str]:
    model = report.model
    text = [f"One token reads {report.read_bytes_per_token / 1e9:.2f} GB of weights:"]
    for part in sorted(model.parts, key=lambda p: -p.bytes):
        if part.mtp or part.role in UNREAD:
            continue
        share = model.experts_per_token / model.experts if part.role is Role.ROUTED else 1
        size = part.bytes * share / 1e9
        if size >= 0.005:
            text.append(f"  {size:8.2f} GB  {part.role:<18} {part.format:<14} {part.sharding}")
    return text


def _number(value: float) -> str:
    """Four digits or more of what matters: 74.0, 1,262, 287k."""
    if value >= 100_000:
        return f"{value / 1e3:,.0f}k"
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _range(tier: Tier) -> str:
    low, high = tier.tok_s_uniform, tier.tok_s
    if f"{low:.3g}" == f"{high:.3g}":
        return _number(high)
    return "-".join(f"{value:,.0f}" if value < 1000 else _number(value) for value in (low, high))


def _table(bounds: tuple[Bound, ...]) -> list[str]:
    mixture = bounds[0].best.distinct_experts > 0
    text = [
        "Tokens a second over all users"
        + (" (uniform routing - fewest experts a layer):" if mixture else ":"),
        f"{'users':>6} {'ideal sharding':>15} {'silicon':>14} {'fabric':>14} {'engine':>14}"
        + (f" {'experts':>9}" if mixture else ""),
    ]
    for bound in bounds:
        cells = [_range(tier) for tier in (bound.ideal, bound.silicon, bound.fabric, bound.engine)]
        row = f"{bound.concurrency:>6} {cells[0]:>15} " + " ".join(f"{cell:>14}" for cell in cells[1:])
        most, fewest = f"{bound.uniform.distinct_experts:.0f}", f"{bound.best.distinct_experts:.0f}"
        text.append(row + (f" {most if most == fewest else f'{most}-{fewest}':>9}" if mixture else ""))
    return text


def _first_token(report: Report) -> list[str]:
    first = report.prefill
    text = [
        f"First token after {first.prompt_len:,} of prompt: at least "
        f"{_number(first.silicon_ms)} ms silicon, {_number(first.fabric_ms)} fabric"
    ]
    for one in report.steady:
        text.append(
            f"  {one.concurrency:>6} users, answers of {one.output_len:,}: "
            f"{_number(one.silicon_tok_s)} tok/s silicon, {_number(one.fabric_tok_s)} fabric"
        )
    return text


def _efficiency(report: Report) -> list[str]:
    share = report.efficiency
    assert share is not None and report.measured_tok_s is not None
    text = [f"Measured {report.measured_tok_s:,.2f} tok/s:"]
    for name in ("silicon", "fabric", "engine"):
        low, high = getattr(share, name)
        span = f"{low:.1%}" if f"{low:.3f}" == f"{high:.3f}" else f"{low:.1%}-{high:.1%}"
        text.append(f"  {span:>14} of the {name} tier" + ("  BEATEN" if name in share.beaten else ""))
    if "silicon" in share.beaten:
        text.append("  Nothing beats the silicon tier: the model, the device or the batch is wrong.")
    text += wrap(
        efficiency.typical(report.bounds[0], report.model.family),
        78,
        initial_indent="  ",
        subsequent_indent="  ",
    )
    return text


def _waterfall(fall: Waterfall) -> list[str]:
    text = [f"Where {fall.measured_ms:,.3f} ms a token went:"]
    for bar in fall.bars:
        share = bar.ns / fall.measured_ns
        drawn = "#" * round(min(max(share, 0), 1) * 30)
        text.append(f"  {bar.ms:>10,.3f} ms {share:>6.1%}  {bar.part:<19}{drawn}".rstrip())
    if fall.bars[-1].ns < 0:
        text.append("  A term above is too high for this host, often a foreign all-reduce: measure.")
    text += ["", "What each part points at (uncork explain CHECK):"]
    for bar in fall.bars:
        if bar.ns:
            text += wrap(f"{bar.part}: {bar.advice}", 78, initial_indent="  ", subsequent_indent="    ")
            text += wrap(" ".join(bar.checks), 74, initial_indent="    ", subsequent_indent="    ")
    return text
