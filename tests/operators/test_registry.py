"""Declaring operators, checking calls against what they take, and making PrimFuncs of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from compiler.errors import InvalidError, TilewrightError, UnsupportedError
from compiler.operators import (
    Constant,
    Graph,
    TensorType,
    Value,
    all_operators,
    composition,
    find,
    find_called,
    operator,
)
from compiler.operators.registry import SCHEDULES
from tests.operators.evaluate import Eager, evaluate

pytestmark = pytest.mark.usefixtures("forget_operators")
X = TensorType((2, 3), "float32")


def declare_scale() -> None:
    @operator("test::Scale", "test::Times", schedule="elementwise")
    def scale(
        x: te.Tensor,
        by: te.Tensor | Constant | None = None,
        axes: Constant | None = None,
        *,
        factor: float = 2.0,
        places: tuple[int, ...] = (),
        mode: str | None = None,
        on: bool = False,
        opset: int = 1,
    ) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x(*i) * np.float32(factor * opset), "scale")


def problem_of(inputs: list[Any], attributes: dict[str, Any]) -> tuple[type[TilewrightError], str, str]:
    declare_scale()
    with pytest.raises(TilewrightError) as caught:
        find_called("test::Scale").prim_func(inputs, attributes)
    (problem,) = caught.value.problems
    return type(caught.value), problem.code, problem.message


def test_importing_the_package_imports_no_tvm() -> None:
    code = "import compiler.operators, sys; sys.exit(any(name.split('.')[0] == 'tvm' for name in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_an_operator_is_found_by_each_of_its_names() -> None:
    declare_scale()
    for name in ("Scale", "Times"):
        found = find("test", name)
        assert found is not None and found.schedule == "elementwise" and not found.is_composition
    assert find("test", "Nothing") is None
    assert find("", "MatMul") == find("ai.onnx", "MatMul") == find_called("MatMul")


def test_the_signature_is_read_off_the_function() -> None:
    declare_scale()
    signature = find_called("test::Scale").signature
    assert [(i.name, i.kind, i.optional) for i in signature.inputs] == [
        ("x", "tensor", False),
        ("by", "either", True),
        ("axes", "constant", True),
    ]
    assert list(signature.attributes) == ["factor", "places", "mode", "on"]
    assert signature.wants_opset


def test_a_node_may_say_its_own_opset() -> None:
    declare_scale()
    signature = find_called("test::Scale").signature
    for given, wanted in (({}, 7), ({"opset": 11}, 11)):
        assert signature.bind([X], given, 7)[1]["opset"] == wanted


def test_a_prim_func_says_what_it_was_made_of() -> None:
    declare_scale()
    by = np.array([np.inf], np.float32)
    function = find_called("test::Scale").prim_func([X, by], {"axes": [1, 0], "factor": 3}, opset=7)
    assert [(p.name, [int(n) for n in p.shape]) for p in function.params] == [("x", [2, 3]), ("scale", [2, 3])]
    assert function.attrs["tw.operator"] == "test::Scale"
    assert function.attrs["tw.schedule"] == "elementwise"
    assert function.attrs["tw.attributes"] == (
        '{"axes":{"dtype":"int64","elements":[1,0],"shape":[2]},'
        '"by":{"dtype":"float32","elements":["inf"],"shape":[1]},'
        '"factor":3.0,"on":false,"opset":7,"places":[]}'
    )


@pytest.mark.parametrize(
    "inputs, attributes, kind, code, message",
    [
        ([X], {"speed": 1}, InvalidError, "TW2101", "unknown attribute 'speed'"),
        ([X], {"factor": "2"}, InvalidError, "TW2102", "attribute 'factor' must be a number, not '2'"),
        ([X], {"places": [1, 2.5]}, InvalidError, "TW2102", "must be a list of integers"),
        ([X], {"mode": 1}, InvalidError, "TW2102", "must be a text"),
        ([X], {"on": 2}, InvalidError, "TW2102", "must be true or false"),
        ([], {}, InvalidError, "TW2104", "input 0 (x) is required"),
        ([None, X], {}, InvalidError, "TW2104", "input 0 (x) is required"),
        ([X, X, np.zeros(1), X], {}, InvalidError, "TW2105", "4 inputs, but it takes at most 3"),
        ([X, None, X], {}, UnsupportedError, "TW2106", "input 'axes' must be known at compile time"),
        ([np.zeros(3)], {}, InvalidError, "TW2107", "input 'x' must be a tensor"),
        ([X, np.zeros(3)], {}, InvalidError, "TW2107", "input 'by' must be a tensor"),
    ],
)
def test_a_call_that_the_operator_does_not_take_is_refused(
    inputs: list[Any], attributes: dict[str, Any], kind: type, code: str, message: str
) -> None:
    caught = problem_of(inputs, attributes)
    assert caught[:2] == (kind, code)
    assert caught[2].startswith("test::Scale: ") and message in caught[2]


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(InvalidError, match=r"TW2108.*MatMul.*a \[2, 3\], b \[4, 5\]"):
        find_called("MatMul").prim_func([X, TensorType((4, 5), "float32")], {})


def test_an_input_left_out_at_the_end_is_as_if_not_given() -> None:
    declare_scale()
    declared = find_called("test::Scale")
    assert len(declared.prim_func([X, None, None, None], {}).params) == 2


def bad_annotation(x: int) -> None: ...
def no_annotation(x) -> None: ...  # type: ignore[no-untyped-def]
def bad_attribute(x: te.Tensor, *, y: dict[str, int]) -> None: ...
def unnamed_attributes(x: te.Tensor, **y: int) -> None: ...


@pytest.mark.parametrize("function", [bad_annotation, no_annotation, bad_attribute, unnamed_attributes])
def test_a_declaration_must_say_what_it_takes(function: Any) -> None:
    with pytest.raises(InvalidError, match="TW2120"):
        operator("test::Bad", schedule="elementwise")(function)


def test_a_schedule_must_exist() -> None:
    with pytest.raises(InvalidError, match="TW2120"):
        operator("test::Bad", schedule="magic")


def test_a_name_is_declared_once() -> None:
    declare_scale()
    declare_scale()  # the same place: a module that is loaded again

    with pytest.raises(InvalidError, match="TW2121"):

        @operator("test::Scale", schedule="elementwise")
        def other(x: te.Tensor) -> te.Tensor: ...


def test_a_composition_calls_operators() -> None:
    @composition("test::Twice")
    def twice(graph: Graph, x: Value, *, times: int = 2) -> Value:
        result: Value = graph.call("Mul", x, np.array([times], x.dtype))
        return result

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(evaluate("test::Twice", x, times=4), x * 4)


def test_data_that_a_composition_is_given_as_an_array_becomes_a_constant() -> None:
    x = np.ones((2, 3), np.float32)
    graph = Eager()
    (result,) = find_called("CastLike").expand(graph, [x, np.zeros(1, np.int32)], {})
    assert result.dtype == "int32"


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"TW2122.*test::Nothing"):
        find_called("test::Nothing")


def test_every_operator_is_one_of_the_known_classes() -> None:
    declared = all_operators()
    assert len(declared) > 150
    assert {one.schedule for one in declared} - {None} <= set(SCHEDULES)


def test_only_the_outputs_that_are_asked_for_are_computed() -> None:
    pool = find_called("MaxPool")
    x = TensorType((1, 2, 5), "float32")
    assert len(pool.prim_func([x], {"kernel_shape": [2]}, outputs=1).params) == 2
    assert len(pool.prim_func([x], {"kernel_shape": [2]}).params) == 3


def test_run_gives_scalars_of_either_kind() -> None:
    x = np.float32([[1, 2], [3, 4]])
    as_constant = evaluate("Add", x, np.float32(1), constants=[1])
    np.testing.assert_array_equal(as_constant, evaluate("Add", x, np.float32(1)))


@pytest.mark.parametrize("schedule", ["recurrence", "suppression", "sorting", "running"])
def test_classes_that_are_written_again_are_for_the_compilers_own_operators(schedule: str) -> None:
    """Of others' operators they know nothing: these have the class of their stages or loops."""

    @operator("test::Sums", schedule=schedule)
    def sums(x: te.Tensor) -> te.Tensor:
        k, zero = te.reduce_axis((0, 3), "k"), tirx.const(0, "float32")
        value = lambda i, j: te.sum(tirx.if_then_else(k <= j, x[i, k], zero), axis=k)  # noqa: E731
        return te.compute((2, 3), value, "sums")

    @operator("test::Loops", schedule=schedule)
    def by_loops(x: te.Tensor) -> te.Tensor:
        return te.create_prim_func([x, sums(x)])

    assert find_called("test::Sums").prim_func([X], {}).attrs["tw.schedule"] == "reduction"
    assert find_called("test::Loops").prim_func([X], {}).attrs["tw.schedule"] == "library"
