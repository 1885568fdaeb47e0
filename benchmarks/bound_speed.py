"""How long `uncork bound` takes, against Python starting and against `uncork --help`, in the same run.

python benchmarks/bound_speed.py [ROUNDS]
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLM = ROOT / "tests/bound/models/GLM-5-NVFP4"
UNCORK = [sys.executable, "-c", "from uncork.cli.main import main; main()"]


def seconds(argv: list[str]) -> tuple[float, float]:
    """(wall, processor) time of one run; the second is what a busy machine disturbs least."""
    used, started = os.times(), time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    wall, after = time.perf_counter() - started, os.times()
    busy = after.children_user + after.children_system - used.children_user - used.children_system
    return wall, busy


def checkpoint(folder: Path) -> Path:
    """GLM-5's config beside one header that lists all its 58,000 routed-expert tensors and the rest (no data)."""
    for name in ("config.json", "hf_quant_config.json"):
        (folder / name).write_bytes((GLM / name).read_bytes())
    names = ["model.embed_tokens", "lm_head"]
    for layer in range(78):
        at = f"model.layers.{layer}"
        names += [
            f"{at}.self_attn.{part}" for part in ("q_a_proj", "q_b_proj", "kv_b_proj", "o_proj", "indexer.wk")
        ]
        names += [f"{at}.mlp.{part}" for part in ("gate_proj", "up_proj", "down_proj")] if layer < 3 else []
        if layer >= 3:
            names += [f"{at}.mlp.gate", f"{at}.mlp.shared_experts.up_proj"]
            names += [
                f"{at}.mlp.experts.{n}.{part}_proj" for n in range(256) for part in ("gate", "up", "down")
            ]
    entries = {
        f"{name}.weight": {"dtype": "BF16", "shape": [8, 8], "data_offsets": [0, 128]} for name in names
    }
    raw = json.dumps(entries).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw)
    return folder


def main() -> None:
    """Print the best of ROUNDS runs of each, and the ratios."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    layout = ["--gpu", "rtx_pro_6000_ws", "--count", "8", "--tp", "8"]
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "uncork --help": [*UNCORK, "--help"],
            "uncork bound, config": [*UNCORK, "bound", str(GLM), *layout],
            "uncork bound, 58k headers": [*UNCORK, "bound", str(checkpoint(Path(folder))), *layout],
        }
        times = {name: [seconds(argv) for _ in range(rounds)] for name, argv in runs.items()}
    wall = {name: min(one[0] for one in found) for name, found in times.items()}
    busy = {name: min(one[1] for one in found) for name, found in times.items()}
    for name in runs:
        ratio = wall[name] / wall["uncork --help"]
        print(
            f"{name:<28} {wall[name] * 1e3:7.0f} ms wall {busy[name] * 1e3:7.0f} ms cpu {ratio:5.2f} x --help"
        )


if __name__ == "__main__":
    main()
