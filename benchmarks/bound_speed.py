"""How long `uncork bound` takes, against Python starting and against `uncork --help`, in the same run.

python benchmarks/bound_speed.py [ROUNDS]
"""

import json
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLM = ROOT / "tests/bound/models/GLM-5-NVFP4"
UNCORK = [sys.executable, "-c", "from uncork.cli.main import main; main()"]


def seconds(argv: list[str]) -> float:
    """Wall time of one run."""
    started = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - started


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
        best = {name: min(seconds(argv) for _ in range(rounds)) for name, argv in runs.items()}
    for name, took in best.items():
        print(f"{name:<28} {took * 1e3:7.1f} ms   {took / best['uncork --help']:5.2f} x --help")


if __name__ == "__main__":
    main()
