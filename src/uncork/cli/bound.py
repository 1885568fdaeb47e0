"""uncork bound."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from uncork.model.bound import Hardware, ModelBytes, Parallel

app = typer.Typer(rich_markup_mode=None, add_completion=False)
Option = typer.Option


@app.command()
def bound(
    model_dir: Annotated[Path, typer.Argument(help="A folder with config.json, or a .gguf file.")],
    gpu: Annotated[str, Option(help="A device of the table, by id or by the name that NVML prints.")] = "",
    bandwidth: Annotated[
        float | None, Option(help="Memory bandwidth of one device, GB/s (goes first).")
    ] = None,
    memory: Annotated[float | None, Option(help="Memory of one device, GB (goes first).")] = None,
    copy: Annotated[float | None, Option(help="Measured copy on a device, GB/s read plus written.")] = None,
    on_cpu: Annotated[bool, Option("--cpu", help="Decode on this host's CPU; measures its memory.")] = False,
    this_host: Annotated[bool, Option("--this-host", help="Take the GPUs from this host's driver.")] = False,
    count: Annotated[int | None, Option(help="Devices in the host; else as many as the ranks need.")] = None,
    tp: Annotated[int, Option(help="Tensor-parallel ranks.")] = 1,
    pp: Annotated[int, Option(help="Pipeline stages.")] = 1,
    dp: Annotated[int, Option(help="Data-parallel attention replicas.")] = 1,
    ep: Annotated[int, Option(help="Ranks that the experts are spread over.")] = 1,
    dcp: Annotated[int, Option(help="Decode-context-parallel ranks.")] = 1,
    context: Annotated[int, Option(help="Cached tokens a sequence.")] = 1536,
    concurrency: Annotated[str, Option(help="Users at once, a list: 1,8,64.")] = "1,2,4,8,16,32,64",
    prompt: Annotated[int | None, Option(help="Prompt tokens, for the time to the first token.")] = None,
    answer: Annotated[int, Option(min=0, help="Answer tokens: also print throughput with prompts.")] = 0,
    measured: Annotated[float | None, Option(help="Measured output tok/s over all users.")] = None,
    run: Annotated[
        Path | None, Option(help="A folder of uncork bench: every level beside its bound.")
    ] = None,
    before: Annotated[
        Path | None, Option(help="An earlier such folder, with --run: which parts moved.")
    ] = None,
    allreduce_us: Annotated[Path | None, Option(help="This host's all-reduce: bytes and us a line.")] = None,
    kv_dtype: Annotated[str, Option(help="auto, bf16, fp8, nvfp4, q8_0, ...")] = "auto",
    max_num_seqs: Annotated[int | None, Option(help="The engine's limit of sequences at once.")] = None,
    memory_share: Annotated[float, Option(help="Share of memory that the engine may use.")] = 1.0,
    draft: Annotated[int, Option(help="Draft tokens a step (speculative decoding).")] = 0,
    accept: Annotated[float, Option(help="Tokens a step yields on average, with --draft.")] = 1.0,
    free_draft: Annotated[
        bool,
        Option("--free-draft", help="Drafts cost nothing (n-grams); else the MTP layer is read for each."),
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """The most tokens a second this model can give on this hardware, and what that assumes. Needs no host."""
    from uncork.bound import bound_for, fabric, hardware, model_bytes
    from uncork.bound.picture import draw
    from uncork.bound.prefill import prefill_bound
    from uncork.bound.report import Report, lines
    from uncork.cli.show import clean, print_json
    from uncork.errors import BadInput
    from uncork.model.bound import Parallel, Speculation

    model = model_bytes(model_dir)
    if this_host:
        device, found = _host_device()
        count = count or found
    else:
        device = _device(gpu, bandwidth, memory, on_cpu, model.weight_bytes)
    if copy is not None:
        device = hardware.with_copy(device, copy)
    users = _users(concurrency, measured)
    parallel = Parallel(tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp)
    curve = fabric.read_curve(allreduce_us, tp) if allreduce_us else None
    options = {
        "kv_dtype": kv_dtype,
        "curve": curve,
        "max_num_seqs": max_num_seqs,
        "memory_share": memory_share,
        "count": count,
        "speculation": Speculation(draft, accept, model.mtp_parameters > 0 and not free_draft)
        if draft
        else None,
    }
    if before and not run:
        raise BadInput("--before needs a later run beside it", next="add --run DIR")
    if run:
        _levels(model, device, parallel, options, run, before, as_json)
        return
    bounds = tuple(bound_for(model, device, parallel, context, n, **options) for n in users)
    first = prefill_bound(model, device, parallel, prompt or max(context, 1), curve=curve)
    report = Report.of(model, device, bounds, first, measured, answer)
    if as_json:
        print_json(report)
        return
    for line in [*lines(report), "", *draw(bounds, measured), "", *report.closing()]:
        typer.echo(clean(line))


def _levels(
    model: "ModelBytes",
    device: "Hardware",
    parallel: "Parallel",
    options: dict[str, Any],
    run: Path,
    before: Path | None,
    as_json: bool,
) -> None:
    """The levels of one run beside their bounds, or what moved since an earlier one."""
    from uncork.bound import levels
    from uncork.cli.show import clean, print_json
    from uncork.errors import BadInput

    read = [levels.measured_in(levels.read_run(str(folder))) for folder in (run, before) if folder]
    if not all(read):
        raise BadInput(
            "the run has no valid closed-loop level with times a token", next="uncork bench --concurrency 1,8"
        )
    rows = [levels.against(model, device, parallel, measured, **options) for measured in read]
    moved = levels.shifts(rows[1], rows[0]) if before else ()
    if as_json:
        print_json({"levels": rows[0], "before": rows[1] if before else (), "moved": moved})
        return
    lines = [*levels.beside(rows[0]), "", *levels.shift_lines(moved), ""]
    lines.append("Next: --concurrency N --measured TOK_S shows where the time of one level goes.")
    for line in lines:
        typer.echo(clean(line))


def _users(text: str, measured: float | None) -> list[int]:
    from uncork.errors import BadInput

    try:
        users = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        users = []
    if not users or min(users) < 1:
        raise BadInput(f"--concurrency: {text!r} is not a list of whole numbers such as 1,8,64")
    if measured is not None and len(users) > 1:
        raise BadInput("--measured is one figure, so give one --concurrency", next="add --concurrency 1")
    return users


def _host_device() -> "tuple[Hardware, int]":
    """The GPUs that this host's driver names, which must be alike, and how many there are."""
    from uncork.bound import hardware
    from uncork.errors import BadInput
    from uncork.explorers.driver import explore
    from uncork.host.live import LiveHost
    from uncork.model.unknown import is_unknown

    gpus = explore(LiveHost()).gpus
    if is_unknown(gpus) or not gpus:
        why = gpus.reason if is_unknown(gpus) else "no GPU answers"
        raise BadInput(
            f"--this-host: its GPUs could not be read: {why}", next="give --gpu NAME --count N, or --cpu"
        )
    devices = [hardware.from_gpu(gpu) for gpu in gpus]
    slowest = min(devices, key=lambda device: device.bandwidth_gb_s)
    return slowest, len(devices)


def _device(
    gpu: str, bandwidth: float | None, memory: float | None, on_cpu: bool, weight_bytes: int
) -> "Hardware":
    import msgspec

    from uncork.bound import hardware
    from uncork.errors import BadInput

    size = round(memory * 1e9) if memory else None
    if on_cpu:
        from uncork.bound.memory_speed import read_gb_s

        source = "given on the command line" if bandwidth else "read bandwidth measured on this host just now"
        return hardware.cpu(bandwidth or read_gb_s(weight_bytes), memory_bytes=size, source=source)
    if gpu:
        known = hardware.by_name(gpu)
        if bandwidth:
            given = hardware.by_bandwidth(bandwidth)
            known = msgspec.structs.replace(
                known, bandwidth_gb_s=bandwidth, bandwidth_source=given.bandwidth_source
            )
        return msgspec.structs.replace(known, memory_bytes=size) if size else known
    if bandwidth is None:
        raise BadInput(
            "which device? neither --gpu nor --bandwidth was given", next="add --gpu h100_sxm, for example"
        )
    return hardware.by_bandwidth(bandwidth, memory_bytes=size)
