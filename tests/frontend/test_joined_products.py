"""Products of one matrix with several known ones become one, where their results are only moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from compiler import graph
from compiler.frontend import Imported, import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node

RNG = np.random.default_rng(5)
X = (RNG.random((2, 6, 8)) - 0.5).astype(np.float32)
WIDTHS = {"a": 8, "b": 4, "c": 12}
CONSTANTS = {
    **{name: RNG.standard_normal((8, width)).astype(np.float32) for name, width in WIDTHS.items()},
    **{f"{name}_bias": RNG.standard_normal(width).astype(np.float32) for name, width in WIDTHS.items()},
    "shape": np.array([0, 0, 2, -1], np.int64),
}


def projected(name: str, *, bias: bool = True, ends: str = "Transpose") -> list[Any]:
    """``x @ name + bias``, split into two heads; or what else it ends in."""
    product = [node("MatMul", f"x {name}", f"{name}0")]
    if bias:
        product.append(node("Add", f"{name}_bias {name}0", f"{name}1"))
    made = product[-1].output[0]
    if ends == "Transpose":
        return [
            *product,
            node("Reshape", f"{made} shape", f"{name}2"),
            node("Transpose", f"{name}2", f"{name}_end", perm=[0, 2, 1, 3]),
        ]
    return [*product, node(ends, made, f"{name}_end")]


def imported(*nodes: list[Any], outputs: tuple[str, ...] = ()) -> tuple[onnx.ModelProto, Imported]:
    every = [each for some in nodes for each in some]
    ends = [f"{name}_end" for name in WIDTHS if any(f"{name}_end" in each.output for each in every)]
    proto = model(every, {"x": X.shape}, [*ends, *outputs], CONSTANTS, opset=17)
    return proto, import_model(proto.SerializeToString())


def operators(found: Imported) -> list[str]:
    calls = graph.read(found.module["main"]).calls
    return [str(graph.attribute(found.module[call.callee], "tw.operator")) for call in calls]


@pytest.mark.parametrize("bias", [True, False])
def test_products_of_one_matrix_are_one(bias: bool) -> None:
    proto, found = imported(*(projected(name, bias=bias) for name in WIDTHS))
    made = operators(found)
    assert made[: 1 + bias] == ["MatMul", "Add"][: 1 + bias]
    assert made.count("MatMul") == 1
    assert made.count("Slice") == len(WIDTHS)
    check(proto, found, {"x": X})


@pytest.mark.parametrize(
    "other",
    [
        projected("b", ends="Relu"),  # which goes into the kernel of its product
        projected("b", bias=False),
        [each for each in projected("b") if each.op_type in ("MatMul", "Add")],
    ],
    ids=["activated", "without bias", "a result"],
)
def test_others_stay_by_themselves(other: list[Any]) -> None:
    ends_in_move = any("b_end" in each.output for each in other)
    proto, found = imported(projected("a"), other, projected("c"), outputs=() if ends_in_move else ("b1",))
    made = operators(found)
    assert made.count("MatMul") == 2
    assert made.count("Slice") == 2
    check(proto, found, {"x": X})


def test_a_bias_of_rows_is_none_of_columns() -> None:
    rows = RNG.standard_normal((6, 1)).astype(np.float32)
    by_row = [
        [node("MatMul", f"x {name}", f"{name}0"), node("Add", f"{name}0 rows", f"{name}1"),
         node("Transpose", f"{name}1", f"{name}_end", perm=[0, 2, 1])]
        for name in ("a", "b")
    ]  # fmt: skip
    every = [each for some in by_row for each in some]
    proto = model(every, {"x": X.shape}, ["a_end", "b_end"], {**CONSTANTS, "rows": rows}, opset=17)
    found = import_model(proto.SerializeToString())
    assert operators(found).count("MatMul") == 2
    check(proto, found, {"x": X})
