"""Computing nodes whose inputs are all known, with ONNX's own reference; never more than the limits allow.

What a node would produce is estimated from its inputs before anything is computed: a model must not make the compiler
allocate what the model does not hold. An operator without an estimate is not folded: it runs on the chip.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper
from onnx.reference.ops import load_op

from compiler.frontend.limits import Limits
from compiler.frontend.tensors import check_dims

Array = np.ndarray[Any, Any]
Inputs = Sequence[Array | None]
Attributes = Mapping[str, Any]
# Elements of the largest output, and the scalar operations it takes.
Estimate = tuple[int, int]

# Operators that were of all axes behind one before some operator set, and since then of one.
_OF_ONE_AXIS = dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), 13)
# Operators that the reference knows from some operator set on, in which they do what they did before.
_REFERENCE_FROM = {"DequantizeLinear": 19}


def fold(
    operator: str, opset: int, inputs: Inputs, attributes: Attributes, outputs: int, limits: Limits
) -> tuple[Array, ...] | None:
    """The outputs of a node of ONNX's own domain; None when it is left to its operator, for whatever reason."""
    estimate = _ESTIMATES.get(operator)
    if operator in _OF_ONE_AXIS and opset < _OF_ONE_AXIS[operator]:
        return None  # the reference knows no older meaning
    if estimate is None or any(array is not None and array.dtype == object for array in inputs):
        return None
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            view = _as_view(operator, inputs, attributes)
            if view is None:
                elements, operations = estimate(inputs, attributes)
                width = max((array.dtype.itemsize for array in inputs if array is not None), default=8)
                if elements * max(width, 8) > limits.folded_bytes or operations > limits.folded_operations:
                    return None
            results = _evaluated(operator, opset, inputs, attributes, outputs) if view is None else (view,)
    except Exception:  # noqa: BLE001 - ONNX's reference raises anything; the operator's own checks say what is wrong
        return None
    return results if len(results) == outputs and not any(check_dims(r.shape, limits) for r in results) else None


def _as_view(operator: str, inputs: Inputs, attributes: Attributes) -> Array | None:
    """Results that share their input's elements and so take no memory, however large they are."""
    data = inputs[0] if inputs else None
    if data is None:
        return None
    if operator == "ConstantOfShape":
        value = attributes.get("value")
        filled = np.zeros(1, np.float32) if value is None else np.asarray(value)
        return np.broadcast_to(filled.reshape(-1)[0], _extents(data))
    if operator == "Expand" and inputs[1] is not None:
        return np.broadcast_to(data, np.broadcast_shapes(data.shape, _extents(inputs[1])))
    if operator == "Transpose":
        return np.transpose(data, attributes.get("perm"))
    return None


def _evaluated(operator: str, opset: int, inputs: Inputs, attributes: Attributes, outputs: int) -> tuple[Array, ...]:
    implementation = load_op("", operator, max(opset, _REFERENCE_FROM.get(operator, 0)))
    given = {
        name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in attributes.items()
    }
    results = implementation.eval(*inputs, n_outputs=outputs, **given)
    if not isinstance(results, tuple | list):
        results = (results,)
    return tuple(np.asarray(result) for result in results[:outputs])


def _extents(array: Array) -> tuple[int, ...]:
    return tuple(int(extent) for extent in array.reshape(-1))


def _sizes(inputs: Inputs) -> list[int]:
    return [array.size for array in inputs if array is not None]


def _sum(inputs: Inputs, attributes: Attributes) -> Estimate:
    """No output has more elements than the inputs together."""
    total = sum(_sizes(inputs))
    return total, total


def _one_by_one(inputs: Inputs, attributes: Attributes) -> Estimate:
    """As `_sum`, where the reference goes through the elements in Python."""
    total = sum(_sizes(inputs))
    return total, total * 200


def _broadcast(inputs: Inputs, attributes: Attributes) -> Estimate:
    elements = math.prod(np.broadcast_shapes(*(array.shape for array in inputs if array is not None)))
    return elements, elements * len(inputs)


def _gather(inputs: Inputs, attributes: Attributes) -> Estimate:
    data, indices = inputs[0], inputs[1]
    if data is None or indices is None:
        raise ValueError
    axis = attributes.get("axis", 0)
    elements = data.size // max(data.shape[axis], 1) * indices.size
    return elements, elements


def _gather_nd(inputs: Inputs, attributes: Attributes) -> Estimate:
    """The reference picks one slice after the other."""
    data, indices = inputs[0], inputs[1]
    if data is None or indices is None:
        raise ValueError
    depth, batch = indices.shape[-1], attributes.get("batch_dims", 0)
    slices = indices.size // max(depth, 1)
    elements = slices * math.prod(data.shape[batch + depth :])
    return elements, elements + slices * 200


