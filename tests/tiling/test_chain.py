"""Several convolutions in one kernel, against numpy in float64: what lies between them stays in L1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from compiler.operators.convolution import convolution
from compiler.target import Chip, load_chip
from compiler.tiling import chain
from compiler.tiling.search import analytical_cycles
from compiler.tiling.template import NoFeasibleTile
from tests.tiling.kernels import random, run
from tests.tiling.test_convolution import convolved, packed

# chip, image, and of each convolution: outputs, channels of a group, rows and columns of the kernel, groups, stride,
# padding
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
]
ATTEMPTS = 2  # tiles of each case


def nth(func: Any, chip: Chip, attempt: int) -> Any:
    """The best tile of the space, then one from its middle."""
    space = chain.space(func, chip)
    tiles = sorted(space.tiles(), key=lambda tile: analytical_cycles(space.work(tile), chip))
    return space.apply(tiles[attempt * len(tiles) // ATTEMPTS])


def relu(x: te.Tensor, name: str) -> te.Tensor:
    return te.compute(x.shape, lambda *i: tirx.max(x(*i), tirx.const(0, x.dtype)), name)


@pytest.mark.parametrize("attempt", range(ATTEMPTS))
@pytest.mark.parametrize(("chip", "image", "layers"), CASES, ids=str)
def test_all_are_what_they_are_apart(chip: str, image: Any, layers: Any, attempt: int) -> None:
    rng = np.random.default_rng(3)
    inputs = {"x": random(rng, "float16", *image)}
    expected = inputs["x"].astype(np.float64)
    for at, (outputs, channels, rows, columns, group, stride, pad) in enumerate(layers):
        w = (random(rng, "float16", outputs, channels, rows, columns) / 4).astype(np.float16)
        inputs |= {f"w{at}": packed(w, group), f"b{at}": random(rng, "float32", outputs)}
        kept = np.maximum(expected, 0).astype(np.float16).astype(np.float64) if at else expected
        expected = convolved(kept, w.astype(np.float64), (stride,) * 2, (pad,) * 4, (1, 1), group)
        expected = expected + inputs[f"b{at}"][:, None, None]

    def define(x: te.Tensor, *weights: te.Tensor) -> te.Tensor:
        for at, (outputs, channels, rows, columns, _, stride, pad) in enumerate(layers):
            windows = {"kernel": (rows, columns), "strides": (stride,) * 2, "pads": (pad,) * 4, "dilations": (1, 1)}
            x = relu(x, f"relu{at}") if at else x
            x = convolution(x, *weights[2 * at : 2 * at + 2], channels=channels, outputs=outputs, **windows)
        return x

    result = run(nth, chip, inputs, define, attempt)
    assert np.abs(result.output - expected).max() <= 1e-3 * np.abs(expected).max()
    assert result.description.count("in L1 for") == len(layers) - 1


def test_columns_behind_the_last_window_are_not_left_unmade() -> None:
    shapes = {"x": (1, 32, 9, 19), "w": (1, 1, 2, 3, 3, 32, 16), "v": (1, 1, 2, 2, 2, 32, 16)}
    x, w, v = (te.placeholder(shape, "float16", name) for name, shape in shapes.items())
    same = {"dilations": (1, 1), "channels": 32, "outputs": 32}
    first = convolution(x, w, kernel=(3, 3), strides=(1, 1), pads=(1,) * 4, **same)
    second = convolution(first, v, kernel=(2, 2), strides=(2, 2), pads=(0,) * 4, **same)
    with pytest.raises(NoFeasibleTile):
        chain.space(te.create_prim_func([x, w, v, second]), load_chip("tw2"))


def test_what_reads_something_else_has_no_tile() -> None:
    shapes = {"x": (1, 16, 9, 9), "y": (1, 16, 9, 9), "w": (1, 1, 1, 3, 3, 16, 16), "v": (1, 1, 1, 3, 3, 16, 16)}
    x, y, w, v = (te.placeholder(shape, "float16", name) for name, shape in shapes.items())
    same = {"kernel": (3, 3), "strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "channels": 16, "outputs": 16}
    first, second = convolution(x, w, **same), convolution(y, v, **same)
    both = te.compute(shapes["x"], lambda *i: first(*i) + second(*i), "both")
    with pytest.raises(NoFeasibleTile):
        chain.space(te.create_prim_func([x, y, w, v, both]), load_chip("tw1"))
