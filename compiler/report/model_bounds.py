"""Bounds of whole models and of single kernels, from the ONNX model alone.

Counted is what no program can leave out. Constants are folded, equal nodes are one, what no output needs is not done,
and these cost nothing:

- moves (reshapes, transposes, slices, concatenations, casts): what reads their result may read their input;
- sums, differences, scales by constants, ReLU and its likes, comparisons: the cube and FIX do them in passing, or they
  are folded into the weights of a product;
- tables of which data says what is read, unless that is given: then each row that is read comes once; and constants
  that are no weights of a product.

What is left is products (without those on padding), one pass of the vector unit over the results of functions and of
products of two values, n - 1 steps for the greatest of n, and inputs, outputs and weights in DDR, each once. What comes
one after the other is counted of recurrences, one step behind the other, and of the way from DDR and back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod

import numpy as np
import onnx

from compiler.report import onnx_facts, onnx_need
from compiler.report.bounds import Bound, Recurrence, Work
from compiler.report.boxes import Box, merged
from compiler.report.onnx_facts import Node, Value
from compiler.report.windows import window_of
from compiler.target.chip import Chip


class ModelWork:
    """The work in a model, as a whole and by groups of its nodes; with ``feeds``, that of a run on these inputs."""

    def __init__(
        self,
        model: onnx.ModelProto,
        precision: str | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        dims: Mapping[str, int] | None = None,
        feeds: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.feeds = feeds or {}
        self.facts = onnx_facts.read(model, precision, shapes, dims)
        self.needed = onnx_need.needs(self.facts)
        self._by_name = {name: node for node in self.facts.nodes for name in node.names}

    @property
    def total(self) -> Work:
        """Of the whole model: its inputs, outputs and weights go over DDR once."""
        comes = sum(self._bytes(value) for value in self.facts.inputs)
        goes = sum(value.size * value.item_bytes for value in self.facts.outputs)
        kept = sum(_weights(self.facts.nodes, self.needed).values()) + self._table_bytes()
        whole = Work(ddr_bytes=comes + goes + kept, there_and_back=bool(comes and goes))
        return sum((self._computing(node) for node in self.facts.nodes), whole)

    def _table_bytes(self) -> int:
        """Of the rows of constant tables that the given inputs say are read."""
        rows, row_bytes = dict[str, set[int]](), dict[str, int]()
        for node in self.facts.nodes:
            table, picked = [*node.inputs, None, None][:2]
            if node.operator != "Gather" or table is None or picked is None or node.attributes.get("axis", 0):
                continue
            box = self.needed.get(node.outputs[0].name) if node.outputs[0] is not None else None
            indices = self.feeds.get(picked.name)
            if not table.constant or not table.shape or indices is None or box is None or not box.is_whole:
                continue
            extent = table.shape[0]
            rows.setdefault(table.name, set()).update(int(row) % extent for row in np.unique(indices))
            row_bytes[table.name] = table.size // extent * table.item_bytes
        return sum(len(read) * row_bytes[name] for name, read in rows.items())

    def of(self, names: Collection[str]) -> Work | None:
        """Of the nodes in a kernel: what they read from others and others from them goes over DDR once.

        None where one of the names is no node of the graph.
        """
        wanted = [name for name in names if name not in self.facts.folded]
        if any(name not in self._by_name for name in wanted):
            return None
        nodes = list({id(self._by_name[name]): self._by_name[name] for name in wanted}.values())
        made = {value.name for node in nodes for value in node.outputs if value is not None}
        elsewhere = [node for node in self.facts.nodes if all(node is not one for one in nodes)]
        read = {v.name for node in elsewhere for v in node.inputs if v is not None}
        read |= {value.name for value in self.facts.outputs}
        bytes_ = sum(_weights(nodes, self.needed).values())
        bytes_ += sum(self._read(nodes, made).values())
        bytes_ += sum(self._bytes(v) for node in nodes for v in node.outputs if v is not None and v.name in read)
        return sum((self._computing(node) for node in nodes), Work(ddr_bytes=bytes_))

    def _read(self, nodes: Sequence[Node], made: Collection[str]) -> dict[str, int]:
        """Bytes of what comes from elsewhere, as far as these nodes need it."""
        boxes: dict[str, Box] = {}
        least: dict[str, int] = {}
        items: dict[str, int] = {}
        for node in nodes:
            for value, need in zip(node.inputs, onnx_need.input_needs(node, self.needed), strict=True):
                if value is None or need is None or value.constant or value.name in made:
                    continue
                boxes[value.name] = merged(boxes.get(value.name), need) or need
                least[value.name], items[value.name] = value.least_bytes, value.item_bytes
        return {name: min(least[name], box.size * items[name]) for name, box in boxes.items()}

    def _bytes(self, value: Value) -> int:
        box = self.needed.get(value.name)
        return min(value.least_bytes, box.size * value.item_bytes) if box is not None else 0

    def _computing(self, node: Node) -> Work:
        """Products and vector passes of a node, as far as its result is needed."""
        if node.operator in onnx_need.RECURRENT:
            return self._recurrent(node)
        out = node.outputs[0] if node.outputs else None
        box = self.needed.get(out.name) if out is not None else None
        if out is None or box is None:
            return Work()
        products = _PRODUCTS.get(node.operator)
        macs = products(node, box) if products is not None else 0
        passes = _vector_elements(node, box)
        return Work({_product_type(node): macs} if macs else {}, passes * out.item_bytes)

    def _recurrent(self, node: Node) -> Work:
        """Gates from inputs and from the state before; of the last step, as if of its result nothing were needed."""
        data, state = node.inputs[0], node.inputs[2]
        steps = onnx_need.recurrent_steps(node, self.needed)
        if data is None or state is None or not data.shape or not state.shape or not steps:
            return Work()
        if onnx_need.input_needs(node, self.needed)[1] is None:
            return Work()
        _, gates, hidden = state.shape
        rows = data.shape[1] * sum(max(0, count - 1) for count in steps)
        passes = _RECURRENT[node.operator] * rows * hidden
        macs = {data.dtype: rows * gates * (data.shape[2] + hidden)}
        recurrence = Recurrence(max(0, max(steps) - 1), _rounds(node, gates, hidden))
        return Work(macs, passes * data.item_bytes, recurrence=recurrence)


def model_bound(
    model: onnx.ModelProto,
    chip: Chip,
    precision: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: Mapping[str, np.ndarray] | None = None,
) -> Bound:
    return ModelWork(model, precision, shapes, dims, feeds).total.bound(chip)


# ---- products -------------------------------------------------------------------------------------------------------


def _matmul(node: Node, out: Box) -> int:
    left = node.inputs[0]
    return out.size * left.shape[-1] if left is not None and left.shape else 0


def _gemm(node: Node, out: Box) -> int:
    left = node.inputs[0]
    if left is None or not left.shape:
        return 0
    return out.size * left.shape[0 if node.attributes.get("transA", 0) else 1]


def _convolution(node: Node, out: Box) -> int:
    weights, window = node.inputs[_WEIGHTS[node.operator]], window_of(node, out.axes[2:])
    if weights is None or weights.shape is None or window is None:
        return 0
    return prod(out.counts[:2]) * weights.shape[1] * window.taps


def _transposed_convolution(node: Node, out: Box) -> int:
    """Every input meets every tap, but where the result is cut off; that many are not counted."""
    data, weights = node.inputs[:2]
    if data is None or weights is None or data.shape is None or weights.shape is None or not out.is_whole:
        return 0
    strides = node.attributes.get("strides") or [1] * (len(data.shape) - 2)
    dilations = node.attributes.get("dilations") or [1] * len(strides)
    taps = 1
    for size, kernel, stride, dilation, made in zip(
        data.shape[2:], weights.shape[2:], strides, dilations, out.shape[2:], strict=True
    ):
        cut = max(0, (size - 1) * stride + (kernel - 1) * dilation + 1 - made)
        taps *= max(0, size * kernel - cut * (-(-kernel // stride)))
    return data.shape[0] * data.shape[1] * weights.shape[1] * taps


def _einsum(node: Node, out: Box) -> int:
    """Of two operands; a letter that only one of them has and the result has not is summed away first."""
    text = bytes(node.attributes["equation"]).decode().replace(" ", "")
    shapes = [value.shape if value is not None else None for value in node.inputs]
    if "..." in text or "->" not in text or len(shapes) != 2 or not out.is_whole:
        return 0
    terms, result = text.split("->")
    sizes: dict[str, int] = {}
    for letters, shape in zip(terms.split(","), shapes, strict=True):
        if shape is None or len(set(letters)) != len(letters):
            return 0
        sizes.update(zip(letters, shape, strict=True))
    left, right = terms.split(",")
    return prod(n for letter, n in sizes.items() if letter in result or (letter in left and letter in right))


def _attention(node: Node, out: Box) -> int:
    """Scores and values of four-dimensional operands; a causal mask leaves half of them."""
    query, key, value = (node.inputs[i].shape if node.inputs[i] is not None else None for i in range(3))  # type: ignore[union-attr]
    if not query or not key or not value or not len(query) == len(key) == len(value) == 4:
        return 0
    both = query[0] * query[1] * query[2] * key[2] * (query[3] + value[3])
    return both // 2 if node.attributes.get("is_causal", 0) else both


_WEIGHTS = {**onnx_need.WEIGHTS, "ConvTranspose": 1, "MatMul": 1, "MatMulInteger": 1, "QLinearMatMul": 3, "Gemm": 1}
_WEIGHTS |= {f"com.microsoft::{name}": 1 for name in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul")}
_WEIGHTS |= {"com.microsoft::QGemm": 3}
_RECURRENT = {"LSTM": 5, "GRU": 3, "RNN": 1}  # functions of each step
_OF_GATES = {b"Sigmoid", b"Tanh"}  # what gates are made by, where nothing is said; the fixpipe may do others in passing


def _rounds(node: Node, gates: int, hidden: int) -> tuple[int, ...]:
    """Of a step: the product with the state, functions of its gates, and, but for an RNN, the one behind those.

    A product with one element is a scale, which may go with something else.
    """
    if hidden == 1:
        return ()
    named = set(map(bytes, node.attributes.get("activations", ())))
    functions = (1 if node.operator == "RNN" else 2) * (named <= _OF_GATES)
    return (gates * hidden, *[hidden] * functions)


_INTEGER_PRODUCTS = ("com.microsoft::MatMulIntegerToFloat", "com.microsoft::DynamicQuantizeMatMul")
_PRODUCTS: dict[str, Callable[[Node, Box], int]] = {
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul", *_INTEGER_PRODUCTS), _matmul),
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv"), _convolution),
    **dict.fromkeys(("Gemm", "com.microsoft::QGemm"), _gemm),
    "ConvTranspose": _transposed_convolution,
    "Einsum": _einsum,
    "Attention": _attention,
}


_OF_INTEGERS = {
    "ConvInteger", "QLinearConv", "MatMulInteger", "QLinearMatMul", "com.microsoft::QGemm", *_INTEGER_PRODUCTS
}  # fmt: skip


def _product_type(node: Node) -> str:
    """Integers where both operands are, also where the model only sees them as floats."""
    if node.operator in _OF_INTEGERS:
        return "int8"
    operands = [value for value in node.inputs[:2] if value is not None]
    if len(operands) == 2 and all(value.quantised for value in operands):
        return "int8"
    return operands[0].dtype


def _weights(nodes: Sequence[Node], needed: Mapping[str, Box]) -> dict[str, int]:
    """Bytes of the constants that are operands of products."""
    found: dict[str, int] = {}
    for node in nodes:
        if not any(value is not None and value.name in needed for value in node.outputs):
            continue
        slots = range(1, 3) if node.operator in _RECURRENT else [_WEIGHTS.get(node.operator, -1)]
        if node.operator in ("MatMul", "Gemm"):
            slots = range(2)
        needs = onnx_need.input_needs(node, dict(needed))
        for slot in slots:
            value = node.inputs[slot] if 0 <= slot < len(node.inputs) else None
            need = needs[slot] if value is not None else None
            if value is not None and value.constant and need is not None:
                found[value.name] = min(value.least_bytes, need.size * value.item_bytes)
    return found


# ---- the vector unit ------------------------------------------------------------------------------------------------

FUNCTIONS = frozenset({
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Elu", "Celu", "Selu", "Erf", "Exp", "Gelu",
    "HardSwish", "Log", "Mish", "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh",
    "Softmax", "LogSoftmax",
    # the squares of their inputs
    "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization", "LpNormalization",
    "MeanVarianceNormalization", "LRN",
})  # fmt: skip
_FOLDS = frozenset({"ReduceMax", "ReduceMin", "ReduceProd", "ArgMax", "ArgMin", "GlobalMaxPool"})
_READS = frozenset({"ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "TopK"})


def _vector_elements(node: Node, out: Box) -> int:
    """Elements that pass through the vector unit, each once."""
    if node.operator in FUNCTIONS:
        return out.size
    data = node.inputs[0] if node.inputs else None
    if data is None or data.shape is None:
        return 0
    if node.operator in ("Mul", "Div", "Mod", "Pow", "Max"):
        return out.size if _of_two_values(node) else 0
    if node.operator == "MaxPool":
        window = window_of(node, out.axes[2:])
        read = prod(out.counts[:2]) * window.touched if window is not None else 0
        return max(0, read - out.size)
    if not out.is_whole:
        return 0
    if node.operator in _FOLDS:
        return max(0, data.size - out.size)
    if node.operator in _READS:
        return data.size
    return 0


def _of_two_values(node: Node) -> bool:
    """Both operands are as large as the result and neither is constant: no scale that FIX could apply."""
    out = node.outputs[0]
    operands = node.inputs[:2]
    return len(operands) == 2 and all(
        value is not None and out is not None and not value.constant and value.shape == out.shape for value in operands
    )
