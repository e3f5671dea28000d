"""The kernels that ranking is learned from: of all kinds, small enough to be timed, and none that it is judged by."""

from __future__ import annotations

import pytest

from ci.fused_shapes import drawn_fused, shapes_of
from ci.kernel_shapes import IN_LLB, LARGE_MACS, NEAR_BYTES, drawn, drawn_large, is_held_out, tensor_bytes
from ci.ranking_kernels import TURNS, drawn_in_turn
from compiler.kernels import spaces
from compiler.target import load_chip
from compiler.tir.near import near_parameters

CHIPS = ("tw1", "tw2")


@pytest.mark.parametrize("name", CHIPS)
def test_fused_kernels_are_the_same_again_and_have_tiles(name: str) -> None:
    chip = load_chip(name)
    found = drawn_fused(8, chip, held_out=False)
    assert [job.name for job in found] == [job.name for job in drawn_fused(9, chip, held_out=False)][:8]
    assert {"convolution", "matmul"} < {job.schedule for job in found}
    assert any("+" in job.name.split()[0] for job in found)
    assert all(any(True for _ in spaces(job.func, job.schedule, chip)) for job in found)


@pytest.mark.parametrize("name", CHIPS)
def test_fused_kernels_that_are_judged_by_have_other_shapes(name: str) -> None:
    chip = load_chip(name)
    learned, judged = (drawn_fused(12, chip, held_out=held_out, seed=held_out) for held_out in (False, True))
    assert not {shapes_of(job) for job in learned} & {shapes_of(job) for job in judged}


def test_what_lies_in_llb_fits_there() -> None:
    found = drawn(60, held_out=False) + drawn_fused(12, load_chip("tw2"), held_out=False)
    near = [job for job in found if near_parameters(job.func)]
    assert {job.name.endswith(IN_LLB) for job in near} == {True, False}
    assert all(tensor_bytes(near_parameters(job.func)) <= NEAR_BYTES for job in near)


def test_large_products_are_large_and_not_held_out() -> None:
    for job in drawn_large(6, held_out=False):
        (m, k), (_, n) = (tuple(map(int, param.shape)) for param in job.func.params[:2])
        assert LARGE_MACS[0] <= m * n * k <= LARGE_MACS[1]
        assert not is_held_out(job.name)


def test_kinds_come_in_turn() -> None:
    chip = load_chip("tw1")
    names = [job.name for job in drawn_in_turn(len(TURNS), chip, held_out=False)]
    assert names[:4] == [job.name for job in drawn_in_turn(4, chip, held_out=False)]
    assert names[TURNS.index("l")] == drawn_large(1, held_out=False)[0].name
