"""Functions in pieces: which are proven to be cut, and that the pieces are what the whole is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import runtime
from tvm.script import tirx as T
from tvm_ffi import structural_equal

from compiler.operators import TensorType, find_called
from compiler.schedule.pieces import Axes, cut_axis, in_pieces, piece_shape, proven
from tests.host import for_host

RNG = np.random.default_rng(3)


def kernel(name: str, *inputs: Any, **attributes: Any) -> Any:
    declared = find_called(name)
    assert declared is not None
    found = declared.kernels([TensorType(i, "float32") if isinstance(i, tuple) else i for i in inputs], attributes)
    return found[0]


@T.prim_func(s_tir=True)
def heads(x: T.Buffer((8, 4), "float32"), w: T.Buffer((2, 4), "float32"), y: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.sblock("y"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            y[v_i, v_j] = T.if_then_else(v_i % 2 == 0, x[v_i, v_j] * w[v_i % 2, v_j], T.float32(0))


@T.prim_func(s_tir=True)
def heads_of_4(x: T.Buffer((2, 4), "float32"), w: T.Buffer((2, 4), "float32"), y: T.Buffer((2, 4), "float32")):
    for i, j in T.grid(2, 4):
        with T.sblock("y"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            y[v_i, v_j] = T.if_then_else(v_i % 2 == 0, x[v_i, v_j] * w[v_i % 2, v_j], T.float32(0))


@T.prim_func(s_tir=True)
def neighbours(x: T.Buffer((9, 4), "float32"), y: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.sblock("y"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            y[v_i, v_j] = x[v_i, v_j] + x[v_i + 1, v_j]


@T.prim_func(s_tir=True)
def inside(x: T.Buffer((8, 4), "float32"), y: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.sblock("y"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            y[v_i, v_j] = T.if_then_else(v_i < 7, x[(v_i + 1) % 8, v_j], T.float32(0))


@T.prim_func(s_tir=True)
def numbered(x: T.Buffer((8, 4), "float32"), y: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.sblock("y"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            y[v_i, v_j] = x[v_i, v_j] * T.Cast("float32", v_i)


@T.prim_func(s_tir=True)
def backwards(x: T.Buffer((8, 4), "float32"), y: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.sblock("y"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            y[v_i, v_j] = x[7 - v_i, v_j]


def test_a_piece_has_shorter_loops_and_buffers() -> None:
    proof = proven(heads, 4)
    assert proof is not None
    assert proof.inputs == (0, None)
    assert structural_equal(in_pieces(proof), heads_of_4.without_attr("global_symbol"))


@pytest.mark.parametrize("count", [2, 4])
def test_what_counts_within_a_piece_is_the_same_in_each(count: int) -> None:
    assert proven(heads, count) is not None
    assert proven(heads, 8) is None  # pieces of one row are not alike


@pytest.mark.parametrize("func", [neighbours, inside, numbered, backwards])
def test_what_reads_other_pieces_or_knows_its_place_is_not_cut(func: Any) -> None:
    """Over the border, by a guard, by its number, or in another order."""
    assert proven(func, 2) is None


CUT = [
    (kernel("Relu", (4, 6, 5)), (0,)),
    (kernel("Add", (4, 6, 5), (6, 1)), (0, None)),
    (kernel("Add", (1, 6, 5), (4, 6, 5)), (None, 0)),
    (kernel("MatMul", (4, 5, 6), (6, 3)), (0, None)),
    (kernel("MatMul", (8, 6), (6, 3)), (0, None)),
    (kernel("MatMul", (4, 5, 6), (4, 6, 3)), (0, 0)),
    (kernel("tilewright::Softmax", (4, 6, 5), axis=-1), (0,)),
    (kernel("tilewright::Softmax", (4, 6, 5), axis=1), (0,)),
    (kernel("LayerNormalization", (4, 6, 5), (5,), (5,)), (0, None, None)),
    (kernel("ReduceMean", (4, 6, 5), np.array([1]), keepdims=0), (0,)),
    (kernel("MaxPool", (4, 3, 8, 8), kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2)), (0,)),
    (kernel("Transpose", (4, 6, 5), perm=(0, 2, 1)), (0,)),
    (kernel("Transpose", (1, 4, 6, 5), perm=(0, 1, 3, 2)), (1,)),
    (kernel("Concat", (4, 2, 5), (4, 3, 5), axis=1), (0, 0)),
    (kernel("Slice", (4, 6), np.array([1]), np.array([5]), np.array([1])), (0,)),
    (kernel("Reshape", (4, 6, 5), np.array([4, 30])), (0,)),
    (kernel("Reshape", (4, 6, 5), np.array([24, 5])), (0,)),
]


ALONG = [
    (kernel("Transpose", (4, 3, 5), perm=(1, 0, 2)), 1, (0,)),
    (kernel("Transpose", (4, 3, 6), perm=(1, 0, 2)), None, None),
    (kernel("tilewright::Softmax", (3, 4, 5), axis=-1), 1, (1,)),
    (kernel("tilewright::Softmax", (3, 4, 5), axis=1), 1, None),
    (kernel("MatMul", (3, 4, 5, 6), (3, 4, 6, 2)), 1, (1, 1)),
    (kernel("MatMul", (5, 6), (6, 4)), 1, (None, 1)),
    (kernel("Slice", (3, 4, 5), np.array([1]), np.array([2]), np.array([0])), None, (1,)),
    (kernel("Concat", (2, 4), (4, 4), axis=0), 1, (1, 1)),
    (kernel("Reshape", (3, 4, 5), np.array([3, 20])), 1, (1,)),
    (kernel("Reshape", (3, 8), np.array([3, 1, 4, 2])), 2, (1,)),
    (kernel("Reshape", (3, 4, 5), np.array([12, 5])), 0, None),
    (kernel("Reshape", (4, 6), np.array([6, 4])), 1, None),
]


@pytest.mark.parametrize("number", range(len(CUT)))
@pytest.mark.parametrize("count", [2, 4])
def test_pieces_of_operators_make_the_whole(number: int, count: int) -> None:
    func, inputs = CUT[number]
    _check_pieces(func, count, None, inputs)


@pytest.mark.parametrize("number", range(len(ALONG)))
@pytest.mark.parametrize("count", [2, 4])
def test_results_cut_along_another_axis(number: int, count: int) -> None:
    func, axis, inputs = ALONG[number]
    if inputs is None:
        assert proven(func, count, (axis,)) is None
    else:
        _check_pieces(func, count, axis, inputs)


def _check_pieces(func: Any, count: int, axis: int | None, inputs: Axes) -> None:
    proof = proven(func, count, None if axis is None else (axis,))
    assert proof is not None
    assert proof.inputs == inputs
    piece = in_pieces(proof)
    *given, result = [tuple(int(n) for n in param.shape) for param in func.params]
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in given]
    shape = tuple(int(n) for n in piece.params[-1].shape)
    assert shape == piece_shape(result, count, axis)
    whole = _result(func, arrays, result)
    found = []
    for at in range(count):
        cut = [a if along is None else np.split(a, count, along)[at] for a, along in zip(arrays, inputs, strict=True)]
        found.append(_result(piece, cut, shape))
    np.testing.assert_array_equal(np.concatenate(found, cut_axis(result) if axis is None else axis), whole)


def _result(func: Any, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    called = for_host(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}))["main"]
    result = runtime.tensor(np.zeros(shape, np.float32))
    called(*(runtime.tensor(np.ascontiguousarray(array)) for array in arrays), result)
    made: np.ndarray = result.numpy()
    return made


@pytest.mark.parametrize("func", [
    kernel("Transpose", (4, 4), perm=(1, 0)),
    kernel("Concat", (2, 5), (4, 5), axis=0),
    kernel("ReduceMean", (4, 6), np.array([0]), keepdims=1),
    kernel("tilewright::Softmax", (4, 6), axis=0),
    kernel("Relu", (3, 6)),
])  # fmt: skip
def test_what_goes_along_the_first_axis_is_not_cut_along_it(func: Any) -> None:
    """Its result may be cut, but then what it reads goes in pieces of another axis."""
    proof = proven(func, 2)
    assert proof is None or proof.inputs == (1,)


def test_a_proof_for_many_pieces_is_one_for_fewer() -> None:
    func = kernel("MatMul", (8, 6), (6, 3))
    fine = proven(func, 8)
    assert fine is not None
    assert structural_equal(in_pieces(fine.coarser(2)), in_pieces(proven(func, 2)))
