"""Results that are written over what they are made of."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from tvm.script import tirx as T

import compiler
from compiler.codegen.in_place import in_place
from compiler.target import load_chip
from compiler.tir.replaced import REPLACED, replaced
from tests.test_driver import model, node

pytestmark = pytest.mark.usefixtures("as_planned")

link: Any = import_module("compiler.codegen.link")
TINY = load_chip("tiny")
RNG = np.random.default_rng(8)


def kernel(first: int, load: int, store: int, overlap: int = 0) -> Any:
    """Two cores bring ``load`` elements of a, from ``first`` on, in each of two turns, and store so many of o."""

    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((128,), "float32"), o: T.Buffer((128,), "float32")) -> None:
        bx = T.launch_thread("blockIdx.x", 2)
        x = T.alloc_buffer((64,), scope="local.ub")
        for t in range(2):
            at = T.meta_var(bx * 64 + t * 32)
            T.evaluate(
                T.call_extern(
                    "void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[first + at]), 1, load
                )
            )
            T.evaluate(
                T.call_extern(
                    "void", "tw.st.ddr.fp32.1d", T.address_of(o[at - t * overlap]), 1, T.address_of(x[0]), 1, store
                )
            )

    return func.with_attr(REPLACED, [[1, 0]])


@pytest.mark.parametrize(("given", "may"), [
    ((0, 32, 32), True),
    ((0, 33, 32), False),  # one core loads what another stores
    ((0, 31, 32), False),  # not all of it is known to be read
    ((0, 32, 32, 1), False),  # stored twice
])  # fmt: skip
def test_each_element_is_loaded_and_stored_once(given: tuple[int, ...], may: bool) -> None:
    assert in_place(kernel(*given), TINY) == (((1, 0),) if may else ())


def test_what_says_nothing_of_its_results_is_left_alone() -> None:
    assert in_place(kernel(0, 32, 32).without_attr(REPLACED), TINY) == ()


@T.prim_func(s_tir=True, private=True)
def stages(a: T.Buffer((4, 8), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((4, 8), "float32"),
           d: T.Buffer((4, 8), "float32"), o: T.Buffer((4, 8), "float32")) -> None:  # fmt: skip
    t = T.alloc_buffer((4, 8))
    for i, j in T.grid(4, 8):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = a[vi, vj] + b[vj] + d[3 - vi, vj]
    for i, j in T.grid(4, 8):
        with T.sblock("max"):
            vi, vj = T.axis.remap("SS", [i, j])
            o[vi, vj] = T.max(t[vi, vj], c[vi, vj])


def test_elements_are_made_of_those_at_their_own_place() -> None:
    assert sorted(replaced(stages)) == [(4, 0), (4, 2)]


WEIGHT = RNG.standard_normal((16, 16, 3, 3)).astype(np.float32) / 8
NODES = [
    node("Relu", "x", "a"),
    node("Conv", "a w", "b", pads=[1, 1, 1, 1]),
    node("Conv", "b w", "c", pads=[1, 1, 1, 1]),
    node("Add", "c a", "d"),
    node("Conv", "d w", "e", pads=[1, 1, 1, 1]),
    node("Conv", "e w", "f", pads=[1, 1, 1, 1]),
    node("Add", "f d", "g"),
    node("Relu", "g", "h"),
    node("Conv", "h w", "y", pads=[1, 1, 1, 1]),
]
SHAPE = (1, 16, 20, 20)


@pytest.mark.parametrize(("chip", "has_room"), [("tiny", False), ("tw2", True)])
def test_residuals_are_added_where_they_lie_unless_there_is_room_beside(
    chip: str, has_room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    plan = link.plan

    def watched(kernels: Any, *others: Any, **named: Any) -> Any:
        found.append((kernels, plan(kernels, *others, **named)))
        return found[-1][1]

    monkeypatch.setattr(link, "plan", watched)
    source = model(NODES, {"x": SHAPE}, ["y"], w=WEIGHT)
    artifact = compiler.compile(source, chip, cache=False)
    # Several programs may have been compared: this is the one that was kept.
    kernels, places = next(each for each in found if len(each[0]) == len(artifact.model.kernels))
    over = [
        (each.bindings()[result], each.bindings()[below]) for each in kernels for result, below in each.code.in_place
    ]
    between = [pair for pair in over if all(places[name].memory == "llb" for name in pair)]
    assert len(between) == 2
    assert [places[result] == places[below] for result, below in between] == [not has_room] * 2
    x = RNG.standard_normal(SHAPE).astype(np.float32)
    expected = ReferenceEvaluator(onnx.load_from_string(source)).run(None, {"x": x})[0]
    np.testing.assert_allclose(artifact.run({"x": x}, hazards=True)["y"], expected, rtol=1e-3, atol=1e-3)


def test_what_is_read_later_is_not_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[Any] = []
    plan = link.plan

    def watched(*given: Any, **named: Any) -> Any:
        places.append((given[0], plan(*given, **named)))
        return places[-1][1]

    monkeypatch.setattr(link, "plan", watched)
    nodes = [*NODES[:6], node("Add", "f d", "g"), node("Conv", "g w", "h", pads=[1, 1, 1, 1]), node("Add", "h d", "y")]
    source = model(nodes, {"x": SHAPE}, ["y"], w=WEIGHT)
    artifact = compiler.compile(source, "tiny", cache=False)
    ((kernels, found),) = places
    (adding,) = [each for each in kernels if each.name.endswith(".g")]
    made = [found[name] for name in adding.bindings()]
    assert len(set(made)) == len(made)
    x = RNG.standard_normal(SHAPE).astype(np.float32)
    expected = ReferenceEvaluator(onnx.load_from_string(source)).run(None, {"x": x})[0]
    np.testing.assert_allclose(artifact.run({"x": x}, hazards=True)["y"], expected, rtol=1e-3, atol=1e-3)
