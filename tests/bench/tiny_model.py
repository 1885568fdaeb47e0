"""A random llama model of a few hundred kilobytes in GGUF, for a real llama.cpp server in tests.

Layout of the file: docs/gguf.md of the ggml project (version 3). Its words are those of our random prompts;
all other text falls back to bytes, so that tokens and visible pieces differ, as they do in real models.
"""

import struct
from pathlib import Path

import numpy as np

from uncork.bench.lengths import WORDS

WIDTH, LAYERS, HEADS, CONTEXT = 64, 1, 4, 8192
ALIGN = 32
U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: int, value: object) -> bytes:
    if kind == STRING:
        return _text(str(value))
    return struct.pack({U32: "<I", I32: "<i", F32: "<f"}[kind], value)


def _entry(key: str, kind: int, value: object) -> bytes:
    if isinstance(value, list):
        items = b"".join(_value(kind, item) for item in value)
        return _text(key) + struct.pack("<IIQ", ARRAY, kind, len(value)) + items
    return _text(key) + struct.pack("<I", kind) + _value(kind, value)


def _tensors(words: int, layers: int) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(0)

    def dense(rows: int, columns: int) -> np.ndarray:
        return (chance.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    ones = np.ones(WIDTH, np.float32)
    found = {
        "token_embd.weight": dense(words, WIDTH),
        "output_norm.weight": ones,
        "output.weight": dense(words, WIDTH),
    }
    for layer in range(layers):
        shapes = {"attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH)}
        shapes |= {
            "attn_output": (WIDTH, WIDTH),
            "ffn_gate": (3 * WIDTH, WIDTH),
            "ffn_up": (3 * WIDTH, WIDTH),
        }
        shapes |= {"ffn_down": (WIDTH, 3 * WIDTH)}
        found |= {f"blk.{layer}.{name}.weight": dense(*shape) for name, shape in shapes.items()}
        found |= {f"blk.{layer}.attn_norm.weight": ones, f"blk.{layer}.ffn_norm.weight": ones}
    return found


def write_tiny_model(path: Path, *, layers: int = LAYERS) -> Path:
    """Write the model; a few milliseconds. More layers make it slower, and nothing else."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "\u2581"]
    # Pieces are joined two by two, so a word is a token only where each of its beginnings is one.
    tokens += sorted({letter for word in WORDS for letter in word})
    tokens += sorted({f"\u2581{word[:n]}" for word in WORDS for n in range(1, len(word) + 1)})
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    scores = [0.0] * 3 + [-1e4] * 256 + [-float(i) for i in range(len(tokens) - 259)]
    fields = [
        *(
            ("general.architecture", STRING, "llama"),
            ("general.name", STRING, "tiny"),
            ("general.file_type", U32, 0),
        ),
        *(("llama.context_length", U32, CONTEXT), ("llama.embedding_length", U32, WIDTH)),
        *(("llama.block_count", U32, layers), ("llama.feed_forward_length", U32, 3 * WIDTH)),
        *(("llama.attention.head_count", U32, HEADS), ("llama.attention.head_count_kv", U32, HEADS)),
        *(("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), ("llama.vocab_size", U32, len(tokens))),
        *(("llama.rope.dimension_count", U32, WIDTH // HEADS), ("tokenizer.ggml.model", STRING, "llama")),
        *(("tokenizer.ggml.tokens", STRING, tokens), ("tokenizer.ggml.scores", F32, scores)),
        *(("tokenizer.ggml.token_type", I32, kinds), ("tokenizer.chat_template", STRING, TEMPLATE)),
        *(("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2)),
        ("tokenizer.ggml.unknown_token_id", U32, 0),
    ]
    tensors = _tensors(len(tokens), layers)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    head += b"".join(_entry(*field) for field in fields)
    data = b""
    for name, tensor in tensors.items():
        sizes = struct.pack(f"<{tensor.ndim}Q", *reversed(tensor.shape))
        head += _text(name) + struct.pack("<I", tensor.ndim) + sizes + struct.pack("<IQ", 0, len(data))
        data += tensor.tobytes().ljust(-(-tensor.nbytes // ALIGN) * ALIGN, b"\0")
    path.write_bytes(head.ljust(-(-len(head) // ALIGN) * ALIGN, b"\0") + data)
    return path
