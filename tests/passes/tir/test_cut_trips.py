"""CutTrips: what the matrix and the vector unit do of a turn, one after the other, becomes phases of several turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

from compiler.codegen.instruction_form import read_call
from compiler.codegen.phases import has_phases, is_phase, with_results_later, without_phases
from compiler.target import load_chip
from passes.tir.cut_trips import CutTrips
from passes.tir.double_buffer import DoubleBuffer
from passes.tir.work_in_place import WorkInPlace
from tests.codegen.kernels import linked, run

TINY, TW1, TW2 = (load_chip(name) for name in ("tiny", "tw1", "tw2"))


class Chain:
    """A kernel that makes, of a square of each turn, a product, its exponentials, their product, and a sum."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.allocations: list[Any] = []

    def buffer(self, scope: str, dtype: str = "float16") -> Any:
        buffer = tirx.decl_buffer((self.size, self.size), dtype, scope.rpartition(".")[2], scope=scope)
        self.allocations.append(tirx.AllocBuffer(buffer))
        return buffer

    def call(self, name: str, *operands: Any) -> Any:
        """Buffers stand for their beginning."""
        slots = [self.at(one, 0, 0) if isinstance(one, tirx.Buffer) else one for one in operands]
        return tirx.Evaluate(tirx.call_extern("void", f"tw.{name}", *slots))

    def at(self, buffer: Any, *indices: Any) -> Any:
        return tirx.address_of(tirx.BufferLoad(buffer, [*indices]))

    def kernel(
        self,
        outer: int,
        turns: int,
        *,
        most: int | None = None,
        outlives: bool = False,
        inner: int = 0,
        from_memory: bool = False,
    ) -> Any:
        """``inner``: so many times more its product and exponentials, in a loop of their own; ``from_memory``: the
        second product is of what it loads."""
        n, many = self.size, outer * turns
        a, o = (tirx.decl_buffer((many, n, n), "float16", name) for name in "ao")
        j, i = tirx.Var("j", "int32"), tirx.Var("i", "int32")
        where = (j * turns + i, 0, 0)
        total = self.buffer("local.ub")
        before = [*self.allocations, self.call("vdup.fp16.1d", total, 1, 0, n * n)]
        self.allocations = []
        near, weights = self.buffer("shared.l1"), self.buffer("shared.l1")
        left, again, right, other = (self.buffer(f"local.l0{side}") for side in "aabb")
        scores, result = (self.buffer("local.l0c", "float32") for _ in range(2))
        s, largest, p, r, e = (self.buffer("local.ub") for _ in range(5))
        body = [
            self.call("ldnz.ddr.fp16", near, self.at(a, *where), n, n, n, n),
            self.call("ldl0a.fp16", left, near, n, n, n),
            self.call("ldl0b.fp16", right, near, n, n, n),
            self.call("mad.fp16", scores, left, right, n, n, n),
            self.call("fix.ub.nd.fp16.fp32.none", s, scores, n, n, n, n),
            self.call("vrmax.fp16.2d", largest, 1, s, n, 1, n, n),
            self.call("vexpsub.fp16.2d", p, n, 1, s, n, 1, largest, 1, 0, n, n),
            self.call("stnz.fp16", weights, p, n, n, n, n),
            self.call("ldl0a.fp16", again, near if from_memory else weights, n, n, n),
            self.call("ldl0b.fp16", other, near, n, n, n),
            self.call("mad.fp16", result, again, other, n, n, n),
            self.call("fix.ub.nd.fp16.fp32.none", r, result, n, n, n, n),
            self.call("vadd.fp16.2d", e, n, 1, r, n, 1, largest, 1, 0, n, n),
            self.call("st.ddr.fp16.1d", self.at(o, *where), 1, e, 1, n * n),
        ]
        if outlives:
            body.insert(6, self.call("vadd.fp16.1d", total, 1, total, 1, s, 1, n * n))
            body.insert(-1, self.call("vadd.fp16.1d", e, 1, e, 1, total, 1, n * n))
        if inner:
            body.insert(3, tirx.For(tirx.Var("k", "int32"), 0, inner, tirx.ForKind.SERIAL, tirx.SeqStmt(body[3:7])))
        turn = tirx.SeqStmt([*self.allocations, *body])
        if most is not None:
            guarded = tirx.IfThenElse(where[0] < most, tirx.SeqStmt(body), None)
            turn = tirx.SeqStmt([*self.allocations, guarded])
        nest = tirx.For(j, 0, outer, tirx.ForKind.SERIAL, tirx.For(i, 0, turns, tirx.ForKind.SERIAL, turn))
        return tirx.PrimFunc([a, o], tirx.SeqStmt([*before, nest]))


