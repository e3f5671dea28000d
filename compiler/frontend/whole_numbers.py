"""Whole numbers that become floats in a model compiled in 16 bits: they stay in fp32 until they are scaled.

    y = cast(sums) * scale       # sums of int32: 16 bits hold none beyond 65504, and few exactly
    angle = cast(position) * frequency

Each such value has a *twin*, the same in fp32: what only moves or scales it is worked out of that and rounded once, and
has a twin of its own; all else takes the rounded one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from compiler.frontend.graph import Array, GraphBuilder, Value
from compiler.frontend.types import onnx_type
from compiler.operators import Declared, find

WIDE = "float32"
FLOATS = ("float16", "bfloat16")
NUMBERS = ("int16", "uint16", "int32", "uint32")
MOVED = frozenset({
    "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
})  # fmt: skip
SCALED = frozenset({"Add", "Div", "Max", "Min", "Mul", "Neg", "Reciprocal", "Sqrt", "Sub"})
# Of large numbers their results are small ones.
ENDED = frozenset({"Cos", "Log", "Sin"})
FACTORS = frozenset({"Div", "Mul"})

Apply = Callable[[Declared, Sequence[Value | None]], Sequence[Value]]


@dataclass
class WholeNumbers:
    """The twins of one import, by the value that is rounded."""

    graph: GraphBuilder
    twins: dict[Value, Value] = field(default_factory=dict)

    def results(
        self, kind: str, values: Sequence[Value | None], attributes: Mapping[str, Any], apply: Apply
    ) -> Sequence[Value] | None:
        """Those of a node with twins among its operands, or that makes one; None of all others.

        ``apply`` calls an operator with the node's attributes.
        """
        if self.graph.types.wide not in FLOATS or not values or values[0] is None:
            return None
        if kind == "Cast":
            return self._cast(values[0], attributes, apply)
        if kind == "DynamicQuantizeLinear":
            return self._quantised(kind, values, apply)
        if not any(value in self.twins for value in values):
            return None
        if kind == "MatMul" and _is_outer(values):
            kind = "Mul"
        operands = self._operands(kind, values) if kind in MOVED | SCALED | ENDED else None
        declared = find("", kind)
        if operands is None or declared is None:
            return None
        (result,) = apply(declared, operands)
        ends = kind in ENDED or any(_is_narrow(value) and value not in self.twins for value in values)
        return [self._rounded(result, keep=not ends)]

    def _cast(self, x: Value, attributes: Mapping[str, Any], apply: Apply) -> Sequence[Value] | None:
        declared, twin = find("", "Cast"), self.twins.get(x)
        if attributes["to"] in (TensorProto.FLOAT, TensorProto.DOUBLE):
            if x.constant is None and x.dtype in NUMBERS:
                return [self._rounded(self.graph.call("Cast", x, to=onnx_type(WIDE)))]
            return None if twin is None else [x]
        return None if twin is None or declared is None else apply(declared, [twin])

    def _quantised(self, kind: str, values: Sequence[Value | None], apply: Apply) -> Sequence[Value] | None:
        """The product of a scale with another one is too small for 16 bits."""
        declared = find("", kind)
        if declared is None:
            return None
        results = apply(declared, values)
        self.twins[results[1]] = self.graph.call("Cast", results[1], to=onnx_type(WIDE))
        return results

    def _operands(self, kind: str, values: Sequence[Value | None]) -> list[Value | None] | None:
        """All in fp32; None where the node is about other numbers, too.

        1. What is known is nothing that 16 bits do not hold: masks are as large a number as there is.
        2. The others have twins, or are factors.
        """
        found = list[Value | None]()
        for value in values:
            if value is None or not _is_float(value):
                found.append(value)
            elif value in self.twins:
                found.append(self.twins[value])
            elif value.constant is not None:
                if not _holds(value.dtype, value.constant):
                    return None
                found.append(self.graph.wide(value))
            elif kind in FACTORS:
                found.append(self.graph.call("Cast", value, to=onnx_type(WIDE)))
            else:
                return None
        return found

    def _rounded(self, twin: Value, *, keep: bool = True) -> Value:
        rounded: Value = self.graph.call("Cast", twin, to=onnx_type(self.graph.types.wide or WIDE))
        if keep:
            self.twins[rounded] = twin
        return rounded


def _holds(dtype: str, array: Array) -> bool:
    limits: Any = ml_dtypes.finfo
    return bool(np.all(np.abs(array) <= float(limits(dtype).max)))


def _is_float(value: Value) -> bool:
    return value.dtype in FLOATS or value.dtype == WIDE


def _is_narrow(value: Value | None) -> bool:
    return value is not None and value.constant is None and value.dtype in FLOATS


def _is_outer(values: Sequence[Value | None]) -> bool:
    """Whether a product of matrices has sums of one term: of a column and a row."""
    shapes = [() if value is None else value.shape for value in values]
    return all(len(shape) > 1 for shape in shapes) and shapes[0][-1] == 1
