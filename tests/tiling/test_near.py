"""What a kernel is told of its parameters, its parts are told of theirs."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from compiler.target import load_chip
from compiler.tir.near import (
    common_parameters,
    held_in_common,
    near_parameters,
    placed_near,
    room_bytes,
    strided,
    strides_of_parameters,
    told_like,
)

CHIP = load_chip("tw1").one_cluster()


def told() -> Any:
    """o = (a + b) + c: a and o near, b common, c a band."""
    a, b, c = (te.placeholder((4, 16), "float16", name) for name in "abc")
    first = te.compute(a.shape, lambda *i: a(*i) + b(*i), "first")
    func = te.create_prim_func([a, b, c, te.compute(a.shape, lambda *i: first(*i) + c(*i), "o")])
    return strided(held_in_common(placed_near(func.with_attr("other", 7), [0, 3], 512), [1]), {2: (32, 1)})


def part(params: list[Any]) -> Any:
    return tirx.PrimFunc(params, tirx.Evaluate(0))


def test_parameters_keep_what_was_said_of_them_under_other_numbers() -> None:
    whole = told()
    _, b, c, o = whole.params
    between = tirx.decl_buffer((4, 16), "float16", "between")
    found = told_like(part([between, b, o, c]), whole, 256)
    assert near_parameters(found) == {o} and common_parameters(found, CHIP) == {b}
    assert strides_of_parameters(found) == {3: (32, 1)}
    assert room_bytes(found, CHIP) == 256 and int(found.attrs["other"]) == 7


def test_a_part_without_them_is_told_nothing_of_them() -> None:
    whole = told()
    found = told_like(part([tirx.decl_buffer((4, 16), "float16", "between"), whole.params[0]]), whole, 256)
    assert near_parameters(found) == {whole.params[0]}
    assert not common_parameters(found, CHIP) and not strides_of_parameters(found)
