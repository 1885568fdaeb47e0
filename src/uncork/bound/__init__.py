"""The theoretical maximum: GPU table, model bytes, decode and prefill bounds, waterfall.

Interface (everything takes and returns the nouns of `uncork.model.bound`; nothing here needs a host):

    model = model_bytes(Path("model-folder-or-file.gguf"))       # ModelBytes; raises BadInput naming the key
    device = hardware.by_name("rtx_pro_6000_ws")                 # or by_bandwidth, cpu, from_readings(NVML facts)
    bound = bound_for(model, device, Parallel(tp=8), context_len=1536, concurrency=4)

    bound.silicon.tok_s        tokens/s over all users that nothing can beat (bound.silicon.tok_s_user for one)
    bound.fabric, .engine      the same with the collectives, with kernel floors; .ideal without replication
    bound.silicon.tok_s_uniform  with uniformly routed experts; equal to tok_s for dense models and one user
    bound.assumptions          lines to print beside the number

`bound_for` takes as options `curve=` (this host's all-reduce, `fabric.measured_curve(points, ranks, source)`),
`speculation=`, `kv_dtype=`, `max_num_seqs=`, `memory_share=`, `count=`. It raises Refused where weights or KV
cache do not fit. On a host: `hardware.from_gpu(gpu_facts, copy_gb_s=...)`. On a CPU: `hardware.cpu(gb_s, source=...)`
with `memory_speed.read_gb_s(model.weight_bytes)`: a buffer as large as the model, since one that fits the last cache
is read from there, several times faster than memory.

    efficiency.of(tok_s, bound)                  measured / each tier
    waterfall.of(bound, tok_s)                   where a token's time went; bars sum to the measured ns exactly
    waterfall.moved(before, after)               which bars moved, largest first
    levels.against(model, device, parallel, levels.measured_in(run))   a BenchRun's levels beside their bounds
    levels.beside(rows), levels.shifts(before_rows, after_rows)        as a table; which bars moved by level
    prefill.prefill_bound(model, device, parallel, prompt_len)     least time to the first token
"""

from pathlib import Path
from typing import Any

from uncork.model.bound import Bound, Hardware, ModelBytes, Parallel


def model_bytes(folder: Path) -> ModelBytes:
    """What the model in `folder` (or a GGUF file) reads and keeps. Raises BadInput naming the key that is wrong."""
    from uncork.bound.checkpoint import model_bytes as read

    return read(folder)


def bound_for(
    model: ModelBytes,
    hardware: Hardware,
    parallel: Parallel,
    context_len: int,
    concurrency: int,
    **options: Any,
) -> Bound:
    """The tiers in tokens/s at one concurrency; see `decode.decode_bound` for options and errors."""
    from uncork.bound.decode import decode_bound

    return decode_bound(model, hardware, parallel, context_len, concurrency, **options)
