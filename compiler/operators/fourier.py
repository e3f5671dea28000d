"""Fourier transforms, along an axis and of windows: products with a matrix of cosines and sines.

Complex numbers are pairs along the last axis. One matrix takes a row, both parts of each element, to its transform: the
rows of models are short, and products are what the chip is best at.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.axes import existing_axis
from compiler.operators.broadcast import FLOATS, dtype_of, require_dtype, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition
from compiler.operators.signature import Constant, only

_MATRIX_ELEMS = 1 << 24
_LAST_WITH_AXIS_AS_ATTRIBUTE = 19


@composition("DFT")
def dft(
    graph: Graph,
    x: Value,
    dft_length: Constant | None = None,
    axis: Constant | None = None,
    *,
    inverse: bool = False,
    onesided: bool = False,
    opset: int = 20,
) -> Value:
    """The transform along ``axis``, cut or padded to ``dft_length``; ``onesided`` leaves out what is mirrored."""
    require_dtype(FLOATS, x=x)
    shape = shape_of(x)
    parts = _parts(x)
    default = 1 if opset <= _LAST_WITH_AXIS_AS_ATTRIBUTE else -2
    along = existing_axis(default if axis is None else int(only("axis", axis)), len(shape))
    if along == len(shape) - 1:
        raise refusals.wrong_value("must not be the last one, of real and imaginary parts", "axis", along)
    extent = shape[along]
    length = 2 * (extent - 1) if inverse and onesided else extent
    if dft_length is not None:
        length = int(only("dft_length", dft_length))
    matrix = _matrix(extent, parts, length, inverse=inverse, onesided=onesided)
    others = [each for each in range(len(shape) - 1) if each != along]
    order = (*others, along, len(shape) - 1)
    rows = _reshaped(graph, graph.call("Transpose", x, perm=order), -1, extent * parts)
    product = graph.call("MatMul", rows, matrix.reshape(extent * parts, -1).astype(dtype_of(x)))
    result = _reshaped(graph, product, *(shape[each] for each in others), *matrix.shape[1:])
    back: Value = graph.call("Transpose", result, perm=tuple(int(place) for place in np.argsort(order)))
    return back


@composition("STFT")
def stft(
    graph: Graph,
    signal: Value,
    frame_step: Constant,
    window: Value | None = None,
    frame_length: Constant | None = None,
    *,
    onesided: bool = True,
) -> Value:
    """The transforms of frames, each ``frame_step`` behind the one before, times ``window``.

    Frames begin, and end, at multiples of some number of samples. With those as channels, the samples are a row whose
    windows are the frames: a convolution, in which no sample is there twice. Real samples may come without an axis of
    parts, as torch writes them and onnxruntime takes them.
    """
    require_dtype(FLOATS, signal=signal)
    if len(shape_of(signal)) == 2:
        signal = _reshaped(graph, signal, *shape_of(signal), 1)
    shape = shape_of(signal)
    if len(shape) != 3:
        raise refusals.wrong_shape("the signal must be [batch, samples] or [batch, samples, parts]", signal=signal)
    (batch, samples, _), parts, step = shape, _parts(signal), int(only("frame_step", frame_step))
    if window is None and frame_length is None:
        raise refusals.missing_input("window", 2)
    length = shape_of(window)[0] if frame_length is None else int(only("frame_length", frame_length))
    if window is not None and shape_of(window) != (length,):
        raise refusals.wrong_shape(f"the window must have the {length} elements of a frame", window=window)
    if not 1 <= length <= samples or step < 1:
        raise refusals.wrong_value(f"frames must lie in {samples} samples", "frame_length, frame_step", (length, step))
    frames = (samples - length) // step + 1
    matrix = _matrix(length, parts, length, inverse=False, onesided=onesided)
    unit = math.gcd(length, step)
    weights = matrix.reshape(length // unit, unit * parts, -1).transpose(2, 1, 0).astype(dtype_of(signal))
    if window is not None:
        each_part = graph.call("Expand", _reshaped(graph, window, length, 1), np.array([length, parts]))
        windowed = _reshaped(graph, each_part, length // unit, unit * parts)
        weights = graph.call("Mul", weights, graph.call("Transpose", windowed, perm=(1, 0)))
    used = (frames - 1) * step + length
    begun = graph.call("Slice", signal, np.array([0]), np.array([used]), np.array([1]))
    row = graph.call("Transpose", _reshaped(graph, begun, batch, used // unit, unit * parts), perm=(0, 2, 1))
    spectra = graph.call("Conv", row, weights, strides=(step // unit,))
    return _reshaped(graph, graph.call("Transpose", spectra, perm=(0, 2, 1)), batch, frames, *matrix.shape[1:])


def _parts(x: Value) -> int:
    parts = (shape_of(x) or (0,))[-1]
    if parts not in (1, 2):
        raise refusals.wrong_shape("the last axis must be of real parts, or of real and imaginary ones", x=x)
    return parts


def _matrix(extent: int, parts: int, length: int, *, inverse: bool, onesided: bool) -> np.ndarray[Any, Any]:
    """What each part of each element adds to the transform: [elements * parts, results, their parts]."""
    if length < 1:
        raise refusals.wrong_value("must be at least 1", "dft_length", length)
    elems = extent * parts * length * 2
    if elems > _MATRIX_ELEMS:
        raise refusals.too_many("elements in the matrix of the transform", elems, _MATRIX_ELEMS)
    units = np.eye(extent * parts).reshape(-1, extent, parts) @ np.array([1, 1j])[:parts]
    if inverse and onesided:
        return np.fft.irfft(units, length)[..., None]
    results = np.fft.ifft(units, length) if inverse else np.fft.fft(units, length)
    kept = results[:, : length // 2 + 1] if onesided else results
    return np.stack([kept.real, kept.imag], axis=-1)


def _reshaped(graph: Graph, x: Value, *shape: int) -> Value:
    result: Value = graph.call("Reshape", x, np.array(shape))
    return result
