"""Tensors made of nothing but shapes and numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.axes import within
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.cast import onnx_dtype
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator
from compiler.operators.signature import Constant, only

FLOAT = 1  # onnx.TensorProto.FLOAT


@operator("ConstantOfShape", schedule="elementwise")
def constant_of_shape(shape: Constant, *, value: np.ndarray[Any, Any] | None = None) -> te.Tensor:
    number = np.zeros(1, np.float32) if value is None else value
    dtype = {"int64": "int32", "uint64": "uint32", "float64": "float32"}.get(number.dtype.name, number.dtype.name)
    element = tirx.const(number.reshape(-1)[0].item(), dtype)
    return te.compute([int(extent) for extent in shape.ravel()], lambda *_: element, "constant_of_shape")


@operator("EyeLike", schedule="elementwise")
def eye_like(data: te.Tensor, *, dtype: int | None = None, k: int = 0) -> te.Tensor:
    """Ones on diagonal ``k`` of a matrix of zeros, of the shape of ``data``."""
    if len(shape_of(data)) != 2:
        raise refusals.wrong_shape("the input must be a matrix", data=data)
    kind = dtype_of(data) if dtype is None else onnx_dtype(dtype)
    one, zero, diagonal = tirx.const(1, kind), tirx.const(0, kind), within(k, shape_of(data))
    return te.compute(shape_of(data), lambda i, j: tirx.Select(tirx.EQ(j - i, diagonal), one, zero), "eye_like")


@operator("Range", schedule="elementwise")
def range_(start: Constant, limit: Constant, delta: Constant) -> te.Tensor:
    first, end, step = only("start", start), only("limit", limit), only("delta", delta)
    if step == 0:
        raise refusals.wrong_value("must not be 0", "delta", step)
    count = max(0, math.ceil((end - first) / step))
    dtype = {"int64": "int32", "float64": "float32"}.get(start.dtype.name, start.dtype.name)
    whole = np.issubdtype(start.dtype, np.integer)

    def element(i: Any) -> Any:
        if whole:
            return (i * int(step) + int(first)).astype(dtype)
        return (i.astype("float32") * tirx.const(step, "float32") + tirx.const(first, "float32")).astype(dtype)

    return te.compute((count,), element, "range")


@composition("Constant")
def constant(
    graph: Graph,
    *,
    value: np.ndarray[Any, Any] | None = None,
    value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None,
    value_int: int | None = None,
    value_ints: tuple[int, ...] | None = None,
) -> Value:
    if value is not None:
        return graph.constant(value)
    for number, dtype in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int32),
        (value_ints, np.int32),
    ):
        if number is not None:
            return graph.constant(np.array(number, dtype))
    raise refusals.missing_attribute("value")


@composition("Shape")
def shape(graph: Graph, data: Value, *, start: int = 0, end: int | None = None) -> Value:
    return graph.constant(np.array(shape_of(data)[start:end], np.int32))


@composition("Size")
def size(graph: Graph, data: Value) -> Value:
    return graph.constant(np.array(math.prod(shape_of(data)), np.int32))


@composition("HannWindow")
def hann_window(graph: Graph, size: Constant, *, output_datatype: int = FLOAT, periodic: bool = True) -> Value:
    return _window(graph, size, output_datatype, periodic, (0.5, 0.5))


@composition("HammingWindow")
def hamming_window(graph: Graph, size: Constant, *, output_datatype: int = FLOAT, periodic: bool = True) -> Value:
    return _window(graph, size, output_datatype, periodic, (25 / 46, 21 / 46))


@composition("BlackmanWindow")
def blackman_window(graph: Graph, size: Constant, *, output_datatype: int = FLOAT, periodic: bool = True) -> Value:
    return _window(graph, size, output_datatype, periodic, (0.42, 0.5, 0.08))


@composition("MelWeightMatrix")
def mel_weight_matrix(
    graph: Graph,
    num_mel_bins: Constant,
    dft_length: Constant,
    sample_rate: Constant,
    lower_edge_hertz: Constant,
    upper_edge_hertz: Constant,
    *,
    output_datatype: int = FLOAT,
) -> Value:
    """Triangles over the spectrum, evenly spaced in mel."""
    bins, length = int(only("num_mel_bins", num_mel_bins)), int(only("dft_length", dft_length))
    rate = int(only("sample_rate", sample_rate))
    edges_hertz = only("lower_edge_hertz", lower_edge_hertz), only("upper_edge_hertz", upper_edge_hertz)
    low, high = (2595 * np.log10(1 + hertz / 700) for hertz in edges_hertz)
    mel = np.arange(bins + 2) * ((high - low) / (bins + 2)) + low
    edges = np.floor((length + 1) * 700 * (10 ** (mel / 2595) - 1) / rate).astype(int)
    matrix = np.zeros((length // 2 + 1, bins))
    for band in range(bins):
        left, centre, right = edges[band : band + 3]
        if centre == left:
            matrix[centre, band] = 1
        else:
            matrix[left : centre + 1, band] = np.arange(centre - left + 1) / (centre - left)
        if right > centre:
            matrix[centre:right, band] = np.arange(right - centre, 0, -1) / (right - centre)
    return graph.constant(matrix.astype(onnx_dtype(output_datatype)))


@composition("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
def random(
    graph: Graph,
    data: Value | None = None,
    *,
    dtype: int = FLOAT,
    high: float = 1.0,
    low: float = 0.0,
    mean: float = 0.0,
    scale: float = 1.0,
    sample_size: int = 1,
    seed: float | None = None,
    shape: tuple[int, ...] | None = None,
) -> Value:
    raise refusals.unsupported(
        "random numbers: a program gives the same output for the same input every time",
        hint="make them outside of the model and give them to it as an input",
    )


def _window(graph: Graph, size: Constant, dtype: int, periodic: bool, weights: tuple[float, ...]) -> Value:
    """A sum of cosines with alternating signs."""
    count = int(only("size", size))
    turns = np.arange(count) * (2 * np.pi / (count if periodic else max(count - 1, 1)))
    window = sum((-1) ** k * weight * np.cos(k * turns) for k, weight in enumerate(weights))
    return graph.constant(np.asarray(window).astype(onnx_dtype(dtype)))
