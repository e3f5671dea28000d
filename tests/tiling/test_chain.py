"""Several convolutions in one kernel, against numpy in float64: what lies between them stays in L1."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te, tirx

from ci.random_cases import CHIPS
from compiler.codegen.instruction_form import SLOTS
from compiler.operators.convolution import convolution
from compiler.pipeline import kernel_passes
from compiler.target import load_chip
from compiler.tiling import chain
from compiler.tiling.search import analytical_cycles, analytical_cycles_of_all, cheapest_first, works_in, works_of
from compiler.tiling.template import NoFeasibleTile
from compiler.tir.structure import structural_walk
from tests.tiling.random_chains import Layer, check, one_kernel

# chip, image, and of each convolution: outputs, channels of a group, rows and columns of the kernel, groups, stride,
# padding, and dilation where there is one
CASES: list[tuple[str, tuple[int, ...], list[tuple[int, ...]]]] = [
    ("tw1", (1, 32, 20, 20), [(32, 32, 3, 3, 1, 1, 1), (48, 32, 1, 1, 1, 1, 0)]),
    ("tw1", (2, 20, 23, 19), [(40, 20, 1, 1, 1, 1, 0), (24, 40, 1, 1, 1, 1, 0)]),
    ("tw1", (1, 48, 21, 21), [(48, 16, 3, 3, 3, 2, 1), (24, 48, 1, 1, 1, 1, 0)]),
    ("tw1", (1, 16, 5, 600), [(32, 16, 3, 3, 1, 1, 1), (16, 32, 1, 1, 1, 1, 0)]),
    ("tw1", (2, 16, 23, 21), [(32, 16, 3, 3, 1, 1, 1), (48, 32, 3, 3, 1, 2, 1)]),
    ("tw1", (1, 16, 24, 24), [(96, 16, 1, 1, 1, 1, 0), (96, 16, 3, 3, 6, 2, 1), (24, 96, 1, 1, 1, 1, 0)]),
    ("tw2", (1, 48, 33, 31), [(40, 48, 3, 3, 1, 1, 1), (24, 40, 1, 1, 1, 1, 0)]),
    ("tw2", (2, 16, 23, 21), [(96, 16, 1, 1, 1, 1, 0), (96, 16, 3, 3, 6, 1, 1), (24, 96, 1, 1, 1, 1, 0)]),
    ("tw2", (1, 32, 9, 20), [(32, 32, 3, 3, 1, 1, 1), (32, 32, 2, 2, 1, 2, 0)]),
    ("tiny", (1, 32, 9, 11), [(32, 32, 3, 3, 1, 1, 1), (16, 32, 1, 1, 1, 1, 0)]),
    ("tiny", (1, 16, 9, 9), [(32, 16, 1, 1, 1, 1, 0), (32, 16, 3, 3, 2, 1, 1)]),
    ("tiny", (1, 16, 1, 7), [(32, 16, 1, 1, 1, 1, 0), (32, 32, 1, 2, 1, 1, 0), (32, 16, 1, 2, 2, 1, 0)]),
    ("tw1", (1, 32, 7, 8), [(40, 32, 2, 2, 1, 1, 0), (48, 40, 3, 3, 1, 2, 0), (48, 48, 1, 1, 1, 1, 0)]),
    # The kernel of the last one is as high as its map: tiles of some rows begin in the padding, or behind it.
    ("tiny", (1, 48, 9, 11), [(48, 16, 3, 3, 3, 2, 0), (48, 48, 1, 1, 1, 1, 0), (48, 48, 3, 3, 1, 1, 1)]),
    # All windows of the first one lie in the padding, above the only row and below it: no stage reads the image.
    ("tw1", (1, 16, 1, 9), [(32, 16, 2, 2, 1, 2, 1, 2), (16, 32, 1, 1, 1, 1, 0)]),
    ("tiny", (1, 16, 1, 9), [(32, 16, 3, 3, 1, 2, 3, 2), (16, 32, 3, 3, 1, 1, 1)]),
]
ATTEMPTS = 2  # tiles of each case


@pytest.mark.parametrize(
    ("chip", "image", "layers", "attempt"),
    [*((*case, at % ATTEMPTS) for at, case in enumerate(CASES)), *((*case, 1) for case in CASES[:5:2])],
    ids=str,
)
def test_all_are_what_they_are_apart(chip: str, image: Any, layers: Any, attempt: int) -> None:
    """By the best tile of the space, or by one from its middle; some by both."""
    result, error = one_kernel(
        chip, image, [Layer(*each) for each in layers], lambda count: attempt * count // ATTEMPTS
    )
    assert error <= 1e-3
    assert result.description.count("in L1 for") == len(layers) - 1


@pytest.mark.parametrize("attempt", range(ATTEMPTS))
@pytest.mark.parametrize(
    ("chip", "image", "layers", "kept"),
    [
        ("tw1", (2, 32, 14, 16), [(64, 32, 1, 1, 1, 1, 0), (32, 64, 1, 1, 1, 1, 0)], [1]),
        ("tw1", (1, 32, 19, 23), [(48, 32, 3, 3, 1, 1, 1), (40, 48, 1, 1, 1, 1, 0)], [1]),
        ("tw2", (1, 24, 13, 8), [(40, 24, 1, 1, 1, 1, 0), (24, 40, 1, 1, 1, 1, 0), (40, 24, 1, 1, 1, 1, 0)], [1, 2]),
        ("tiny", (1, 32, 9, 11), [(32, 32, 3, 3, 1, 2, 1), (16, 32, 1, 1, 1, 1, 0)], [1]),
    ],
    ids=str,
)
def test_others_may_read_what_lies_between(chip: str, image: Any, layers: Any, kept: Any, attempt: int) -> None:
    """To which something is added first, as in a residual block."""
    rows = [Layer(*each)._replace(kept=at in kept) for at, each in enumerate(layers)]
    result, error = one_kernel(chip, image, rows, lambda count: attempt * count // ATTEMPTS)
    assert error <= 2e-3
    assert len(result.outputs) == 1 + len(kept)


@pytest.mark.parametrize("columns", [1, 3])
def test_what_others_read_is_made_once_only(columns: int) -> None:
    """Windows of more than one row would have rows of all that is before them made twice, by two cores."""
    layers = [Layer(32, 32, 1, 1, 1, 1, 0), Layer(32, 32, 1, 1, 1, 1, 0, kept=True), Layer(32, 32, 3, columns, 1, 1, 0)]
    with pytest.raises(NoFeasibleTile, match="made twice"):
        one_kernel("tw1", (1, 32, 12, 16), layers, lambda _count: 0)


@pytest.mark.parametrize("seed", range(9))
def test_random_ones_are_free_of_hazards_and_right(seed: int) -> None:
    assert check(seed, CHIPS[seed % 3]).text == ""


def test_columns_behind_the_last_window_are_not_left_unmade() -> None:
    shapes = {"x": (1, 32, 9, 19), "w": (1, 1, 2, 3, 3, 32, 16), "v": (1, 1, 2, 2, 2, 32, 16)}
    x, w, v = (te.placeholder(shape, "float16", name) for name, shape in shapes.items())
    same = {"dilations": (1, 1), "channels": 32, "outputs": 32}
    first = convolution(x, w, kernel=(3, 3), strides=(1, 1), pads=(1,) * 4, **same)
    second = convolution(first, v, kernel=(2, 2), strides=(2, 2), pads=(0,) * 4, **same)
    with pytest.raises(NoFeasibleTile):
        chain.space(te.create_prim_func([x, w, v, second]), load_chip("tw2"))


def test_groups_that_are_no_blocks_have_no_tile() -> None:
    """The second group's channels begin within a block of what the first convolution makes."""
    layers = [Layer(24, 16, 1, 1, 1, 1, 0), Layer(16, 12, 3, 3, 2, 1, 1)]
    with pytest.raises(NoFeasibleTile):
        one_kernel("tw1", (1, 16, 9, 9), layers, lambda _: 0)


