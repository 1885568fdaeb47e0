"""Holds the bound against published measurements and writes docs/bound-cases.md.

    python benchmarks/bound_cases.py [--shared ../shared] [--write]

Each case of `facts/roofline-cases.json` is bounded from the model's config and the device table, never from
its measured value. Where a source leaves something open, the choice is the one that makes the bound highest.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from uncork.bound import bound_for, hardware, waterfall
from uncork.bound.checkpoint import from_config
from uncork.bound.formats import Format
from uncork.bound.prefill import prefill_bound, throughput_limit_tok_s
from uncork.bound.quantisation import Scheme
from uncork.errors import Refused
from uncork.model.bound import Bound, Hardware, ModelBytes, Parallel, Speculation

ROOT = Path(__file__).resolve().parents[1]
NVFP4_ALL = {
    "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
}
FP8_ALL = {
    "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
}
INT8_ROWS = {"quantization": {"quant_algo": "INT8_SQ", "exclude_modules": ["lm_head"]}}
INT4_G32 = {"quantization": {"quant_algo": "W4A16_AWQ", "group_size": 32, "exclude_modules": ["lm_head"]}}
# The smaller of the types that a Q4_K_M file mixes, for every matrix: fewer bytes than any such file reads.
Q4_K = Scheme("Q4_K", lambda _: Format("Q4_K", 4.5), "fp16", quantises_head=True)

LLAMA2 = {
    "7b": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
    },
    "70b": {
        "hidden_size": 8192,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "intermediate_size": 28672,
    },
}


class Result(msgspec.Struct, frozen=True):
    """One case: the silicon tier and what was measured, in the same unit, and the time left unexplained."""

    id: str
    label: str
    unit: str
    bound: float
    uniform: float | None  # the same with uniformly routed experts; not strict
    measured: float
    unexplained: float | None
    remark: str = ""

    @property
    def efficiency(self) -> float:
        """Measured / bound; above 1 the bound is wrong."""
        return self.measured / self.bound


def model_of(case: dict[str, Any], configs: Path) -> ModelBytes:
    """The checkpoint that a case names; where it names none exactly, the one that reads the fewest bytes."""
    name, weights = case["model"].lower(), case["weights"].lower()
    four = "fp4" in weights or "fp4" in name
    if "llama2" in name:
        shape = LLAMA2["70b" if "70b" in name else "7b"]
        config = {"model_type": "llama", "vocab_size": 32000, "torch_dtype": "bfloat16", **shape}
        quant = INT8_ROWS if "int8" in weights else INT4_G32 if "int4" in weights else None
        return from_config(config, quant, name=case["model"])
    scheme = Q4_K if "q4_k" in name else None
    table = (
        ("llama-3", "meta-llama--Meta-Llama-3.1-70B", NVFP4_ALL if four else FP8_ALL),
        ("gpt-oss", "openai--gpt-oss-120b", None),
        ("deepseek", "nvidia--DeepSeek-V3.1-NVFP4" if four else "deepseek-ai--DeepSeek-R1", None),
        ("kimi", "nvidia--Kimi-K2.5-NVFP4" if four else "moonshotai--Kimi-K2.5", None),
        ("minimax", "nvidia--MiniMax-M2.5-NVFP4" if four else "MiniMaxAI--MiniMax-M2.5", None),
        ("qwen3-235b", "nvidia--Qwen3-235B-A22B-NVFP4", None),
        ("qwen3.5", "nvidia--Qwen3.5-397B-A17B-NVFP4" if four else "Qwen--Qwen3.5-397B-A17B", FP8_ALL),
        ("qwen3.6", "nvidia--Qwen3.6-27B-NVFP4", None),
        ("gemma-4-31b", "nvidia--Gemma-4-31B-IT-NVFP4", None),
        ("glm-5.1", "nvidia--GLM-5.1-NVFP4", None),
        ("glm-5.2", "nvidia--GLM-5.2-NVFP4", None),
        ("glm-5", "nvidia--GLM-5-NVFP4" if four else "zai-org--GLM-5-FP8", None),
    )
    folder, quant = next((folder, quant) for key, folder, quant in table if key in name)
    path = configs / folder
    own = path / "hf_quant_config.json"
    if own.exists():
        quant = json.loads(own.read_text(encoding="utf-8"))
    return from_config(
        json.loads((path / "config.json").read_text(encoding="utf-8")),
        quant,
        name=case["model"],
        scheme=scheme,
    )


def device_of(case: dict[str, Any]) -> Hardware:
    """The device; a card of which the edition is not known counts as the faster one."""
    name = case["gpu"]
    if name == "rtx_pro_6000":
        return hardware.by_name("rtx_pro_6000_ws")
    return hardware.by_name("mi250x_gcd" if "one GCD" in name else name.split(" ")[0])


def parallel_of(case: dict[str, Any]) -> Parallel:
    """The layout, from a dictionary or from TensorRT-LLM's short form (TP2, DEP4, DEP2 PP2)."""
    given = case["parallel"]
    if isinstance(given, dict):
        return Parallel(**{name: n for name, n in given.items() if n})
    ranks = {kind: int(n) for kind, n in re.findall(r"(TP|PP|DEP)(\d+)", given)}
    both = ranks.get("DEP", 1)
    return Parallel(tp=ranks.get("TP", 1), pp=ranks.get("PP", 1), dp=both, ep=both)


