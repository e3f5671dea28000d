"""The instructions that nests of convolutions become."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import tirx

from compiler.emission.cube.feature_maps import Axes, map_mark
from compiler.emission.cube.windows import Windows
from compiler.emission.nest import Surroundings
from tests.emission.nests import buffer, emitted, load, nest, outer, reasons

AXES = Axes(1, 2, 3)
SAME_3X3 = Windows(AXES, 3, (1, 1), (1, 1), 1, True)


def windows(
    held: Any, said: Windows, extents: tuple[Any, ...], row: Any, column: Any, inside: Any, padding: float = 0.0
) -> Any:
    """Over ho, wo, c1, kh, kw, c0; ``row`` and ``column`` are functions of an output position and a kernel element."""
    operand = buffer("local.l0a", "float16", 1, 1, 1, 4, 8, 1, 2, 3, 3, 16)

    def body(ho: Any, wo: Any, c1: Any, kh: Any, kw: Any, c0: Any) -> tuple[Any, Any]:
        value = load(held, 0, c1 * 16 + c0, row(ho, kh), column(wo, kw))
        other = tirx.FloatImm("float16", padding)
        return (0, 0, 0, ho, wo, 0, c1, kh, kw, c0), tirx.if_then_else(inside(ho, wo, kh, kw), value, other)

    return nest(list(extents), operand, body, str(said))


def test_the_marks_read_back_what_they_say() -> None:
    said = Windows(Axes(1, None, 2, 7), 5, (1, 2), (1, 3), -2, False)
    assert Windows.of(str(said)) == said


def test_whole_rows_of_an_image_to_l1_are_one_run() -> None:
    far, near = buffer("global", "float16", 1, 20, 30, 48, name="far"), buffer("shared.l1", "float16", 1, 20, 6, 47)
    body = lambda c, h, w: ((0, c, h, w), load(far, 0, c, h + 2, w))  # noqa: E731
    assert emitted(nest([20, 6, 47], near, body, map_mark(Axes(1, 2, 3, 48)))) == (
        "ldc1.ddr.fp16 l1[0, 0, 0, 0], far[0, 0, 2, 0], 1440, 0, 1, 20, 1, 288, 4608"
    )


def runs_of_whole_rows(channels: int, height: int, width: int, rows: int, *, near: bool) -> str:
    """The load of so many rows of a map, at the place of a turn of a loop."""
    far = buffer("global", "float16", 1, channels, height, width, name="far")
    surroundings = Surroundings(near=frozenset({far} if near else ()))
    t = outer("t", height // rows, surroundings)
    held = buffer("shared.l1", "float16", 1, channels, rows, width)
    body = lambda c, h, w: ((0, c, h, w), load(far, 0, c, t * rows + h, w))  # noqa: E731
    statement = nest([channels, rows, width], held, body, map_mark(Axes(1, 2, 3, width)))
    return emitted(statement, surroundings=surroundings)


@pytest.mark.parametrize(("channels", "near"), [(20, False), (16, True)])
def test_a_run_goes_on_to_the_end_of_a_block_where_the_map_does(channels: int, near: bool) -> None:
    assert runs_of_whole_rows(channels, 30, 40, 3, near=near) == (
        f"ldc1.ddr.fp16 l1[0, 0, 0, 0], far[0, 0, t * 3, 0], 1200, 0, 1, {channels}, 1, T.min(128, 1200 - t * 120), "
        "2304"
    )


def test_the_last_channels_of_a_map_in_llb_come_by_themselves_and_the_runs_of_others_go_on() -> None:
    assert runs_of_whole_rows(20, 30, 40, 3, near=True) == (
        "ldc1.ddr.fp16 l1[0, 0, 0, 0], far[0, 0, t * 3, 0], 1200, 0, 1, 16, 1, 128, 2304; "
        "ldc1.ddr.fp16 l1+4608, far[0, 16, t * 3, 0], 1200, 0, 1, 4, 1, T.min(128, 1200 - t * 120), 2304"
    )


def test_runs_of_whole_channels_in_llb_go_on_into_the_next_channel_where_they_are_long() -> None:
    assert runs_of_whole_rows(20, 14, 14, 14, near=True) == (
        "ldc1.ddr.fp16 l1[0, 0, 0, 0], far[0, 0, 0, 0], 196, 0, 1, 16, 1, 208, 3584; "
        "ldc1.ddr.fp16 l1+7168, far[0, 16, 0, 0], 196, 0, 1, 4, 1, 196, 3584"
    )
    whole = "ldc1.ddr.fp16 l1[0, 0, 0, 0], far[0, 0, 0, 0], {0}, 0, 1, 20, 1, {0}, {1}"
    assert runs_of_whole_rows(20, 14, 14, 14, near=False) == whole.format(196, 3584)
    assert runs_of_whole_rows(20, 6, 6, 6, near=True) == whole.format(36, 1024)


def test_parts_of_rows_one_by_one() -> None:
    far, near = buffer("global", "float16", 1, 20, 30, 40, name="far"), buffer("shared.l1", "float16", 1, 20, 6, 16)
    body = lambda c, h, w: ((0, c, h, w), load(far, 0, c, h + 2, w))  # noqa: E731
    assert emitted(nest([20, 6, 10], near, body, map_mark(AXES))) == (
        "for i1 in 6: ldc1.ddr.fp16 l1+i1 * 512, far[0, 0, i1 + 2, 0], 1200, 40, 1, 20, 1, 10, 1536"
    )


def test_windows_at_the_upper_edge() -> None:
    held = buffer("shared.l1", "float16", 1, 32, 5, 8)

    def inside(ho: Any, wo: Any, kh: Any, kw: Any) -> Any:
        return tirx.all(ho + kh >= 1, wo + kw >= 1, wo + kw < 9)

    statement = windows(held, SAME_3X3, (4, 8, 2, 3, 3, 16), lambda o, k: o + k - 1, lambda o, k: o + k - 1, inside)
    assert emitted(statement) == (
        "img2col.fp16 l0a[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], l1[0, 0, 0, 0], 32, 288, 0, 0, 5, 8, 640, 3, 3, 1, 1, 1, 1, "
        "1, 1, 0, 1, 0"
    )


def test_windows_of_a_tile_know_their_padding_at_run_time() -> None:
    surroundings = Surroundings()
    t = outer("t", 3, surroundings)
    held = buffer("shared.l1", "float16", 1, 32, 6, 8)

    def inside(ho: Any, wo: Any, kh: Any, kw: Any) -> Any:
        return tirx.all(t * 4 + ho + kh >= 1, t * 4 + ho + kh < 13, wo + kw >= 1, wo + kw < 9)

    first = lambda o, k: o + k + t * 4 - 1 - tirx.max(tirx.IntImm("int32", 0), t * 4 - 1)  # noqa: E731
    statement = windows(held, SAME_3X3, (4, 8, 2, 3, 3, 16), first, lambda o, k: o + k - 1, inside)
    operands = emitted(statement, surroundings=surroundings).rpartition("288, ")[2]
    assert operands == (
        "0, 0, T.min(6, 13 - t * 4) - T.max(0, 1 - t * 4), 8, 768, 3, 3, 1, 1, 1, 1, "
        "T.max(0, 1 - t * 4), 1, T.max(0, t * 4 - 7), 1, 0"
    )


def test_a_column_of_the_kernel_is_a_range_of_k() -> None:
    held = buffer("shared.l1", "float16", 1, 32, 5, 8)
    inside = lambda ho, wo, kh, kw: wo < 7  # noqa: E731
    statement = windows(held, SAME_3X3, (4, 8, 1, 1, 1, 16), lambda o, _: o, lambda o, _: o + 1, inside)
    assert emitted(statement).partition("], ")[2] == (
        "l1[0, 0, 0, 0], 32, 16, 0, 32, 4, 8, 640, 1, 3, 1, 1, 1, 1, 0, 1, 0, 1, 0"
    )


def test_whole_rows_are_told_of_all_columns_of_the_kernel() -> None:
    """However few of them a nest has: more than an instruction takes are refused."""
    held = buffer("shared.l1", "float16", 1, 32, 5, 300)
    said = Windows(AXES, 256, (1, 1), (1, 1), 0, True)
    statement = windows(held, said, (4, 8, 1, 1, 2, 16), lambda o, _: o, lambda o, k: o + k, lambda *_: True)
    assert reasons(statement) == ["img2col: kw must be in 1..255, not 256"]


@pytest.mark.parametrize("padding", [0.0, 2.5])
def test_windows_wholly_in_the_padding_are_filled(padding: float) -> None:
    surroundings = Surroundings()
    depth = outer("depth", 4, surroundings)
    held = buffer("shared.l1", "float16", 1, 32, 5, 8)
    inside = lambda ho, wo, kh, kw: depth >= 1  # noqa: E731
    one_lower, left = lambda o, k: o + k, lambda o, k: o + k - 1
    statement = windows(held, SAME_3X3, (3, 8, 2, 3, 3, 16), one_lower, left, inside, padding)
    text = emitted(statement, surroundings=surroundings)
    assert text.startswith("if depth >= 1: img2col.fp16 ")
    assert f", {padding:g} else filll0a.fp16 l0a[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 9216, {padding:g}" in text


def test_packed_weights() -> None:
    far = buffer("global", "float16", 1, 1, 3, 3, 3, 40, 16, name="far")
    near, operand = (buffer(scope, "float16", 1, 1, 2, 3, 3, 32, 16) for scope in ("shared.l1", "local.l0b"))

    def loaded(c1: Any, kh: Any, kw: Any, o: Any, c0: Any) -> tuple[Any, Any]:
        return (0, 0, c1, kh, kw, o, c0), load(far, 0, 0, c1 + 1, kh, kw, o + 8, c0)

    assert emitted(nest([2, 3, 3, 32, 16], near, loaded, "weights")) == (
        "ld.ddr.l1.fp16.2d l1[0, 0, 0, 0, 0, 0, 0], 512, 1, far[0, 0, 1, 0, 0, 8, 0], 640, 1, 18, 512"
    )

    def one_row(kw: Any, o: Any, c0: Any) -> tuple[Any, Any]:
        return (0, 0, 0, 0, kw, o, c0), load(near, 0, 0, 1, 2, kw, o, c0)

    assert emitted(nest([3, 32, 16], operand, one_row, "weights")) == (
        "ldl0bt.fp16 l0b[0, 0, 0, 0, 0, 0, 0], l1+15360, 48, 32, 32"
    )


def test_a_part_of_the_bias_to_where_it_lies_among_the_others() -> None:
    surroundings = Surroundings()
    t = outer("t", 4, surroundings)
    far, held = (buffer(scope, "float32", 256, name=name) for scope, name in (("global", "far"), ("shared.l1", "l1")))
    table = buffer("local.bt", "float32", 64, name="bt")
    to_l1 = nest([64], held, lambda i: ((t * 64 + i,), load(far, t * 64 + i)), "bias")
    assert emitted(to_l1, surroundings=surroundings) == "ld.ddr.l1.fp32.1d l1+t * 256, 1, far[t * 64], 1, 64"
    to_table = nest([64], table, lambda i: ((i,), load(held, t * 64 + i)), "bias")
    assert emitted(to_table, surroundings=surroundings) == "ldbt.fp32 bt[0], l1+t * 256, 64"
