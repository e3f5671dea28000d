"""Long rows in parts: where that is proposed, that it pays, and that results stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array
from tvm import te, tirx

from compiler import api
from compiler.operators.reduction import MAX, SUM, Rows
from compiler.operators.softmax import softmax_of
from compiler.pipeline import Observer
from compiler.sim.simulator import simulate
from compiler.target import load_chip
from compiler.tiling.in_parts import InParts
from compiler.tiling.split_rows import SWITCH, split
from tests.host import for_host

TW2 = load_chip("tw2")


def function(made: Callable[..., te.Tensor], *shapes: tuple[int, ...], dtype: str = "float16") -> Any:
    given = [te.placeholder(shape, dtype, f"p{at}") for at, shape in enumerate(shapes)]
    return te.create_prim_func([*given, made(*given)])


def kernels(func: Any, schedule: str = "reduction") -> InParts:
    (found,) = split(func, schedule, TW2)
    return found


def shapes_of(found: InParts) -> list[tuple[int, ...]]:
    return [tuple(int(n) for n in buffer.shape) for buffer in found.between]


def summed(*axes: int) -> Callable[[te.Tensor], te.Tensor]:
    return lambda x: Rows.of(x, axes).reduce("total", SUM, "float32", lambda i: x[i].astype("float32"))


def test_a_softmax_is_in_three_kernels_one_behind_the_other() -> None:
    found = kernels(function(softmax_of, (1, 32000)), "softmax")
    assert shapes_of(found) == [(1, 1, 20), (1, 1, 20)]
    assert [part.arguments for part in found.parts] == [(0, 2), (0, 2, 3), (0, 2, 3, 1)]
    assert [part.schedule for part in found.parts] == ["reduction", "reduction", "softmax"]


def test_what_needs_one_another_not_is_in_one_kernel() -> None:
    def spread(x: te.Tensor) -> te.Tensor:
        rows = Rows.of(x, [1])
        largest = rows.reduce("largest", MAX, "float16", lambda i: x[i])
        total = rows.reduce("total", SUM, "float32", lambda i: x[i].astype("float32"))
        return te.compute((1, 1), lambda *i: largest[i].astype("float32") - total[i], "spread")

    found = kernels(function(spread, (1, 100_000)))
    assert [part.arguments for part in found.parts] == [(0, 2, 3), (2, 3, 1)]


@pytest.mark.parametrize(
    ("axes", "shape", "between"),
    [
        ((1,), (3, 100_000), (3, 1, 5)),  # six parts are not alike
        ((1,), (1, 50257), (1, 1, 20)),  # no number of parts is: there is a rest
        ((0,), (16384, 64), (1, 16, 64)),  # columns: parts lie before them
        ((0, 2), (64, 8, 2048), (1, 8, 1, 2)),  # along the longest of several axes
    ],
)
def test_parts_keep_the_cores_busy(axes: tuple[int, ...], shape: tuple[int, ...], between: tuple[int, ...]) -> None:
    assert shapes_of(kernels(function(summed(*axes), shape))) == [between]


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ((1,), (64, 100_000)),  # rows for all cores
        ((0,), (2048, 4096)),  # as many columns
        ((1,), (1, 512)),  # a short one
    ],
)
def test_what_gains_nothing_stays_one_kernel(axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    assert split(function(summed(*axes), shape), "reduction", TW2) == ()


def test_a_row_may_begin_behind_its_first_element() -> None:
    def behind(x: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((50, 100_050), "k")
        return te.compute((1,), lambda i: te.sum(x[i, k], axis=k), "behind")

    x = np.random.default_rng(5).standard_normal((1, 100_100)).astype(np.float32)
    parts, total = (tvm.runtime.tensor(np.zeros(shape, np.float32)) for shape in ((1, 20), (1,)))
    first, second = kernels(function(behind, x.shape, dtype="float32")).parts
    for_host(first.func.with_attr("global_symbol", "main"))(tvm.runtime.tensor(x), parts)
    for_host(second.func.with_attr("global_symbol", "main"))(parts, total)
    np.testing.assert_allclose(total.numpy(), x[:, 50:100_050].astype(np.float64).sum(1), rtol=1e-4, atol=1e-2)


def test_what_is_not_combined_in_any_order_stays_one_kernel() -> None:
    def alternating(x: te.Tensor) -> te.Tensor:
        reducer = te.comm_reducer(lambda a, b: b - a, lambda dtype: tirx.const(0, dtype), "alternating")
        k = te.reduce_axis((0, 100_000), "k")
        return te.compute((1,), lambda i: reducer(x[i, k], axis=k))

    def from_one(x: te.Tensor) -> te.Tensor:
        reducer = te.comm_reducer(lambda a, b: a + b, lambda dtype: tirx.const(1, dtype), "from_one")
        k = te.reduce_axis((0, 100_000), "k")
        return te.compute((1,), lambda i: reducer(x[i, k], axis=k))

    for made in (alternating, from_one):
        assert split(function(made, (1, 100_000)), "reduction", TW2) == ()
    assert split(function(summed(1), (1, 100_000)), "matmul", TW2) == ()


# ---- results ----------------------------------------------------------------------------------------------------


def model(operator: str, shape: tuple[int, ...], consts: dict[str, np.ndarray], **attributes: Any) -> bytes:
    kind = TensorProto.INT64 if operator.startswith("Arg") else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", *consts], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [from_array(value, name) for name, value in consts.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def normalised(x: np.ndarray) -> np.ndarray:
    rest = x - x.mean((2, 3), keepdims=True)
    return rest / np.sqrt((rest**2).mean((2, 3), keepdims=True) + 1e-5)


ONES = {"s": np.ones(3, np.float32), "b": np.zeros(3, np.float32)}
CASES = {
    "softmax": (model("Softmax", (1, 32000), {}, axis=-1), (1, 32000), softmax),
    "softmax-rest": (model("Softmax", (2, 50257), {}, axis=-1), (2, 50257), softmax),
    "argmax": (model("ArgMax", (1, 65537), {}, axis=-1), (1, 65537), lambda x: x.argmax(-1)[:, None]),
    "norm": (model("InstanceNormalization", (1, 3, 200, 201), ONES), (1, 3, 200, 201), normalised),
    "columns": (model("ReduceMax", (9001, 33), {"a": np.array([0])}), (9001, 33), lambda x: x.max(0, keepdims=True)),
    "mean": (model("ReduceMean", (300, 1001), {}), (300, 1001), lambda x: x.mean(keepdims=True)),
}


@pytest.mark.parametrize(("name", "chip"), [*((name, "tw2") for name in CASES), ("softmax", "tw1"), ("mean", "tw1")])
def test_results_are_right_and_take_fewer_cycles(name: str, chip: str) -> None:
    source, shape, exact = CASES[name]
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    cycles = []
    for without in (frozenset[str](), frozenset({SWITCH})):
        artifact = api.compile(source, chip, cache=False, observer=Observer(without=without))
        np.testing.assert_allclose(
            artifact.run({"x": x}, hazards=True)["y"], exact(x.astype(np.float64)), rtol=2e-5, atol=2e-5
        )
        cycles.append(sum(simulate(each.program, artifact.model.chip).cycles for each in artifact.model.segments))
    # On tw1, DDR can hardly bring more than what a few cores read.
    assert 2 * cycles[0] < cycles[1] if chip == "tw2" else cycles[0] <= cycles[1]
