"""How many bytes a weight matrix takes in each number format, scales included."""

import msgspec

from uncork.errors import BadInput


class Format(msgspec.Struct, frozen=True):
    """A number format of weights.

    bits: of one weight; group: weights that share a scale along the input dimension (0: none);
    scale_bytes and zero_bytes: per group; block: (rows, columns) that share a float32 scale, as in DeepSeek's
    FP8; per_row_bytes, per_column_bytes, per_tensor_bytes: what is stored once a row, column, tensor.
    """

    name: str
    bits: float
    group: int = 0
    scale_bytes: float = 0.0
    block: tuple[int, int] | None = None
    per_row_bytes: int = 0
    per_column_bytes: int = 0
    per_tensor_bytes: int = 0


BF16 = Format("BF16", 16)
FP16 = Format("FP16", 16)
FP32 = Format("FP32", 32)
# Two float32 scalars a tensor: weight_scale_2 and input_scale (modelopt checkpoints).
NVFP4 = Format("NVFP4", 4, group=16, scale_bytes=1, per_tensor_bytes=8)
MXFP4 = Format("MXFP4", 4, group=32, scale_bytes=1)
FP8 = Format("FP8", 8, per_tensor_bytes=8)
FP8_ROW = Format("FP8 per row", 8, per_row_bytes=4)
NF4 = Format("NF4", 4, group=64, scale_bytes=4)


def fp8_block(rows: int, columns: int) -> Format:
    """FP8 with one float32 scale a block (weight_block_size, as in DeepSeek-R1's config.json)."""
    return Format(f"FP8 {rows}x{columns}", 8, block=(rows, columns))


def grouped_int(bits: int, group: int, *, zeros: bool, order: bool = False) -> Format:
    """Integers in groups with an FP16 scale, and a packed zero point where asymmetric (AWQ, GPTQ).

    A group of -1 or 0 means one scale a row. `order` adds GPTQ's g_idx, one int32 a column.
    """
    if bits not in {2, 3, 4, 8}:
        raise BadInput(f"bits: {bits} is not a width that integer quantisation uses (2, 3, 4, 8)")
    name = f"INT{bits}"
    zero = bits / 8 if zeros else 0.0
    if group <= 0:
        return Format(name, bits, per_row_bytes=2 + (1 if zeros else 0))
    return Format(f"{name} g{group}", bits, group, 2 + zero, per_column_bytes=4 if order else 0)


def matrix_bytes(form: Format, rows: int, columns: int) -> int:
    """Bytes of one matrix of `rows` outputs by `columns` inputs; fractions of a byte are rounded up."""
    total = rows * columns * form.bits / 8 + form.per_tensor_bytes
    if form.group:
        total += rows * -(-columns // form.group) * form.scale_bytes
    if form.block:
        total += -(-rows // form.block[0]) * -(-columns // form.block[1]) * 4
    total += rows * form.per_row_bytes + columns * form.per_column_bytes
    return int(-(-total // 1))
