"""The roads to a kernel: less and less is asked for until something fits."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tvm import te, tirx

from compiler import kernels, pipeline, timing
from compiler.codegen.memory import MemoryOverflow
from compiler.emission.errors import NotEmittable
from compiler.kernels import RANKING, REFUSALS, NoRoadLeft, compile_kernel
from compiler.operators.normalization import layer_normalization
from compiler.pipeline import Observer
from compiler.target import load_chip
from compiler.tiling import rivals
from compiler.timing import TIMING, kernel_cycles
from compiler.tir.near import placed_near

CHIP = load_chip("tiny")


def doubled() -> Any:
    x = te.placeholder((64, 64), "float32", "x")
    return te.create_prim_func([x, te.compute((64, 64), lambda i, j: x[i, j] * tirx.const(2, "float32"), "y")])


def failing(monkeypatch: pytest.MonkeyPatch, failures: list[Exception]) -> None:
    """The passes fail with these, one run after another, then work."""
    run = pipeline.run

    def pretend(*arguments: Any) -> Any:
        if failures:
            raise failures.pop(0)
        return run(*arguments)

    monkeypatch.setattr(kernels.pipeline, "run", pretend)


def test_the_first_tile_that_fits_is_taken() -> None:
    kernel = compile_kernel(doubled(), "elementwise", CHIP, Observer(), "double")
    assert kernel.roads == ()
    assert kernel.statistics["vector"] == 1


def test_an_overflow_asks_for_a_smaller_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, [MemoryOverflow("ub", 9000, 8192, (("x_local.ub", 4096),)) for _ in range(3)])
    kernel = compile_kernel(doubled(), "elementwise", CHIP, Observer(), "double")
    assert len(kernel.roads) == 3
    assert all("9000 bytes of ub are needed" in road.why for road in kernel.roads)
    assert kernel.tile != kernel.roads[0].what


def test_another_template_is_tried_where_none_of_the_tiles_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, [NotEmittable.of("y[i] = mystery(x[i])", ["no row computes it"])] * REFUSALS)
    kernel = compile_kernel(doubled(), "elementwise", CHIP, Observer(), "double")
    assert "on one core" in kernel.tile
    assert "no row computes it" in kernel.roads[0].why


def test_a_number_that_an_instruction_cannot_hold_ends_a_road(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = iter(["kw is 256; allowed: 1 to 255"])
    monkeypatch.setattr(kernels, "instr_faults", lambda *_: list(itertools.islice(faults, 1)))
    kernel = compile_kernel(doubled(), "elementwise", CHIP, Observer(), "double")
    assert kernel.tile != kernel.roads[0].what
    assert "cannot be encoded: kw is 256; allowed: 1 to 255" in kernel.roads[0].why


def test_all_roads_are_listed_when_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, [MemoryOverflow("ub", 9000, 8192, ()) for _ in range(100)])
    with pytest.raises(NoRoadLeft, match="TW2402") as caught:
        compile_kernel(doubled(), "elementwise", CHIP, Observer(), "double")
    assert len(caught.value.roads) > 4
    assert "double" in str(caught.value)


def test_each_attempt_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, [MemoryOverflow("ub", 9000, 8192, ())])
    seen: set[str] = set()
    observer = Observer([lambda kernel, name, before, after: seen.add(kernel)], without=frozenset({RANKING}))
    compile_kernel(doubled(), "elementwise", CHIP, observer, "double")
    assert seen == {"double.attempt2"}


# ---- spaces ------------------------------------------------------------------------------------------------------


def product() -> Any:
    from ci.kernel_shapes import product

    return product(600, 500, 400).func


def test_a_tile_of_a_space_that_overflows_is_followed_by_one_that_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, [MemoryOverflow("l1", 9_000_000, 1 << 20, ())])
    kernel = compile_kernel(product(), "matmul", load_chip("tw1"), Observer(), "product")
    assert len(kernel.roads) == 1
    assert kernel.choices[0].tile == kernel.tile != kernel.roads[0].what


def test_tiles_that_rank_alike_are_compared_by_the_cycle_model_alone_where_nothing_is_simulated() -> None:
    observer = Observer(without=frozenset({TIMING}))
    kernel = compile_kernel(product(), "matmul", load_chip("tw1"), observer, "product")
    modelled = [choice.modelled_cycles for choice in kernel.choices]
    assert len(modelled) > 1 and None not in modelled
    assert modelled[0] == min(modelled)
    assert kernel.choices[0].tile == kernel.tile
    assert all(choice.simulated_cycles is None for choice in kernel.choices)


def test_what_the_cycle_model_is_not_sure_of_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the model takes the first two for equal, and thinks that the third is far off."""
    told, found = iter((1000, 1000, 2000, 1100)), iter((500, 400, 600))
    monkeypatch.setattr(kernels, "predict", lambda code, chip: SimpleNamespace(cycles=next(told)))
    monkeypatch.setattr(kernels, "kernel_cycles", lambda code, chip: next(found))
    kernel = compile_kernel(product(), "matmul", load_chip("tw1"), Observer(), "product")
    known = [(choice.modelled_cycles, choice.simulated_cycles) for choice in kernel.choices]
    assert known == [(1000, 400), (1000, 500), (1100, 600), (2000, None)]
    assert kernel.choices[0].tile == kernel.tile


