"""What a tile needs of the stages before it."""

from __future__ import annotations

from typing import Any

from tvm import te

from compiler.tiling.stages import Made, Stage, most_bytes, needs, stages_of
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
