"""Operators of onnxruntime's own domain with weights of few bits, each block of which has a scale of its own.

What they stand for is known when a model is compiled, and is what is multiplied or looked up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import normalised_axis, result_dtype
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition

# What the 16 values of 4 bits stand for, by ``quant_type``: floats of 4 bits, and quantiles of the normal distribution.
_FLOATS_OF_4_BITS = np.array([0.0, 0.0625, 8, 12, 4, 6, 2, 3], np.float32) / 12
_TABLES = (
    np.concatenate([_FLOATS_OF_4_BITS, -_FLOATS_OF_4_BITS]),
    np.array(
        [
            -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
            -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
            0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
        ],
        np.float32,
    ),
)  # fmt: skip


@composition("com.microsoft::MatMulNBits")
def matmul_n_bits(
    graph: Graph,
    a: Value,
    b: Value,
    scales: Value,
    zero_points: Value | None = None,
    g_idx: Value | None = None,
    bias: Value | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Any:
    """A product with known weights of few bits, each block of which has a scale and a zero point of its own."""
    known = [None if one is None else one.constant for one in (b, scales, zero_points)]
    if known[0] is None or known[1] is None or (zero_points is not None and known[2] is None):
        raise refusals.unsupported("weights, scales or zero points that are not known when the model is compiled")
    if g_idx is not None or weight_prepacked or bits not in (2, 4, 8):
        raise refusals.unsupported("groups in an order of their own, packed weights, and bits other than 2, 4 and 8")
    blocks = -(-K // block_size)
    packed, own_scales = np.asarray(known[0]), np.asarray(known[1], np.float32)
    if packed.size * (8 // bits) != N * blocks * block_size or own_scales.size != N * blocks:
        raise refusals.wrong_shape(f"b must have {N} rows of {blocks} blocks, and scales one each", b=b, scales=scales)
    levels = unpacked(packed.reshape(N, -1), bits, blocks * block_size).reshape(N, blocks, block_size)
    zero = np.full((N, blocks), 1 << (bits - 1), np.float32)
    if known[2] is not None:
        given = np.asarray(known[2])
        zero = unpacked(given.reshape(N, -1), bits, blocks) if given.dtype == np.uint8 else given.reshape(N, blocks)
    weights = (levels - zero[..., None].astype(np.float32)) * own_scales.reshape(N, blocks, 1)
    matrix = weights.reshape(N, -1)[:, :K].T
    product = graph.call("MatMul", a, graph.constant(np.ascontiguousarray(matrix).astype(result_dtype(a))))
    return product if bias is None else graph.call("Add", product, bias)


def unpacked(packed: Any, bits: int, count: int) -> Any:
    """Rows of numbers of few bits, the lowest of a byte first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    each = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return each.reshape(len(packed), -1)[:, :count].astype(np.float32)