def test_the_model_decides_where_a_simulation_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MOST_STEPS", 100)
    kernel = compile_kernel(product(), "matmul", load_chip("tw1"), Observer(), "product")
    modelled = [choice.modelled_cycles for choice in kernel.choices]
    assert modelled[0] == min(each for each in modelled if each is not None)
    assert all(choice.simulated_cycles is None for choice in kernel.choices)


def test_of_drafts_about_as_fast_both_are_finished_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter((500, 505, 600, 700))  # of both drafts, then of what became of the second and of the first
    monkeypatch.setattr(kernels, "predict", lambda code, chip: SimpleNamespace(cycles=1000))
    monkeypatch.setattr(rivals, "RIVALS", ((0, 1),))
    monkeypatch.setattr(kernels, "kernel_cycles", lambda code, chip: next(told))
    kernel = compile_kernel(product(), "matmul", load_chip("tw1"), Observer(), "product")
    assert [choice.simulated_cycles for choice in kernel.choices] == [505, 500]


def test_more_tiles_are_compared_on_a_chip_of_which_nothing_was_learned() -> None:
    chip = load_chip("tw1")
    known, unknown = (
        compile_kernel(product(), "matmul", each, Observer(), "product") for each in (chip, replace(chip, clock_mhz=7))
    )
    assert 1 + rivals.RIVALS[-1][1] <= len(known.choices) < len(unknown.choices) <= 1 + rivals.UNLEARNED_RIVALS


def test_more_tiles_are_tried_where_they_are_asked_for() -> None:
    chip = load_chip("tw1")
    first, usual, tuned = (
        compile_kernel(product(), "matmul", chip, Observer(), "product", tries) for tries in (0, None, 8)
    )
    assert len(first.choices) == 1
    assert 1 < len(usual.choices) <= 1 + rivals.RIVALS[0][1] < len(tuned.choices) <= 1 + 8 + 1  # one with other loads
    cycles = [kernel_cycles(each.code, chip) or 0 for each in (tuned, usual, first)]
    assert 0 < cycles[0] <= cycles[1] <= cycles[2]


def test_without_the_learned_ranking_the_first_tile_is_taken() -> None:
    kernel = compile_kernel(product(), "matmul", load_chip("tw1"), Observer(without=frozenset({RANKING})), "product")
    assert [choice.lowered_as for choice in kernel.choices] == ["product"]
    assert kernel.choices[0].modelled_cycles is None


def test_loads_a_turn_ahead_are_compared_with_loads_in_pieces() -> None:
    from ci.kernel_shapes import product

    kernel = compile_kernel(product(512, 512, 256).func, "matmul", CHIP, Observer(), "product")
    ahead, pieces, *_ = kernel.choices
    assert ahead.tile == f"{pieces.tile}, loads a turn ahead" == kernel.tile
    assert pieces.modelled_cycles and ahead.modelled_cycles and ahead.modelled_cycles < pieces.modelled_cycles


def norm(rows: int, columns: int) -> Any:
    """A layer norm of rows in LLB."""
    x, scale, bias = (
        te.placeholder(shape, "float16", name)
        for name, shape in (("x", (rows, columns)), ("scale", (columns,)), ("bias", (columns,)))
    )
    made = te.create_prim_func([x, scale, bias, layer_normalization(x, scale, bias)[0]])
    return placed_near(made, range(4), 1 << 20)


def test_rows_are_summed_by_whom_that_takes_fewer_cycles() -> None:
    chip = replace(load_chip("tw1"), clusters=1)
    on_cube = compile_kernel(norm(1024, 768), "norm", chip, Observer())
    alone = compile_kernel(norm(1024, 768), "norm", chip, Observer(without=frozenset({"sum-rows-on-cube"})))
    assert "rows summed by the cube" in on_cube.tile
    assert "rows summed" not in alone.tile
    cycles = [kernel_cycles(kernel.code, chip) for kernel in (on_cube, alone)]
    assert cycles[0] is not None
    assert cycles[1] is not None
    assert cycles[0] < 0.6 * cycles[1]
    few = compile_kernel(norm(16, 256), "norm", chip, Observer())
    assert "rows summed" not in few.tile
