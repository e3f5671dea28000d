"""What the choice of a tile is told of the stages behind a product, beside what these become."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te, topi

from ci.tile_samples import code_of
from compiler.isa.dtypes import Queue
from compiler.kernels import spaces
from compiler.operators.matmul import uncast_product
from compiler.sim.simulator import prepare
from compiler.target import load_chip
from compiler.tiling.epilogue import NO_EPILOGUE, Epilogue
from compiler.timing import alone
from compiler.tir.near import placed_near

M, N, K = 192, 256, 64


def product(*behind: str, near: tuple[int, ...] = ()) -> Any:
    """The PrimFunc of a product, and of what is done with it."""
    a, b = te.placeholder((M, K), "float16", "a"), te.placeholder((K, N), "float16", "b")
    given, result = [a, b], uncast_product(a, b, transpose_a=False, transpose_b=False)
    for what in behind:
        if what == "add":
            side = te.placeholder((M, N), "float32", f"side{len(given)}")
            given.append(side)
            result = topi.add(result, side)
        else:
            result = {"relu": topi.nn.relu, "exp": topi.exp, "tanh": topi.tanh}[what](result)
    func = te.create_prim_func([*given, result])
    return placed_near(func, near, 1 << 20) if near else func


def epilogue(func: Any, chip: str) -> Epilogue:
    return next(space for _, space in spaces(func, "matmul", load_chip(chip))).problem.epilogue  # type: ignore[attr-defined]


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_what_the_fixpipe_does_is_no_work_of_the_vector_unit(chip: str) -> None:
    assert epilogue(product(), chip) == NO_EPILOGUE
    assert epilogue(product("relu"), chip) == NO_EPILOGUE


def test_stages_have_instructions_and_read_what_is_beside_them() -> None:
    once, twice = epilogue(product("exp"), "tw1"), epilogue(product("exp", "tanh"), "tw1")
    assert 0 < once.instructions < twice.instructions
    assert 4 <= once.vector_bytes < twice.vector_bytes
    assert once.side_bytes == 0
    added = epilogue(product("add", "add"), "tw1")
    assert (added.side_bytes, added.sides_near) == (8, False)
    assert not epilogue(product("add", "add", near=(2,)), "tw1").sides_near
    assert epilogue(product("add", "add", near=(2, 3)), "tw1").sides_near


def test_small_pieces_are_mostly_heads_and_tails() -> None:
    chip, made = load_chip("tw2"), Epilogue(instructions=3, vector_bytes=8.0)
    heads = 3 * (chip.vector.head_cycles + chip.vector.tail_cycles)
    assert made.vector_cycles(0, 5, chip) == 5 * heads
    assert made.vector_cycles(1024, 5, chip) == 5 * heads + 1024 * 8 / chip.vector.bytes_per_cycle


@pytest.mark.parametrize("chip_name", ["tw1", "tw2"])
@pytest.mark.parametrize("behind", [("exp",), ("add",), ("exp", "tanh", "add")])
def test_the_vector_unit_is_about_as_busy_as_it_is_thought_to_be(chip_name: str, behind: tuple[str, ...]) -> None:
    chip = load_chip(chip_name)
    space = next(space for _, space in spaces(product(*behind), "matmul", chip))
    for tile in space.tiles()[:24:6]:
        code, work = code_of(space, tile, chip, "product"), space.work(tile)
        assert code is not None
        busy = prepare(alone(code, chip), chip).schedule.busy[:, Queue.V].max()
        assert 0.7 <= work.vector_cycles / busy <= 1.3, space.apply(tile).description