def _shape_input(position: int) -> Callable[[Inputs, Attributes], Estimate]:
    """The output's shape is the value of an input."""

    def estimate(inputs: Inputs, attributes: Attributes) -> Estimate:
        shape = inputs[position]
        if shape is None:
            raise ValueError
        elements = max(math.prod(max(extent, 1) for extent in _extents(shape)), *_sizes(inputs))
        return elements, elements

    return estimate


def _tile(inputs: Inputs, attributes: Attributes) -> Estimate:
    data, repeats = inputs[0], inputs[1]
    if data is None or repeats is None:
        raise ValueError
    elements = data.size * math.prod(_extents(repeats))
    return elements, elements


def _range(inputs: Inputs, attributes: Attributes) -> Estimate:
    start, limit, delta = (float(array.reshape(-1)[0]) if array is not None else 0.0 for array in inputs)
    elements = max(0, math.ceil((limit - start) / delta))
    return elements, elements


def _pad(inputs: Inputs, attributes: Attributes) -> Estimate:
    data = inputs[0]
    pads = inputs[1] if len(inputs) > 1 else np.asarray(attributes["pads"])
    if data is None or pads is None:
        raise ValueError
    axes = inputs[3] if len(inputs) > 3 else None
    shape, numbers = list(data.shape), _extents(pads)
    padded = list(range(data.ndim)) if axes is None else [int(axis) % data.ndim for axis in axes.reshape(-1)]
    for axis, begin, end in zip(padded, numbers, numbers[len(padded) :], strict=False):
        shape[axis] += max(0, begin) + max(0, end)
    elements = math.prod(shape)
    return elements, elements


def _one_hot(inputs: Inputs, attributes: Attributes) -> Estimate:
    indices, depth = inputs[0], inputs[1]
    if indices is None or depth is None:
        raise ValueError
    elements = indices.size * int(depth.reshape(-1)[0])
    return elements, elements


def _matmul(inputs: Inputs, attributes: Attributes) -> Estimate:
    left, right = inputs[0], inputs[1]
    if left is None or right is None:
        raise ValueError
    inner = max(1, left.shape[-1])
    elements = (left.size // inner) * (right.size // inner)
    return elements, elements * inner


def _gemm(inputs: Inputs, attributes: Attributes) -> Estimate:
    """Whichever of the operands are transposed."""
    left, right = inputs[0], inputs[1]
    if left is None or right is None:
        raise ValueError
    return max(left.shape) * max(right.shape), left.size * max(right.shape)


_NO_GROWTH = """
    Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast Ceil Compress Concat Cos Cosh CumSum DepthToSpace
    DequantizeLinear Elu Exp Flatten Floor HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log LogSoftmax
    Mish Neg Not QuantizeLinear Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
    ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round Selu Sigmoid Sign
    Sin Sinh Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Tan Tanh ThresholdedRelu TopK Trilu Unique
    Unsqueeze ArgMax ArgMin
"""
_IN_PYTHON = "Celu Erf Gelu GatherElements ReverseSequence ScatterElements ScatterND"
_PAIRWISE = """
    Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Clip Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min
    Mod Mul Or PRelu Pow Sub Sum Where Xor
"""
_ESTIMATES: dict[str, Callable[[Inputs, Attributes], Estimate]] = {
    **dict.fromkeys(_NO_GROWTH.split(), _sum),
    **dict.fromkeys(_IN_PYTHON.split(), _one_by_one),
    **dict.fromkeys(_PAIRWISE.split(), _broadcast),
    # Coordinates of as many elements as the input has at most: eight is the largest rank.
    "NonZero": lambda inputs, attributes: (8 * sum(_sizes(inputs)), 8 * sum(_sizes(inputs))),
    "Gather": _gather,
    "GatherND": _gather_nd,
    "ConstantOfShape": _shape_input(0),
    "Expand": _shape_input(1),
    "Transpose": _sum,
    "Tile": _tile,
    "Range": _range,
    "Pad": _pad,
    "OneHot": _one_hot,
    "EyeLike": _sum,
    "MatMul": _matmul,
    "Gemm": _gemm,
}


def is_foldable(operator: str) -> bool:
    return operator in _ESTIMATES


def constant_node(attributes: Attributes) -> Array | None:
    """The value of a Constant node; None where it is of a kind that is not supported."""
    for name, value in attributes.items():
        if name == "value" and isinstance(value, np.ndarray):
            return value
        if name in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
        if name in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
    return None
