"""Random blocks of transformers, run free of hazards, against onnxruntime.

Norms as operators and spelled out, attention over the block's own sequence and another one, with fewer keys than
queries, rotated, masked, from one product or from three, in sequences and heads of any size; feed-forward parts with
gates and without; batches that clusters divide and others.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from ci.random_cases import Outcome
from compiler import api
from models.checks import run

TOLERANCE, LEAST_COSINE = 2e-3, 0.995
BATCHES, LENGTHS, WIDTHS = (1, 1, 2, 3, 4, 4, 8, 12, 16), (1, 5, 8, 16, 17, 31, 32, 49, 64, 100), (16, 24, 32, 64, 100)
HEADS, HEAD_WIDTHS = (1, 2, 3, 4, 6, 8), (4, 8, 16, 20, 32, 40, 64)
MOST_ELEMENTS = 60_000  # of what a block is given
MASKED = -1e4


class Block:
    """Nodes with the shapes of what they make, one after another."""

    def __init__(self, seed: int) -> None:
        self.random, self.rng = Random(seed), np.random.default_rng(seed)
        self.nodes, self.weights = list[Any](), dict[str, np.ndarray]()
        batch, length, self.width = map(self.random.choice, (BATCHES, LENGTHS, WIDTHS))
        while batch * length * self.width > MOST_ELEMENTS:
            batch, length = max(1, batch // 2), max(1, length // 2)
        self.made: dict[str, tuple[int, ...]] = {"x": (batch, length, self.width)}
        self.inputs = {"x": self.made["x"]}
        if self.random.random() < 0.3:
            self.inputs["memory"] = (batch, self.random.choice((3, 16, 33, 50)), self.width)
        self.made |= self.inputs
        last = "x"
        for _ in range(self.random.choice((1, 1, 2))):
            last = self._layer(last)
        self.output = self._head(last)

    def source(self) -> bytes:
        given = [make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.inputs.items()]
        made = [make_tensor_value_info(self.output, TensorProto.FLOAT, self.made[self.output])]
        weights = [numpy_helper.from_array(value, name) for name, value in self.weights.items()]
        graph = make_graph(self.nodes, "block", given, made, weights)
        opsets = [make_opsetid("", 17)]
        return bytes(make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())

    def draw(self) -> dict[str, np.ndarray]:
        return {name: self.rng.standard_normal(shape).astype(np.float32) for name, shape in self.inputs.items()}

    # ---- nodes

    def op(self, operator: str, *inputs: Any, shape: tuple[int, ...] | None = None, **attributes: Any) -> str:
        """A node; arrays and numbers among its inputs become weights. Without a shape it broadcasts."""
        given = [each if isinstance(each, str) else self._weight(each) for each in inputs]
        name = f"v{len(self.nodes)}"
        self.nodes.append(make_node(operator, given, [name], name, **attributes))
        self.made[name] = np.broadcast_shapes(*(self._shape(each) for each in given)) if shape is None else shape
        return name

    def _weight(self, value: Any) -> str:
        array = np.asarray(value)
        name = f"w{len(self.weights)}"
        self.weights[name] = array.astype(np.float32) if array.dtype == np.float64 else array
        return name

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.made[name] if name in self.made else self.weights[name].shape

    def drawn(self, *shape: int, scale: float = 0.1, mean: float = 0.0) -> Any:
        return mean + scale * self.rng.standard_normal(shape)

    def linear(self, x: str, columns: int) -> str:
        *rows, k = self.made[x]
        product = self.op("MatMul", x, self.drawn(k, columns, scale=k**-0.5), shape=(*rows, columns))
        if self.random.random() < 0.3:
            return product
        sides = (product, self.drawn(columns))
        return self.op("Add", *(sides if self.random.random() < 0.5 else sides[::-1]))

    def moved(self, x: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
        """In another shape, then with these axes."""
        x = self.op("Reshape", x, np.array(shape), shape=shape)
        return self.op("Transpose", x, shape=tuple(shape[axis] for axis in axes), perm=axes)

    def part(self, x: str, axis: int, begin: int, end: int) -> str:
        shape = tuple(end - begin if at == axis else n for at, n in enumerate(self.made[x]))
        return self.op("Slice", x, np.array([begin]), np.array([end]), np.array([axis]), shape=shape)

    # ---- parts of a layer

    def _layer(self, x: str) -> str:
        first, parts = self.random.random() < 0.5, [lambda y: self._attention(y, y), self._feed_forward]
        if "memory" in self.inputs:
            parts.insert(1, lambda y: self._attention(y, "memory"))
        for each in parts:
            x = self.op("Add", x, each(self._norm(x))) if first else self._norm(self.op("Add", each(x), x))
        return x

    def _norm(self, x: str) -> str:
        shape, scale, bias = self.made[x], self.drawn(self.width, mean=1.0), self.drawn(self.width)
        kind = self.random.choice(("operator", "spelled out", "of squares"))
        if kind == "operator":
            return self.op("LayerNormalization", x, scale, bias, shape=shape, axis=-1, epsilon=1e-5)
        if kind == "spelled out":
            x = self.op("Sub", x, self._mean(x))
        squares = self.op("Pow", x, 2.0) if self.random.random() < 0.5 else self.op("Mul", x, x)
        root = self.op("Sqrt", self.op("Add", self._mean(squares), 1e-5))
        scaled = self.op("Mul", self.op("Div", x, root), scale)
        return self.op("Add", scaled, bias) if kind == "spelled out" else scaled

    def _mean(self, x: str) -> str:
        return self.op("ReduceMean", x, shape=(*self.made[x][:-1], 1), axes=[-1])

    def _attention(self, x: str, memory: str) -> str:
        (batch, queries, _), (_, keys, _) = self.made[x], self.made[memory]
        heads, size = self.random.choice(HEADS), self.random.choice(HEAD_WIDTHS)
        groups = self.random.choice([n for n in HEADS if heads % n == 0]) if self.random.random() < 0.3 else heads
        if memory == x and groups == heads and self.random.random() < 0.35:
            q, k, v = self._of_one_product(x, batch, queries, heads, size)
        else:
            q = self.moved(self.linear(x, heads * size), (batch, queries, heads, size), (0, 2, 1, 3))
            of_memory = (batch, keys, groups, size)
            k, v = (self.moved(self.linear(memory, groups * size), of_memory, (0, 2, 1, 3)) for _ in range(2))
        if memory == x and self.random.random() < 0.25:
            q, k = self._rotated(q), self._rotated(k)
        if groups != heads:
            k, v = (self._for_all_heads(each, heads) for each in (k, v))
        factor, where = size**-0.5, self.random.choice(("queries", "keys", "scores"))
        q = self.op("Mul", q, factor) if where == "queries" else q
        k = self.op("Transpose", k, shape=(batch, heads, size, keys), perm=(0, 1, 3, 2))
        k = self.op("Mul", k, factor) if where == "keys" else k
        scores = self.op("MatMul", q, k, shape=(batch, heads, queries, keys))
        scores = self.op("Div", scores, 1 / factor) if where == "scores" else scores
        weights = self.op("Softmax", self._masked(scores), axis=-1)
        mixed = self.op("MatMul", weights, v, shape=(batch, heads, queries, size))
        mixed = self.op("Transpose", mixed, shape=(batch, queries, heads, size), perm=(0, 2, 1, 3))
        together = (batch, queries, heads * size)
        return self.linear(self.op("Reshape", mixed, np.array(together), shape=together), self.width)

    def _of_one_product(self, x: str, batch: int, length: int, heads: int, size: int) -> list[str]:
        product, columns = self.linear(x, 3 * heads * size), heads * size
        if self.random.random() < 0.5:
            parts = [self.part(product, 2, at * columns, (at + 1) * columns) for at in range(3)]
            return [self.moved(each, (batch, length, heads, size), (0, 2, 1, 3)) for each in parts]
        stacked = self.moved(product, (batch, length, 3, heads, size), (2, 0, 3, 1, 4))
        return [self.op("Gather", stacked, np.array(at), shape=self.made[stacked][1:], axis=0) for at in range(3)]

    def _rotated(self, x: str) -> str:
        *_, length, size = self.made[x]
        angles = np.outer(np.arange(length), 1e4 ** (-2 * np.arange(size // 2) / size))
        angles = np.concatenate([angles, angles], 1)
        halves = self.op("Neg", self.part(x, 3, size // 2, size)), self.part(x, 3, 0, size // 2)
        turned = self.op("Concat", *halves, shape=self.made[x], axis=-1)
        return self.op("Add", self.op("Mul", x, np.cos(angles)), self.op("Mul", turned, np.sin(angles)))

    def _for_all_heads(self, x: str, heads: int) -> str:
        batch, groups, length, size = self.made[x]
        apart, shape = (batch, groups, 1, length, size), (batch, groups, heads // groups, length, size)
        x = self.op("Reshape", x, np.array(apart), shape=apart)
        x = self.op("Expand", x, np.array(shape), shape=shape)
        return self.op("Reshape", x, np.array((batch, heads, length, size)), shape=(batch, heads, length, size))

    def _masked(self, scores: str) -> str:
        _, heads, queries, keys = self.made[scores]
        kind = self.random.choice(("none", "none", "later", "chosen", "each", "by distance"))
        if kind == "later":
            return self.op("Add", scores, np.triu(np.full((queries, keys), MASKED), 1))
        if kind == "chosen":
            return self.op("Where", np.tri(queries, keys, dtype=bool)[None, None], scores, MASKED)
        if kind == "each":
            return self.op("Add", scores, self.drawn(1, heads, queries, keys, scale=1.0))
        return self.op("Add", scores, self.drawn(heads, 1, keys, scale=1.0)) if kind == "by distance" else scores

    def _feed_forward(self, x: str) -> str:
        columns = self.random.choice((self.width, 2 * self.width, 4 * self.width, 3 * self.width + 5))
        kind = self.random.choice(("plain", "plain", "gate", "gate of one product"))
        if kind == "plain":
            return self.linear(self._activation(self.linear(x, columns)), self.width)
        if kind == "gate":
            gate, value = self.linear(x, columns), self.linear(x, columns)
        else:
            both = self.linear(x, 2 * columns)
            gate, value = self.part(both, 2, 0, columns), self.part(both, 2, columns, 2 * columns)
        return self.linear(self.op("Mul", self._activation(gate), value), self.width)

    def _activation(self, x: str) -> str:
        kind = self.random.choice(("Relu", "Tanh", "HardSwish", "gelu", "silu", "squares"))
        if kind == "gelu":
            half = self.op("Add", self.op("Erf", self.op("Div", x, 2**0.5)), 1.0)
            return self.op("Mul", self.op("Mul", x, half), 0.5)
        if kind == "silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if kind == "squares":
            x = self.op("Relu", x)
            return self.op("Mul", x, x)
        return self.op(kind, x)

    def _head(self, x: str) -> str:
        batch, _, width = self.made[x]
        kind = self.random.choice(("none", "first", "mean", "words"))
        if kind == "first":
            return self.linear(self.op("Gather", x, np.array(0), shape=(batch, width), axis=1), 10)
        if kind == "mean":
            return self.linear(self.op("ReduceMean", x, shape=(batch, width), axes=[1], keepdims=0), 10)
        return self.linear(x, self.random.choice((7, 50, 130))) if kind == "words" else x


def check(seed: int, chip: str) -> Outcome:
    block = Block(seed)
    data, inputs, precision = block.source(), block.draw(), ("fp32", "fp16")[seed // 3 % 2]
    shown = f"x {block.inputs}, {precision}, " + " ".join(node.op_type for node in block.nodes)
    try:
        found = api.compile(data, chip, precision=precision, jobs=1).run(inputs, hazards=True)[block.output]
    except Exception as problem:  # noqa: BLE001  whatever it is, it is this seed's failure
        return Outcome(seed, chip, f"{shown}: {type(problem).__name__}: {problem!s:.300}")
    fault = _fault(found.astype(np.float64), _reference(data, inputs).astype(np.float64), precision)
    return Outcome(seed, chip, f"{shown}: {fault}" if fault else "", Counter({precision: 1}))


def _fault(found: np.ndarray, expected: np.ndarray, precision: str) -> str:
    if found.shape != expected.shape:
        return f"{found.shape}, not {expected.shape}"
    if precision == "fp32":
        error = float(np.abs(found - expected).max() / max(np.abs(expected).max(), 0.1))
        return "" if error <= TOLERANCE else f"off by {error:.2g} of the largest"
    lengths = np.linalg.norm(found) * np.linalg.norm(expected)
    cosine = float((found * expected).sum() / lengths) if lengths else 1.0
    return "" if cosine >= LEAST_COSINE else f"cosine {cosine:.4f}"


def _reference(data: bytes, inputs: dict[str, np.ndarray]) -> np.ndarray:
    (found,) = run(onnx.load_from_string(data), inputs).values()
    return found