def phases(func: Any) -> list[tuple[int, list[str]]]:
    """By how many turns each is late, and its instructions."""
    found = []

    def visit(attribute: Any) -> None:
        if is_phase(attribute):
            calls: list[Any] = []
            tvm_ffi.structural_walk(attribute.body, (tirx.Evaluate, lambda call: calls.append(read_call(call))))
            found.append((int(attribute.value), [call.row.mnemonic for call in calls]))

    tvm_ffi.structural_walk(func.body, (tirx.AttrStmt, visit))
    return found


def test_phases_are_of_one_engine_each() -> None:
    """Results of products are taken out with them."""
    cut = CutTrips().run(Chain(16).kernel(2, 5), TW2)
    assert phases(cut) == [
        (0, ["ldnz", "ldl0a", "ldl0b", "mad", "fix"]),
        (1, ["vrmax", "vexpsub"]),
        (1, ["stnz", "ldl0a", "ldl0b", "mad"]),
        (1, ["fix"]),
        (2, ["vadd", "st"]),
    ]
    assert phases(with_results_later(cut))[3:] == [(2, ["fix"]), (2, ["vadd", "st"])]
    assert not has_phases(without_phases(cut))


def test_one_condition_for_all_is_one_for_each() -> None:
    assert [late for late, _ in phases(CutTrips().run(Chain(16).kernel(1, 5, most=4), TW2))] == [0, 1, 1, 1, 2]


@pytest.mark.parametrize(("turns", "outlives"), [(1, False), (5, True)])
def test_a_single_turn_and_sums_over_turns_that_others_read_stay(turns: int, outlives: bool) -> None:
    kernel = Chain(16).kernel(3, turns, outlives=outlives)
    assert CutTrips().run(kernel, TW2).same_as(kernel)


def test_a_loop_of_both_engines_is_of_the_phase_that_ends_with_what_the_next_product_reads() -> None:
    made = ["mad", "fix", "vrmax", "vexpsub"]
    assert phases(CutTrips().run(Chain(16).kernel(1, 5, inner=2), TW2)) == [
        (0, ["ldnz", "ldl0a", "ldl0b", *made, *made, "stnz"]),
        (1, ["ldl0a", "ldl0b", "mad", "fix", "vadd", "st"]),
    ]


def test_a_loop_of_both_engines_that_fills_nothing_for_a_later_product_stays() -> None:
    kernel = Chain(16).kernel(1, 5, inner=2, from_memory=True)
    assert CutTrips().run(kernel, TW2).same_as(kernel)


@pytest.mark.parametrize("chip", [TINY, TW1, TW2], ids=lambda chip: str(chip.name))
@pytest.mark.parametrize(
    ("outer", "turns", "most", "inner"),
    [
        (1, 2, None, 0),
        (1, 7, None, 0),
        (1, 7, None, 2),
        (3, 2, None, 2),
        (2, 5, 7, 0),
        (2, 5, 7, 2),
        (1, 6, 1, 0),
        (4, 3, 11, 2),
    ],
)
def test_turns_overlap_and_compute_the_same(chip: Any, outer: int, turns: int, most: int | None, inner: int) -> None:
    size, many = 32, outer * turns
    kernel = Chain(size).kernel(outer, turns, most=most, inner=inner)
    square = np.random.default_rng(many).standard_normal((many, size, size)).astype(np.float16) / 4
    roles, cycles, outputs = {"a": "input", "o": "output"}, [], []
    for passes in ((DoubleBuffer(),), (WorkInPlace(), CutTrips(), DoubleBuffer())):
        func = kernel
        for each in passes:
            func = each.run(func, chip)
        result = run(linked([(func, ("a", "o"))], chip, roles), chip, {"a": square})
        cycles.append(result.cycles)
        outputs.append(result.outputs["o"][: many if most is None else most])
    np.testing.assert_array_equal(*outputs)
    if turns > 2 and most is None and chip is TW2 and not inner:  # tiny has no room, and tw1 takes longest to load
        assert cycles[1] < 0.9 * cycles[0]


def test_without_room_every_turn_is_on_its_own() -> None:
    """Scores of two turns do not fit beside one another: what is marked then means nothing."""
    kernel = Chain(208).kernel(1, 5)
    cut = CutTrips().run(kernel, TW2)
    assert has_phases(cut)
    tvm.ir.assert_structural_equal(DoubleBuffer().run(cut, TW2), DoubleBuffer().run(kernel, TW2))