def test_what_reads_something_else_has_no_tile() -> None:
    shapes = {"x": (1, 16, 9, 9), "y": (1, 16, 9, 9), "w": (1, 1, 1, 3, 3, 16, 16), "v": (1, 1, 1, 3, 3, 16, 16)}
    x, y, w, v = (te.placeholder(shape, "float16", name) for name, shape in shapes.items())
    same = {"kernel": (3, 3), "strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "channels": 16, "outputs": 16}
    first, second = convolution(x, w, **same), convolution(y, v, **same)
    both = te.compute(shapes["x"], lambda *i: first(*i) + second(*i), "both")
    with pytest.raises(NoFeasibleTile):
        chain.space(te.create_prim_func([x, y, w, v, both]), load_chip("tw1"))


def test_products_one_after_another_have_two_slots_each_though_not_all_at_once() -> None:
    """L0A and the flags of tw1 are too few for the operands of all three; what they add to sums is loaded once."""
    shapes = {"x": (64, 64, 14, 14), "w": (1, 1, 4, 1, 1, 384, 16), "v": (24, 1, 1, 3, 3, 16, 16)}
    shapes |= {"u": (1, 1, 24, 1, 1, 64, 16), "b": (384,)}
    x, w, v, u = (te.placeholder(shapes[name], "float16", name) for name in "xwvu")
    b = te.placeholder(shapes["b"], "float32", "b")
    dense: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1)}
    one = dense | {"kernel": (1, 1), "pads": (0,) * 4}
    wide = convolution(x, w, **one, channels=64, outputs=384)
    deep = convolution(wide, v, b, **dense, kernel=(3, 3), pads=(1,) * 4, channels=16, outputs=384)
    last = convolution(deep, u, **one, channels=384, outputs=64)
    chip = load_chip("tw1")
    space = chain.space(te.create_prim_func([x, w, v, b, u, last]), chip)
    best = cheapest_first(space, space.tiles(), chip)[0]
    kernel = space.apply(best).func
    for each in kernel_passes():
        kernel = each.run(kernel, chip)
        if each.name == "double-buffer":
            break
    slots, loads = list[int](), list[Any]()
    structural_walk(kernel.body, (tirx.AllocBuffer, lambda one: slots.append(_slots(one))))
    structural_walk(kernel.body, (tirx.Evaluate, loads.append))
    of_operands = [count for count in slots if count]
    assert len(of_operands) == 3
    assert min(of_operands) == 2
    assert [str(load).count("tw.ld.ddr.ub") for load in loads if "tw.ld.ddr.ub" in str(load)] == [1]


def _slots(allocation: Any) -> int:
    """Of an operand beside the cube."""
    is_operand = allocation.buffer.scope() == "local.l0a"
    return int(allocation.annotations.get(SLOTS, 1)) if is_operand else 0


def test_the_work_of_a_tile_does_not_depend_on_the_tiles_beside_it() -> None:
    shapes = {"x": (1, 32, 40, 40), "w": (1, 1, 2, 3, 3, 32, 16), "v": (1, 1, 2, 3, 3, 32, 16)}
    x, w, v = (te.placeholder(shape, "float16", name) for name, shape in shapes.items())
    same = {"kernel": (3, 3), "strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "channels": 32, "outputs": 32}
    second = convolution(convolution(x, w, **same), v, **same)
    chip = load_chip("tw1")
    space = chain.space(te.create_prim_func([x, w, v, second]), chip)
    columns = works_of(space, space.tiles())
    works = [space.work(tile) for tile in space.tiles()]
    assert len(set(works)) > 1
    assert works_in(columns) == works
    assert analytical_cycles_of_all(columns, chip).tolist() == [analytical_cycles(work, chip) for work in works]
