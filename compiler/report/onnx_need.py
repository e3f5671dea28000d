"""Which elements of a value are needed, at least: what nobody needs, a program need not compute.

A need is a box: for every axis, which of its positions are needed. It may be smaller than what is needed in truth,
never larger; None says that nothing is known to be needed. A program that decides by its data what to skip is not
thought of: an element that may be needed is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from compiler.report import onnx_need_picks as picks
from compiler.report.boxes import Box, Need, broadcast, merged, whole
from compiler.report.onnx_facts import Facts, Node, Value
from compiler.report.onnx_need_quantised import QUANTISED, quantised_concat, quantised_need
from compiler.report.windows import window_of

_MAX_ELEMENTS = 1 << 24  # of a box that is looked at element by element


def needs(facts: Facts) -> dict[str, Box]:
    """What is needed of every value, from the outputs backwards."""
    found: dict[str, Box] = {}
    alive = {value.name for value in facts.outputs}
    for output in facts.outputs:
        _add(found, output, whole(output))
    for node in reversed(facts.nodes):
        if not any(value is not None and value.name in alive for value in node.outputs):
            continue
        alive |= {value.name for value in node.inputs if value is not None}
        wanted = [whole(v) for v in node.inputs] if node.operator in SELECTING else input_needs(node, found)
        for value, need in zip(node.inputs, wanted, strict=True):
            _add(found, value, need)
    return found


def _add(found: dict[str, Box], value: Value | None, need: Need) -> None:
    if value is None or need is None or need.size == 0:
        return
    if both := merged(found.get(value.name), need):
        found[value.name] = both


def input_needs(node: Node, found: dict[str, Box]) -> list[Need]:
    """What a node needs of its inputs, if this is needed of its outputs."""
    outputs = [found.get(value.name) if value is not None else None for value in node.outputs]
    if not any(outputs):
        return [None] * len(node.inputs)
    if node.operator == "Split":
        return [_split(node, outputs), *[None] * (len(node.inputs) - 1)]
    if node.operator in RECURRENT:
        return _recurrent(node, found)
    out = outputs[0]
    if out is None:
        return [None] * len(node.inputs)
    rule = _RULES.get(node.operator)
    if rule is not None:
        return rule(node, out)
    if node.operator in READS_ALL and out.is_whole:
        return [whole(value) for value in node.inputs]
    return [None] * len(node.inputs)


# Operators of which every input matters to all results together.
READS_ALL = frozenset({
    "ConvTranspose", "Einsum", "InstanceNormalization", "GroupNormalization", "LpNormalization",
    "MeanVarianceNormalization", "LRN", "Attention", "CumSum", "Softmax",
    "LogSoftmax", "LayerNormalization", "RMSNormalization", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin",
    "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "GlobalAveragePool",
    "GlobalMaxPool", "ArgMax", "ArgMin", "DepthToSpace", "SpaceToDepth", "Hardmax", "DFT", "Det",
    "RotaryEmbedding", "SimplifiedLayerNormalization", "Tile", "LinearAttention",
    *(
        f"com.microsoft::{name}"
        for name in (
            "Gelu", "BiasGelu", "FastGelu", "QuickGelu", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
            "FusedMatMul", "TransposeMatMul", "FusedGemm", "Attention", "MultiHeadAttention", "MatMulNBits",
            "MatMulBnb4", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QAttention", "DynamicQuantizeLSTM",
            "QLinearGlobalAveragePool", "QLinearSoftmax", "MoE", "QMoE", "LinearAttention", "CausalConvWithState",
        )
    ),
    *(
        f"ai.onnx.ml::{name}"
        for name in (
            "Scaler", "Normalizer", "Imputer", "Binarizer", "OneHotEncoder", "LabelEncoder", "FeatureVectorizer",
            "LinearRegressor", "LinearClassifier", "SVMRegressor", "SVMClassifier",
        )
    ),
})  # fmt: skip
WEIGHTS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}  # of convolutions, which input they are
FACTORS = {"QLinearMatMul": (0, 3), "com.microsoft::QGemm": (0, 3)}  # of products, where they are no first two inputs
RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
# How many results there are, or what one step of them is, is known to them alone, once they have seen everything.
SELECTING = frozenset({"NonMaxSuppression", "NonZero", "TopK", "Unique", "Compress", "DynamicQuantizeLinear"})
ELEMENTWISE = frozenset({
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "DequantizeLinear", "Div", "Dropout", "Elu", "Equal",
    "Erf", "Exp", "Expand", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "IsInf", "IsNaN",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu",
    "Pow", "QuantizeLinear", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
    "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
})  # fmt: skip


def _elementwise(node: Node, out: Box) -> list[Need]:
    count = 1 if node.operator in ("QuantizeLinear", "DequantizeLinear", "Expand", "Cast", "Clip") else None
    return [broadcast(value, out) if count is None or i < count else None for i, value in enumerate(node.inputs)]


def _normalized(node: Node, out: Box) -> list[Need]:
    return [out, *[None] * (len(node.inputs) - 1)]


def _rowwise(node: Node, out: Box) -> list[Need]:
    """Each result needs its whole row: all of the axes from ``axis`` on, of a softmax at least that axis."""
    axis = int(node.attributes.get("axis", -1)) % len(out.axes)
    end = axis + 1 if "Softmax" in node.operator else len(out.axes)
    axes = [np.full(len(a), bool(a.any())) if axis <= i < end else a for i, a in enumerate(out.axes)]
    return [Box(tuple(axes)), *[None] * (len(node.inputs) - 1)]


def _with_a_cache(node: Node, out: Box) -> list[Need]:
    """Of a cache, how much is read is known to the lengths alone."""
    return [whole(value) if at < 3 and out.is_whole else None for at, value in enumerate(node.inputs)]


def _product(node: Node, out: Box) -> list[Need]:
    """Rows of the left one, columns of the right one, k of both."""
    slots = FACTORS.get(node.operator, (0, 1))
    left, right = (node.inputs[slot] for slot in slots)
    found: list[Need] = [None] * len(node.inputs)
    if left is None or right is None or left.shape is None or right.shape is None:
        return found
    if min(len(left.shape), len(right.shape)) < 2:
        return [whole(v) for v in node.inputs] if out.is_whole else found
    for slot, value, axis, other in ((slots[0], left, -2, -1), (slots[1], right, -1, -2)):
        batch = broadcast(value, out, drop=2)
        k = np.full(value.shape[other], bool(out.size))  # type: ignore[index]
        if batch is not None:
            ends = (out.axes[axis], k) if axis == -2 else (k, out.axes[axis])
            found[slot] = Box((*batch.axes, *ends))
    return found


def _gemm(node: Node, out: Box) -> list[Need]:
    found: list[Need] = [None] * len(node.inputs)
    for slot, flag, kept in zip(FACTORS.get(node.operator, (0, 1)), ("transA", "transB"), (0, 1), strict=True):
        value = node.inputs[slot]
        if value is None or value.shape is None:
            continue
        turned = bool(node.attributes.get(flag, 0))
        axis = 1 - kept if turned else kept
        axes = [np.full(n, bool(out.size)) for n in value.shape]
        axes[axis] = out.axes[kept]
        found[slot] = Box(tuple(axes))
    return found


def _transpose(node: Node, out: Box) -> list[Need]:
    order = node.attributes.get("perm") or list(range(len(out.axes)))[::-1]
    axes = [np.zeros(0, bool)] * len(order)
    for to, source in enumerate(order):
        axes[source] = out.axes[to]
    return [Box(tuple(axes))]


def _reshape(node: Node, out: Box) -> list[Need]:
    rest: list[Need] = [None] * (len(node.inputs) - 1)
    value = node.inputs[0]
    if value is None or value.shape is None:
        return [None, *rest]
    return [reshaped(out, value.shape), *rest]


def reshaped(box: Box, shape: Sequence[int]) -> Need:
    """The box seen in another shape: axis by axis where groups of axes have equally many elements."""
    axes: list[np.ndarray] = []
    old, new = list(box.axes), list(shape)
    while old or new:
        mine, theirs = [old.pop(0)] if old else [], [new.pop(0)] if new else []
        while prod(map(len, mine)) != prod(theirs):
            if prod(map(len, mine)) < prod(theirs) and old:
                mine.append(old.pop(0))
            elif new:
                theirs.append(new.pop(0))
            else:
                return None
        part = _regrouped(mine, theirs)
        if part is None:
            return None
        axes += part
    return Box(tuple(axes))


def _regrouped(axes: Sequence[np.ndarray], shape: Sequence[int]) -> list[np.ndarray] | None:
    if all(axis.all() for axis in axes):
        return [np.ones(n, bool) for n in shape]
    if prod(shape) > _MAX_ELEMENTS:
        return None
    flat: np.ndarray = np.ones(1, bool)
    for axis in axes:
        flat = (flat[:, None] & axis).ravel()
    grid: Any = flat.reshape(shape)
    found: list[np.ndarray] = [grid.any(axis=tuple(j for j in range(len(shape)) if j != i)) for i in range(len(shape))]
    if bool(grid[np.ix_(*found)].all()):
        return found  # it is a box in this shape too
    rows = grid.reshape(len(grid), -1).all(axis=1)
    if rows.any():
        return [rows, *(np.ones(n, bool) for n in shape[1:])]
    return _largest(grid) if len(shape) == 2 else None


def _largest(grid: np.ndarray) -> list[np.ndarray] | None:
    """A large box of what is needed of a matrix: the columns that the rows with the most have in common."""
    order = np.argsort(-grid.sum(axis=1), kind="stable")
    common = np.logical_and.accumulate(grid[order], axis=0)
    sizes = common.sum(axis=1) * np.arange(1, len(grid) + 1)
    count = int(np.argmax(sizes)) + 1
    if not sizes[count - 1]:
        return None
    rows = np.zeros(len(grid), bool)
    rows[order[:count]] = True
    return [rows, common[count - 1]]


def _concat(node: Node, out: Box) -> list[Need]:
    axis = int(node.attributes["axis"]) % len(out.axes)
    found: list[Need] = []
    at = 0
    for value in node.inputs:
        if value is None or value.shape is None:
            return [None] * len(node.inputs)
        axes = list(out.axes)
        axes[axis] = out.axes[axis][at : at + value.shape[axis]]
        at += value.shape[axis]
        found.append(Box(tuple(axes)))
    return found


def _split(node: Node, outputs: Sequence[Need]) -> Need:
    value = node.inputs[0]
    if value is None or value.shape is None or any(o is None or o.shape is None for o in node.outputs):
        return None
    axis = int(node.attributes.get("axis", 0)) % len(value.shape)
    need: Need = None
    at = 0
    for output, box in zip(node.outputs, outputs, strict=True):
        size = output.shape[axis]  # type: ignore[union-attr, index]
        if box is not None:
            axes = list(box.axes)
            axes[axis] = np.zeros(value.shape[axis], bool)
            axes[axis][at : at + size] = box.axes[axis]
            need = merged(need, Box(tuple(axes)))
        at += size
    return need


def _slice(node: Node, out: Box) -> list[Need]:
    rest: list[Need] = [None] * (len(node.inputs) - 1)
    value = node.inputs[0]
    if value is None or value.shape is None:
        return [None, *rest]
    words = _slice_words(node)
    if words is None:
        return [None, *rest]
    axes = list(out.axes)
    kept = {axis: slice(start, end, step) for start, end, axis, step in words}
    for axis, size in enumerate(value.shape):
        positions = np.arange(size)[kept[axis]] if axis in kept else np.arange(size)
        if len(positions) != len(out.axes[axis]):
            return [None, *rest]
        axes[axis] = np.zeros(size, bool)
        axes[axis][positions[out.axes[axis]]] = True
    return [Box(tuple(axes)), *rest]


def _slice_words(node: Node) -> list[tuple[int, int | None, int, int]] | None:
    if len(node.inputs) == 1:  # of old, they were attributes
        starts, ends = node.attributes["starts"], node.attributes["ends"]
        axes, steps = node.attributes.get("axes"), None
    else:
        known = [None if v is None else node.constants.get(v.name) for v in node.inputs[1:]]
        if any(v is not None and k is None for v, k in zip(node.inputs[1:], known, strict=True)):
            return None
        given = [None if k is None else [int(n) for n in np.asarray(k).reshape(-1)] for k in known]
        starts, ends, axes, steps = [*given, None, None][:4]
    rank = len(node.inputs[0].shape)  # type: ignore[union-attr, arg-type]
    axes = [int(a) % rank for a in axes] if axes else list(range(len(starts)))
    steps = steps or [1] * len(starts)
    shape = node.inputs[0].shape  # type: ignore[union-attr]
    found: list[tuple[int, int | None, int, int]] = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = shape[axis]  # type: ignore[index]
        backwards_to_the_start = step < 0 and end < -size
        found.append((int(start), None if backwards_to_the_start else int(end), axis, int(step)))
    return found


def recurrent_steps(node: Node, found: dict[str, Box]) -> list[int]:
    """How many steps each direction has to take: up to the last of which a result is needed."""
    data = node.inputs[0]
    lengths = node.inputs[4] if len(node.inputs) > 4 else None
    if data is None or data.shape is None or lengths is not None or node.attributes.get("layout", 0):
        return []
    direction = bytes(node.attributes.get("direction", b"forward"))
    backwards = {b"forward": [False], b"reverse": [True], b"bidirectional": [False, True]}[direction]
    steps = [0] * len(backwards)
    every, *last = [found.get(value.name) if value is not None else None for value in node.outputs]
    for at, turned in enumerate(backwards):
        if every is not None and every.axes[1][at]:
            taken = np.flatnonzero(every.axes[0])
            steps[at] = data.shape[0] - int(taken[0]) if turned else int(taken[-1]) + 1
        if any(box is not None and box.axes[0][at] for box in last):
            steps[at] = data.shape[0]
    return steps


def _recurrent(node: Node, found: dict[str, Box]) -> list[Need]:
    """Of every step that is taken all; of rows that are not needed in the end, nothing is known."""
    steps = recurrent_steps(node, found)
    boxes = [found[value.name] for value in node.outputs if value is not None and value.name in found]
    if not any(steps) or not any(bool(box.axes[-2].all()) for box in boxes):
        return [None] * len(node.inputs)
    data = whole(node.inputs[0])
    if data is not None and max(steps) < len(data.axes[0]):
        data = None
    return [data, *(whole(value) if max(steps) > 1 else None for value in node.inputs[1:])]


def _pad(node: Node, out: Box) -> list[Need]:
    """What comes to lie where something is needed; what is repeated elsewhere may be needed, too."""
    rest: list[Need] = [None] * (len(node.inputs) - 1)
    value = node.inputs[0]
    if value is None or value.shape is None:
        return [None, *rest]
    before = _padding_before(node, len(value.shape))
    if before is None:
        return [whole(value) if out.is_whole and _grown(value.shape, out) else None, *rest]
    axes = []
    for size, begin, wanted in zip(value.shape, before, out.axes, strict=True):
        kept = slice(max(0, -begin), max(0, min(size, len(wanted) - begin)))
        axes.append(np.zeros(size, bool))
        axes[-1][kept] = wanted[kept.start + begin : kept.stop + begin]
    return [Box(tuple(axes)), *rest]


def _padding_before(node: Node, rank: int) -> list[int] | None:
    """Elements that each axis is grown by at its beginning; fewer than none where it is cut."""
    known = [None if v is None else node.constants.get(v.name) for v in node.inputs]
    pads = known[1] if len(known) > 1 else node.attributes.get("pads", node.attributes.get("paddings"))
    axes = known[3] if len(known) > 3 and node.inputs[3] is not None else range(rank)
    if pads is None or axes is None:
        return None
    found = [0] * rank
    for axis, begin in zip(np.ravel(axes), np.ravel(pads), strict=False):
        found[int(axis) % rank] = int(begin)
    return found


def _grown(shape: Sequence[int], out: Box) -> bool:
    return all(small <= large for small, large in zip(shape, out.shape, strict=True))


def _window(node: Node, out: Box) -> list[Need]:
    """What lies under some window; windows with gaps between them leave rows out."""
    window = window_of(node, out.axes[2:])
    found: list[Need] = [whole(value) for value in node.inputs] if out.is_whole else [None] * len(node.inputs)
    value = node.inputs[0]
    if window is None or value is None or value.shape is None:
        return [None, *found[1:]]
    channels = out.axes[1]
    slot = WEIGHTS.get(node.operator)
    weights = node.inputs[slot] if slot is not None else None
    if weights is not None and weights.shape is not None:
        by_group = channels.reshape(int(node.attributes.get("group", 1)), -1)
        channels = np.repeat(by_group.any(axis=1), weights.shape[1])
        read = np.full(weights.shape[1], bool(out.size))
        found[slot] = Box((out.axes[1], read, *(axis.used for axis in window.axes)))  # type: ignore[index]
    found[0] = Box((out.axes[0], channels, *(axis.touched for axis in window.axes)))
    return found


def _resize(node: Node, out: Box) -> list[Need]:
    """What is made larger is needed whole; what is made smaller perhaps not."""
    value = node.inputs[0]
    grown = value is not None and value.shape is not None and _grown(value.shape, out)
    return [whole(value) if grown and out.is_whole else None, *[None] * (len(node.inputs) - 1)]


Rule: TypeAlias = Callable[[Node, Box], list[Need]]
_RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(QUANTISED, quantised_need),
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), _product),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool"), _window),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "Softmax", "LogSoftmax"), _rowwise),
    "BatchNormalization": _normalized,
    "com.microsoft::GroupQueryAttention": _with_a_cache,
    **dict.fromkeys(("Gemm", "com.microsoft::QGemm"), _gemm),
    "Transpose": _transpose,
    "Concat": _concat,
    "Slice": _slice,
    "com.microsoft::QLinearConcat": quantised_concat,
    "Gather": picks.gather,
    "GatherElements": picks.gather_elements,
    "GridSample": picks.grid_sample,
    "ScatterND": picks.scatter_nd,
    "ScatterElements": picks.scatter_elements,
    "Col2Im": picks.col2im,
    "Pad": _pad,
    "Resize": _resize,
    "Upsample": _resize,
}
