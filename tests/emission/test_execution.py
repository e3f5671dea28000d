"""Operators that nobody has cut into tiles, emitted, simulated, and compared with TVM on the CPU.

Loops run over tensors in DDR, so that staging, splitting and tiling of temporaries all happen; the hazard checker is
on. ``tiny`` has 8 KiB of UB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from compiler.operators.prim_functions import loops, ordered_block, prim_function, scratch, store
from compiler.target import Chip, load_chip
from passes.tir.emit_instructions import EmitInstructions
from passes.tir.if_promotion import IfPromotion
from passes.tir.loop_collapse import LoopCollapse
from passes.tir.loop_fission import LoopFission
from passes.tir.loop_partition import LoopPartition
from passes.tir.loop_shift import LoopShift
from passes.tir.lower_blocks import LowerBlocks
from passes.tir.pre_process import PreProcess
from tests.codegen.kernels import linked, run
from tests.host import for_host

PASSES = (
    LowerBlocks(),
    PreProcess(),
    IfPromotion(),
    LoopFission(),
    LoopPartition(),
    LoopShift(),
    LoopCollapse(),
    EmitInstructions(),
)
Tensors = tuple[list[Any], Any]
CASES: dict[str, Callable[[], Tensors]] = {}


def case(function: Callable[[], Tensors]) -> Callable[[], Tensors]:
    CASES[function.__name__] = function
    return function


def _a(dtype: str = "float32", shape: tuple[int, ...] = (33, 77)) -> Any:
    return te.placeholder(shape, dtype, "a")


def _b(dtype: str = "float32", shape: tuple[int, ...] = (33, 77)) -> Any:
    return te.placeholder(shape, dtype, "b")


def _each(a: Any, *others: Any, f: Callable[..., Any]) -> Tensors:
    tensors = [a, *others]
    return tensors, te.compute(a.shape, lambda *at: f(*(t(*at[-len(t.shape) :]) for t in tensors)), "out")


@case
def broadcast_add() -> Tensors:
    return _each(_a(), _b(shape=(77,)), f=lambda a, b: a + b)


@case
def gelu() -> Tensors:
    return _each(_a(), f=lambda a: 0.5 * a * (1 + te.erf(a * 0.7071067811865476)))


@case
def silu_of_halves() -> Tensors:
    return _each(_a("float16"), f=lambda a: a * te.sigmoid(a))


@case
def exponential_of_bfloats() -> Tensors:
    return _each(_a("bfloat16"), f=lambda a: te.exp(a.astype("float32")))


@case
def normalisation() -> Tensors:
    a, g, m = _a(), _b(shape=(77,)), te.placeholder((33,), "float32", "m")
    value = lambda i, j: (a[i, j] - m[i]) * te.rsqrt(m[i] * m[i] + 1e-5) * g[j] + te.exp(g[j])  # noqa: E731
    return [a, g, m], te.compute((33, 77), value, "out")


@case
def softmax() -> Tensors:
    a = _a()
    return [a], topi.nn.softmax(a, axis=1)


@case
def sum_of_rows() -> Tensors:
    a = _a()
    return [a], topi.sum(a, axis=1)


@case
def sum_of_columns() -> Tensors:
    a = _a()
    return [a], topi.sum(a, axis=0)


@case
def greatest_of_all() -> Tensors:
    a = _a()
    return [a], topi.max(a)


@case
def mean_of_halves() -> Tensors:
    a, k = _a("float16"), te.reduce_axis((0, 77), "k")
    total = te.compute((33,), lambda i: te.sum(a[i, k].astype("float32"), axis=k))
    return [a], te.compute((33,), lambda i: (total[i] * (1 / 77)).astype("float16"), "out")


@case
def matrix_times_vector() -> Tensors:
    a, b, k = _a(), _b(shape=(77,)), te.reduce_axis((0, 77), "k")
    return [a, b], te.compute((33,), lambda i: te.sum(a[i, k] * b[k], axis=k))


@case
def largest_in_windows() -> Tensors:
    a, di, dj = _a(shape=(3, 17, 17)), te.reduce_axis((0, 3)), te.reduce_axis((0, 3))
    return [a], te.compute((3, 8, 8), lambda c, i, j: te.max(a[c, i * 2 + di, j * 2 + dj], axis=[di, dj]))


@case
def any_of_rows() -> Tensors:
    a, k = _a("bool"), te.reduce_axis((0, 77))
    any_true = te.comm_reducer(lambda x, y: tirx.Or(x, y), lambda t: tirx.const(False, "bool"))
    return [a], te.compute((33,), lambda i: any_true(a[i, k], axis=k))


@case
def position_of_the_greatest() -> Tensors:
    a, k, other = _a(), te.reduce_axis((0, 77), "k"), te.reduce_axis((0, 77), "other")
    greatest = te.compute((33,), lambda i: te.max(a[i, k], axis=k))
    place = lambda i: te.if_then_else(a[i, other] == greatest[i], other, te.const(1000, "int32"))  # noqa: E731
    return [a], te.compute((33,), lambda i: te.min(place(i), axis=other))


@case
def transposition() -> Tensors:
    a = _a(shape=(5, 33, 7))
    return [a], topi.transpose(a, (2, 0, 1))


@case
def padding() -> Tensors:
    a = _a(shape=(5, 33, 7))
    return [a], topi.nn.pad(a, (0, 1, 2), (0, 2, 1), 2.5)


@case
def concatenation() -> Tensors:
    a, b = _a(shape=(5, 33, 7)), _b(shape=(5, 3, 7))
    return [a, b], topi.concatenate([a, b], 1)


@case
def nearest_neighbours() -> Tensors:
    a = _a(shape=(4, 6, 8))
    return [a], te.compute((4, 12, 16), lambda c, i, j: a[c, i // 2, j // 2])


@case
def tiling() -> Tensors:
    a = _a(shape=(4, 6))
    return [a], te.compute((8, 18), lambda i, j: a[i % 4, j % 6])


@case
def reversal() -> Tensors:
    a = _a(shape=(4, 60))
    return [a], te.compute((4, 60), lambda i, j: te.exp(a[i, 59 - j]))


@case
def selection() -> Tensors:
    return _each(_a(), _b(), f=lambda a, b: te.if_then_else(a > b, a * 2.0, te.exp(b)))


@case
def causal_mask() -> Tensors:
    a = _a(shape=(33, 33))
    masked = lambda i, j: te.exp(te.if_then_else(j <= i, a[i, j], te.const(-10, "float32")))  # noqa: E731
    return [a], te.compute((33, 33), masked)


@case
def integers() -> Tensors:
    def value(a: Any, b: Any) -> Any:
        return tirx.floordiv(a, 7) * b - tirx.floormod(b, 5) + tirx.max(a, 3) + (a << 2)

    return _each(_a("int32"), _b("int32"), f=value)


@case
def bytes_that_wrap() -> Tensors:
    return _each(_a("int8"), f=lambda a: (a.astype("int32") * 7).astype("uint8"))


@case
def bytes_to_bytes() -> Tensors:
    return _each(_a("int8"), f=lambda a: a.astype("uint8"))


@case
def truth_values() -> Tensors:
    return _each(_a("bool"), _b("bool"), f=lambda a, b: tirx.Or(tirx.And(a, b), tirx.Not(a)))


@case
def rounding() -> Tensors:
    tenth = te.const(0.1, "float32")
    return _each(_a(), f=lambda a: tirx.nearbyint(a / tenth).astype("int32"))


@case
def gathered_rows() -> Tensors:
    a, x = _a(shape=(50, 77)), te.placeholder((9,), "int32", "x")
    return [a, x], te.compute((9, 77), lambda i, j: a[x[i], j])


@case
def rows_counted_from_the_end() -> Tensors:
    a, x = _a(shape=(50, 77)), te.placeholder((9,), "int32", "x")
    row = lambda i: te.if_then_else(x[i] < 5, x[i] + 40, x[i])  # noqa: E731
    return [a, x], te.compute((9, 77), lambda i, j: te.exp(a[row(i), j]))


@case
def gathered_elements() -> Tensors:
    a, x = _a(shape=(50,)), te.placeholder((9, 8), "int32", "x")
    return [a, x], te.compute((9, 8), lambda i, j: a[x[i, j]])


@case
def index_pattern() -> Tensors:
    return [], te.compute((33, 77), lambda i, j: (i * 77 + j).astype("float32") * 0.5)


@case
def index_remainders() -> Tensors:
    return [], te.compute((33, 77), lambda i, j: tirx.floormod(i * 3 + j, 7) * tirx.max(i, j))


@case
def one_element() -> Tensors:
    return _each(_a(shape=(1,)), f=lambda a: te.exp(a) + 1.0)


@case
def common_subexpressions() -> Tensors:
    return _each(_a(shape=(10007,)), f=lambda a: te.exp(a) * a + te.sin(a) * te.cos(a) + te.sin(a))


@case
def long_vector_of_bytes() -> Tensors:
    return _each(_a("int8", (150003,)), f=lambda a: a + te.const(1, "int8"))


def data(tensor: Any, rng: np.random.Generator) -> np.ndarray:
    shape, dtype = tuple(int(n) for n in tensor.shape), str(tensor.dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "float" in dtype:
        wanted = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
        return rng.standard_normal(shape).astype(wanted)
    low, high = (0, 50) if tensor.op.name == "x" else (-20, 20)
    return rng.integers(low, high, shape).astype(dtype)


def on_cpu(func: Any, inputs: list[np.ndarray], out: Any) -> np.ndarray:
    compiled = for_host(tvm.IRModule({"main": func}))
    dtype = "bool" if str(out.dtype) == "bool" else str(out.dtype)
    result = tvm.runtime.tensor(np.zeros([int(n) for n in out.shape], dtype))
    compiled["main"](*(tvm.runtime.tensor(array) for array in inputs), result)
    return result.numpy()


@pytest.mark.parametrize("chip_name", ["tw2", "tiny"])
@pytest.mark.parametrize("name", list(CASES))
def test_same_as_on_the_cpu(name: str, chip_name: str) -> None:
    chip = load_chip(chip_name)
    inputs, out = CASES[name]()
    func = te.create_prim_func([*inputs, out])
    arrays = [data(tensor, np.random.default_rng(0)) for tensor in inputs]
    expected = on_cpu(func, arrays, out)
    result = on_chip(func, arrays, chip)
    tolerance = 2e-2 if "16" in str(out.dtype) else 1e-4
    np.testing.assert_allclose(
        result.reshape(expected.shape).astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance
    )


def on_chip(func: Any, arrays: list[np.ndarray], chip: Chip) -> np.ndarray:
    for step in PASSES:
        func = step.run(func, chip)
    names = tuple(f"t{n}" for n in range(len(arrays) + 1))
    roles = {**dict.fromkeys(names[:-1], "input"), names[-1]: "output"}
    program = linked([(func, names)], chip, roles)
    return np.asarray(run(program, chip, dict(zip(names, arrays, strict=False))).outputs[names[-1]])


@pytest.mark.parametrize("chip_name", ["tw2", "tiny"])
def test_what_is_added_is_not_worked_out_where_an_operand_lies(chip_name: str) -> None:
    """An instruction adds to its destination, which here is one of its factors."""
    given = [te.placeholder((64,), "float32", "a"), te.placeholder((64,), "float16", "b")]

    def body(a: Any, b: Any, out: Any) -> None:
        x = scratch((64,), "float32", "local.ub")
        with ordered_block("steps", [a, b, x], [out, x]):
            with loops(64) as (i,):
                store(x, a[i] + tirx.const(1, "float32"), i)
            with loops(64) as (i,):
                store(x, a[i] * x[i] + b[i].astype("float32"), i)
            with loops(64) as (i,):
                store(out, x[i], i)

    arrays = [data(tensor, np.random.default_rng(0)) for tensor in given]
    func = prim_function(given, [((64,), "float32")], body)
    a, b = (array.astype(np.float32) for array in arrays)
    np.testing.assert_allclose(on_chip(func, arrays, load_chip(chip_name)), a * (a + 1) + b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("divisor", [7, -7, None])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_quotients_are_rounded_down_up_to_the_limits_of_their_type(dtype: str, divisor: int | None) -> None:
    least, greatest = np.iinfo(dtype).min, np.iinfo(dtype).max
    some = np.array([least, least + 1, -100, -7, -1, 0, 1, 7, 100, greatest], dtype)
    a, b = (each.ravel() for each in np.meshgrid(some, some[some != 0]))
    given = [te.placeholder(a.shape, dtype, name) for name in "ab"]
    by = (lambda i: given[1][i]) if divisor is None else lambda i: tirx.const(divisor, dtype)
    func = te.create_prim_func([*given, te.compute(a.shape, lambda i: tirx.floordiv(given[0][i], by(i)))])
    found = on_chip(func, [a, b], load_chip("tiny"))
    with np.errstate(over="ignore"):  # of the least number by -1
        np.testing.assert_array_equal(found, a // (b if divisor is None else np.array(divisor, dtype)))