@composition("com.microsoft::MatMulBnb4")
def matmul_bnb4(
    graph: Graph,
    a: Value,
    b: Value,
    absmax: Value,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    transB: bool = True,
    training_mode: bool = False,
) -> Any:
    """A product with known weights as bitsandbytes has them: a table's numbers, by the greatest of each block."""
    if b.constant is None or absmax.constant is None:
        raise refusals.unsupported("weights or scales that are not known when the model is compiled")
    if quant_type not in (0, 1):
        raise refusals.wrong_value("must be 0 (floats of 4 bits) or 1 (quantiles)", "quant_type", quant_type)
    packed, scales = np.asarray(b.constant).reshape(-1), np.asarray(absmax.constant, np.float32)
    blocks = -(-N * K // block_size)
    if packed.size != -(-N * K // 2) or scales.size != blocks:
        raise refusals.wrong_shape(f"b must have {N} x {K} elements, and absmax {blocks}", b=b, absmax=absmax)
    places = np.stack([packed >> 4, packed & 15], axis=-1).reshape(-1)[: N * K]
    weights = _TABLES[quant_type][places] * np.repeat(scales.reshape(-1), block_size)[: N * K]
    matrix = weights.reshape(N, K).T if transB else weights.reshape(N, K)
    return graph.call("MatMul", a, graph.constant(np.ascontiguousarray(matrix).astype(result_dtype(a))))


@composition("com.microsoft::GatherBlockQuantized")
def gather_block_quantized(
    graph: Graph,
    data: Value,
    indices: Value,
    scales: Value,
    zero_points: Value | None = None,
    *,
    gather_axis: int = 0,
    quantize_axis: int = 1,
    block_size: int = 128,
    bits: int = 4,
) -> Any:
    """Rows of a known table, whose blocks along ``quantize_axis`` have scales and zero points."""
    zeros: Any = None if zero_points is None else zero_points.constant
    if data.constant is None or scales.constant is None or (zeros is None) != (zero_points is None):
        raise refusals.unsupported("a table, scales or zero points that are not known when the model is compiled")
    levels: Any = np.asarray(data.constant)
    own_scales, middle = np.asarray(scales.constant), 0
    if levels.dtype == np.uint8:
        if bits not in (2, 4, 8):
            raise refusals.wrong_value("must be 2, 4 or 8", "bits", bits)
        middle = 1 << (bits - 1)
        levels, zeros = (None if one is None else _along_rows(one, bits) for one in (levels, zeros))
    axis = normalised_axis(quantize_axis, levels.ndim)
    blocks = tuple(-(-n // block_size) if at == axis else n for at, n in enumerate(levels.shape))
    if own_scales.shape != blocks:
        raise refusals.wrong_shape(f"scales must be {list(blocks)}", scales=scales)
    zeros = np.full(blocks, middle) if zeros is None else zeros[tuple(slice(n) for n in blocks)]
    if zeros.shape != blocks:
        raise refusals.wrong_shape(f"zero points must be {list(blocks)}", zero_points=zero_points)
    places = np.arange(levels.shape[axis]) // block_size
    difference = levels.astype(np.float32) - np.take(zeros.astype(np.float32), places, axis)
    table = difference * np.take(own_scales.astype(np.float32), places, axis)
    return graph.call("Gather", graph.constant(table.astype(result_dtype(scales))), indices, axis=gather_axis)


def _along_rows(packed: Any, bits: int) -> Any:
    """Numbers of few bits that are packed along the last axis."""
    each = unpacked(packed.reshape(-1, packed.shape[-1]), bits, packed.shape[-1] * (8 // bits))
    return each.reshape(*packed.shape[:-1], -1)


def dequantised_rows(
    graph: Graph, weights: Value, scales: Value, zero_points: Value | None, bits: int, block_size: int, dtype: str
) -> Value:
    """What known rows stand for that are packed along the last axis, with a scale each or for each block of one."""
    zeros: Any = None if zero_points is None else zero_points.constant
    if weights.constant is None or scales.constant is None or (zeros is None) != (zero_points is None):
        raise refusals.unsupported("weights, scales or zero points that are not known when the model is compiled")
    levels = _along_rows(np.asarray(weights.constant).view(np.uint8), bits)
    own: Any = np.asarray(scales.constant, np.float32)
    size = block_size or levels.shape[-1]
    own = own if block_size else own[..., None]
    if own.shape != (*levels.shape[:-1], -(-levels.shape[-1] // size)):
        raise refusals.wrong_shape("scales must be one for each row, or for each block of one", scales=scales)
    zero = np.full(own.shape, 1 << (bits - 1), np.float32)
    if zeros is not None:
        given = _along_rows(np.asarray(zeros), bits)
        zero = given[..., : own.shape[-1]] if block_size else given[..., : own.shape[-2], None]
    places = np.arange(levels.shape[-1]) // size
    found = (levels - np.take(zero, places, -1)) * np.take(own, places, -1)
    return graph.constant(found.astype(dtype))
