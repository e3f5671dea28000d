"""Registers of values that are used in loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te

from compiler.codegen.items import Loop, Step
from compiler.codegen.registers import allocate
from compiler.codegen.values import Block, Operand, Values
from compiler.isa.model import Reg
from compiler.isa.table import by_mnemonic
from compiler.tiling import vector
from tests.tiling.kernels import by_cost, run


def test_a_loop_of_one_instruction_counts_in_a_register_of_its_own() -> None:
    """What the instruction takes from outside is read in every turn, though nothing else in the loop comes after it."""
    root = Block()
    values = Values(root)
    made = values.pinned(root)
    root.items.append(Step(by_mnemonic()["getsr"], ("core",), (), made))
    size = values.operation("smin", Operand(made), Operand(None, 2))
    body = root.inner(is_loop_body=True)
    counter = values.pinned(body)
    body.items.append(
        Step(by_mnemonic()["vdupi"], ("int8", "1d"), (Operand(counter), Operand(None, 1), Operand(None, 0), size))
    )
    root.items.append(Loop(counter, Operand(None, 16), body))
    loop, inside = allocate(root, 0).instrs[-2:]
    assert loop.row.mnemonic == "loop"
    address, length = (value for value in inside.values if isinstance(value, Reg))
    assert address.index == loop.values[0] != length.index


@pytest.mark.parametrize("chip", ["tw1", "tw2", "tiny"])
@pytest.mark.parametrize("shape", [(17, 17, 16), (17, 33, 7), (33, 17, 12)])
def test_ragged_rows_are_summed_by_one_instruction_per_turn(chip: str, shape: tuple[int, int, int]) -> None:
    def sums(x: Any) -> Any:
        k = te.reduce_axis((0, shape[2]), "k")
        return te.compute(shape[:2], lambda i, j: te.sum(x[0, j, k], axis=k), "sums")

    x = np.random.default_rng(0).integers(0, 100, (1, *shape[1:])).astype(np.int8)
    for pick in range(4):
        found = run(by_cost(vector.space, lambda tiles, pick=pick: pick % tiles), chip, {"x": x}, sums).output
        np.testing.assert_array_equal(found, np.broadcast_to(x.sum(axis=2, dtype=np.int8), shape[:2]))
