"""What a tile needs of the stages before it, and what boxes of DDR cost."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te, tirx

from compiler.tiling.stages import Effort, Made, Stage, effort, most_bytes, needs, stages_of
from compiler.tiling.transfers import transfer
from compiler.tiling.vector_blocks import new_schedule, read_pattern, root_blocks
from tests.tiling.test_vector import softmax


def stages(define: Any, *shapes: tuple[int, ...], dtype: str = "float32") -> list[Stage]:
    inputs = [te.placeholder(shape, dtype, f"x{n}") for n, shape in enumerate(shapes)]
    sch = new_schedule(te.create_prim_func([*inputs, define(*inputs)]))
    return stages_of(sch, root_blocks(sch))


def test_rows_of_a_result_need_whole_rows_of_what_is_reduced() -> None:
    every = stages(softmax, (64, 100))
    out = every[-1]
    found = needs(every, out, {out.kept[0]: 4, out.kept[1]: 100}, read_pattern)
    assert [list(found.lengths[stage].values()) for stage in every] == [[4, 100], [4, 100], [4, 100], [4, 100]]
    assert list(found.inputs.values()) == [(4, 100)]  # once, for both stages that read it


def test_windows_overlap() -> None:
    def define(x: Any) -> Any:
        k = te.reduce_axis((0, 3), "k")
        return te.compute((31,), lambda i: te.max(x[i * 2 + k], axis=k), "pool")

    (pool,) = stages(define, (64,))
    assert list(needs([pool], pool, {pool.kept[0]: 8}, read_pattern).inputs.values()) == [(17,)]


def test_what_data_chooses_is_as_many_rows_as_are_chosen() -> None:
    x, index = te.placeholder((1000, 64), "float32", "x"), te.placeholder((50,), "int32", "index")
    sch = new_schedule(te.create_prim_func([x, index, te.compute((50, 64), lambda i, j: x[index[i], j], "rows")]))
    (rows,) = stages_of(sch, root_blocks(sch))
    boxes = {
        buffer.name: box for (buffer, _), box in needs([rows], rows, {rows.kept[0]: 5}, read_pattern).inputs.items()
    }
    assert boxes == {"x": (5, 64), "index": (5,)}


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


@pytest.mark.parametrize(
    ("box", "line_bytes", "instructions"),
    [
        ((4, 64), 4 * 256, 1),  # whole rows
        ((4, 16), 4 * 128, 1),  # half a line of each
        ((4, 48), 4 * 256, 1),  # three quarters of a row begin where they may
        ((64, 64), 64 * 256, 1),
    ],
)
def test_boxes_touch_whole_lines(box: tuple[int, ...], line_bytes: float, instructions: int) -> None:
    found = transfer(box, (64, 64), 4, 128)
    assert found.line_bytes == line_bytes
    assert found.instructions == instructions


def test_more_than_three_dimensions_take_several_instructions() -> None:
    assert transfer((2, 3, 4, 5), (9, 9, 9, 9), 4, 128).instructions == 2


def test_rows_that_are_read_block_by_block_are_all_of_a_row() -> None:
    def define(x: Any) -> Any:
        blocks, k = te.reduce_axis((0, 8), "blocks"), te.reduce_axis((0, 128), "k")
        places = te.compute((64, 16), lambda i, j: te.max(x[i, blocks * 16 + j], axis=blocks), "places")
        whole = te.compute((64,), lambda i: te.sum(x[i, k], axis=k), "whole")
        apart = te.compute((64, 16), lambda i, j: x[i, j * 8], "apart")
        return te.compute((64, 16), lambda i, j: places[i, j] + whole[i] + apart[i, j], "y")

    by_name = {stage.made.name: stage for stage in stages(define, (64, 128))}
    patterns = {
        name: read_pattern(by_name[name].block, by_name[name].facts.reads[0]) for name in by_name if name != "y"
    }
    assert patterns["places"] == patterns["whole"] != patterns["apart"]
    assert isinstance(patterns["apart"], str)  # by itself


def test_what_is_made_takes_room_until_it_was_read_last() -> None:
    def define(x: Any) -> Any:
        first = te.compute((64,), lambda i: x[i] + 1.0, "first")
        second = te.compute((64,), lambda i: first[i] * first[i], "second")
        third = te.compute((64,), lambda i: second[i] - 2.0, "third")
        return te.compute((64,), lambda i: third[i] * second[i], "y")

    every = stages(define, (64,))
    made = {stage: Made(100, 10) for stage in every[:-1]} | {every[-1]: Made(0, 250)}
    assert most_bytes(every, made) == 450  # the last one's temporaries, beside the second and the third
    assert most_bytes(every, {stage: Made(100, 0) for stage in every}) == 300
