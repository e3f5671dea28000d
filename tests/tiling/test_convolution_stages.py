"""The stages behind a convolution whose groups have more channels than its result."""

from __future__ import annotations

from typing import Any

from tvm import te

from compiler.operators.convolution import convolution
from compiler.tiling import cube
from compiler.tiling.convolution_stages import merged
from compiler.tiling.masters import masters_of
from compiler.tiling.schedule import schedule_of

X, PACKED = (2, 24, 8, 8), (2, 1, 1, 1, 1, 16, 16)


def stages_of(outputs: int, behind: Any = None) -> list[tuple[tuple[int, ...], str, bool]]:
    """Of each stage behind the product: the shape of what it makes, its place in that, and whether it is guarded."""
    x, packed = te.placeholder(X, "float16", "x"), te.placeholder(PACKED, "float16", "packed")
    attributes = {"kernel": (1, 1), "strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "channels": 16}
    made = convolution(x, packed, outputs=outputs, **attributes)
    made = made if behind is None else behind(made)
    sch = schedule_of(merged(te.create_prim_func([x, packed, made])))
    found = []
    for stage in cube.followers(sch, masters_of(sch)[0].block):
        store = sch.get(stage).body
        guarded = "T.where" in str(sch.mod["main"].script()).split(f'"{sch.get(stage).name_hint}"')[1]
        found.append((tuple(map(int, store.buffer.shape)), str(sch.get(stage).name_hint), guarded))
    return found


def test_all_channels_of_a_result_that_has_them_are_one_stage() -> None:
    assert stages_of(32) == [((2, 32, 8, 8), "cast", False)]


def test_what_has_fewer_is_stored_of_a_buffer_with_all() -> None:
    assert stages_of(24) == [((2, 32, 8, 8), "cast", False), ((2, 24, 8, 8), "own_channels", False)]


def test_a_stage_behind_reads_what_it_needs_of_all() -> None:
    def doubled(made: Any) -> Any:
        return te.compute(made.shape, lambda *i: made[i] + made[i], "doubled")

    assert stages_of(24, doubled) == [((2, 32, 8, 8), "cast", False), ((2, 24, 8, 8), "doubled", False)]


def test_where_the_others_would_lie_upon_the_next_image_nothing_is_merged() -> None:
    def flattened(made: Any) -> Any:
        return te.compute((2 * 24 * 8 * 8,), lambda i: made[i // 1536, i // 64 % 24, i // 8 % 8, i % 8], "flattened")

    assert [shape for shape, *_ in stages_of(24, flattened)] == [(2, 32, 8, 8), (3072,)]