def speculation_of(case: dict[str, Any]) -> Speculation | None:
    """What the source says about drafts; "unknown" stays none and the row says so."""
    given = case["spec_decode"]
    if not isinstance(given, dict):
        return None
    return Speculation(given["n_draft"], given["tokens_per_step"])


def context_of(case: dict[str, Any]) -> int:
    """Cached tokens in the middle of the answer."""
    return int((case["isl"] or 0) + (case["osl"] or 0) // 2)


def evaluate(case: dict[str, Any], configs: Path) -> Result:
    """Bound one case."""
    model, device, parallel = model_of(case, configs), device_of(case), parallel_of(case)
    label = f"{case['model']}, {case['n_gpus']}x {case['gpu']}, {case['mode']}"
    remark = "speculation unknown" if str(case["spec_decode"]).startswith("unknown") else ""
    if "probably MTP" in str(case["spec_decode"]):
        remark = "probably speculative"
    if case["mode"] == "prefill":
        first = prefill_bound(model, device, parallel, case["isl"])
        bound, measured = case["isl"] * 1e3 / first.silicon_ms, case["measured"]["prefill_tok_s"]
        return Result(case["id"], label, "prompt tok/s", bound, None, measured, None, remark)
    if case["mode"] == "max_throughput":
        bound = most(model, device, parallel, case)
        measured = case["measured"]["tok_s_per_gpu"] * case["n_gpus"]
        return Result(case["id"], label, "tok/s", bound, None, measured, None, "best concurrency that fits")
    users = case["concurrency"]
    limit = bound_for(model, device, parallel, context_of(case), users, speculation=speculation_of(case))
    total = case["measured"].get("tok_s_total") or case["measured"]["tok_s_user"] * users
    fall = waterfall.of(limit, total)
    unexplained = fall.bars[-1].ns / fall.measured_ns
    return Result(
        case["id"],
        f"{label} {users}",
        "tok/s",
        limit.silicon.tok_s,
        limit.silicon.tok_s_uniform,
        total,
        unexplained,
        remark,
    )


def most(model: ModelBytes, device: Hardware, parallel: Parallel, case: dict[str, Any]) -> float:
    """The highest throughput of any number of sequences that fits, prompts included."""
    first = prefill_bound(model, device, parallel, case["isl"])
    best, users = 0.0, 1
    while True:
        try:
            limit: Bound = bound_for(model, device, parallel, context_of(case), users)
        except Refused:
            return best
        best = max(best, throughput_limit_tok_s(limit, first, case["osl"]))
        if limit.batch < users or users > 1 << 16:
            return best
        users *= 2


def load(shared: Path) -> list[dict[str, Any]]:
    """Every case."""
    text = (shared / "facts/roofline-cases.json").read_text(encoding="utf-8")
    cases: list[dict[str, Any]] = json.loads(text)["cases"]
    return cases


def table(results: list[Result]) -> str:
    """docs/bound-cases.md."""
    shares = sorted(result.efficiency for result in results)
    lines = [
        "# Published measurements against the silicon tier",
        "",
        "Written by `python benchmarks/bound_cases.py --write`; do not edit. Each bound comes from the model's config",
        "and the device table alone. *Unexplained* is the share of a token's time that no bar of the waterfall covers;",
        "it is negative where a term taken from another host (all-reduce, kernel floor) is too high for this one.",
        "",
        f"{len(results)} cases, {sum(share > 1 for share in shares)} above the bound; efficiency: lowest"
        f" {shares[0]:.0%}, median {shares[len(shares) // 2]:.0%}, highest {shares[-1]:.0%}.",
        "",
        "*Bound* is for the fewest distinct experts, which alone cannot be beaten; *uniform* is the share of the bound",
        "with uniformly routed experts, closer to what real routing reads.",
        "",
        "| case | what | bound | measured | unit | efficiency | uniform | unexplained | remark |",
        "|---|---|---:|---:|---|---:|---:|---:|---|",
    ]
    for r in results:
        rest = "" if r.unexplained is None else f"{r.unexplained:.0%}"
        even = "" if r.uniform is None else f"{r.measured / r.uniform:.1%}"
        cells = (r.id, r.label, f"{r.bound:,.1f}", f"{r.measured:,.1f}", r.unit, f"{r.efficiency:.1%}")
        lines.append("| " + " | ".join((*cells, even, rest, r.remark)) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print what beats its bound; with --write, write the table. Exit status 1 where something does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    results = [evaluate(case, chosen.shared / "facts/model-configs") for case in load(chosen.shared)]
    text = table(results)
    if chosen.write:
        (ROOT / "docs/bound-cases.md").write_text(text, encoding="utf-8")
    print(text.splitlines()[6])
    beaten = [result for result in results if result.efficiency > 1]
    for result in beaten:
        print(f"BEATEN {result.id}: bound {result.bound:,.1f}, measured {result.measured:,.1f}")
    return 1 if beaten else 0


if __name__ == "__main__":
    sys.exit(main())
