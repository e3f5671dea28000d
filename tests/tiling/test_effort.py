"""What working out a stage takes of the vector unit and of UB."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te, tirx

from compiler.tiling.effort import Effort, effort
from tests.tiling.test_stages import stages


def test_effort_counts_repeats_of_what_is_slow_and_temporaries() -> None:
    (stage,) = stages(lambda x: te.compute((256,), lambda i: tirx.exp(x[i]) / (x[i] + 1.0), "y"), (256,))
    found = effort(stage, stage.axes)
    assert found.instructions == 3
    assert found.weighted_bytes == 1024 * (2 + 4 + 1)
    assert found.temporary_bytes == 1024


def test_what_a_reduction_folds_takes_room() -> None:
    def define(x: Any) -> Any:
        k = te.reduce_axis((0, 512), "k")
        return te.compute((4,), lambda i: te.sum(tirx.exp(x[i, k]), axis=k), "sum")

    (stage,) = stages(define, (4, 512))
    assert effort(stage, stage.axes).temporary_bytes == 4 * 512 * 4


def test_what_one_row_rounds_to_sixteen_bits_counts_as_such() -> None:
    def define(x: Any) -> Any:
        wide = lambda i: x[i].astype("float32")  # noqa: E731
        return te.compute((256,), lambda i: ((wide(i) - 1.0) * wide(i) + wide(i)).astype("float16"), "y")

    (stage,) = stages(define, (256,), dtype="float16")
    assert effort(stage, stage.axes) == Effort(1, 512, 0)


def test_what_one_row_rounds_to_another_type_of_sixteen_bits_is_converted() -> None:
    def define(x: Any) -> Any:
        wide = lambda i: x[i].astype("float32")  # noqa: E731
        return te.compute((256,), lambda i: (wide(i) * wide(i)).astype("bfloat16"), "y")

    (stage,) = stages(define, (256,), dtype="float16")
    assert effort(stage, stage.axes) == Effort(1, 2 * 512, 0)


def test_sums_are_converted_and_what_is_cut_off_is_so_on_the_way() -> None:
    def define(x: Any) -> Any:
        total = te.compute((256,), lambda i: (x[i] + 1.0).astype("float16"), "total")
        return te.compute((256,), lambda i: te.min(te.max(total[i], tirx.const(0, "float16")), 6), "y")

    adding, cutting = stages(define, (256,))
    assert effort(adding, adding.axes, joined=True) == Effort(1, 2 * 256 * 4, 0)
    assert effort(cutting, cutting.axes, joined=True) == Effort(1, 256 * 2, 0)
    assert [effort(each, each.axes).instructions for each in (adding, cutting)] == [2, 2]


def test_what_is_folded_is_added_by_an_instruction_of_its_own() -> None:
    def define(x: Any) -> Any:
        k = te.reduce_axis((0, 512), "k")
        return te.compute((4,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), "sum")

    (stage,) = stages(define, (4, 512))
    assert effort(stage, stage.axes, joined=True) == effort(stage, stage.axes)


def test_halves_are_added_as_they_are_converted() -> None:
    def define(x: Any) -> Any:
        k = te.reduce_axis((0, 512), "k")
        return te.compute((4,), lambda i: te.sum(x[i, k].astype("float32"), axis=k), "sum")

    (stage,) = stages(define, (4, 512), dtype="float16")
    assert effort(stage, stage.axes).temporary_bytes == 4 * 256 * 4


def test_squares_are_widened_by_their_product() -> None:
    def define(x: Any) -> Any:
        k = te.reduce_axis((0, 512), "k")
        return te.compute((4,), lambda i: te.sum(x[i, k].astype("float32") * x[i, k].astype("float32"), axis=k), "sum")

    (stage,) = stages(define, (4, 512), dtype="float16")
    found = effort(stage, stage.axes)
    assert (found.instructions, found.temporary_bytes) == (2 + 1, 4 * 512 * 4)


@pytest.mark.parametrize(("columns", "instructions"), [(8, 1), (16, 1), (512, 2), (777, 3)])
def test_rows_are_folded_to_a_block_first(columns: int, instructions: int) -> None:
    def define(x: Any) -> Any:
        k = te.reduce_axis((0, columns), "k")
        return te.compute((4,), lambda i: te.max(x[i, k], axis=k), "most")

    (stage,) = stages(define, (4, columns), dtype="float16")
    assert effort(stage, stage.axes).instructions == instructions


def test_columns_are_folded_at_once() -> None:
    def define(x: Any) -> Any:
        k = te.reduce_axis((0, 777), "k")
        return te.compute((4,), lambda i: te.max(x[k, i], axis=k), "most")

    (stage,) = stages(define, (777, 4), dtype="float16")
    assert effort(stage, stage.axes).instructions == 1
