"""Two convolutions in one kernel, against numpy in float64: what the first makes stays in L1."""

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

# chip, image, weights of the first and of the second, then what differs from stride 1 and padding 1
CASES: list[dict[str, Any]] = [
    {"chip": "tw1", "x": (1, 32, 20, 20), "w": (32, 32, 3, 3), "v": (48, 32, 1, 1)},
    {"chip": "tw1", "x": (2, 20, 23, 19), "w": (40, 20, 1, 1), "v": (24, 40, 1, 1), "pad": 0},
    {"chip": "tw1", "x": (1, 48, 21, 21), "w": (48, 16, 3, 3), "v": (24, 48, 1, 1), "group": 3, "stride": 2},
    {"chip": "tw1", "x": (1, 16, 5, 600), "w": (32, 16, 3, 3), "v": (16, 32, 1, 1)},
    {"chip": "tw2", "x": (1, 48, 33, 31), "w": (40, 48, 3, 3), "v": (24, 40, 1, 1)},
    {"chip": "tw2", "x": (2, 32, 14, 14), "w": (64, 16, 3, 3), "v": (32, 64, 1, 1), "group": 2},
    {"chip": "tiny", "x": (1, 32, 9, 11), "w": (32, 32, 3, 3), "v": (16, 32, 1, 1)},
]
ATTEMPTS = 3  # tiles of each case


def nth(func: Any, chip: Chip, attempt: int) -> Any:
    """The best tile of the space, then others from all of it."""
    space = chain.space(func, chip)
    tiles = sorted(space.tiles(), key=lambda tile: analytical_cycles(space.work(tile), chip))
    return space.apply(tiles[attempt * (len(tiles) - 1) // (ATTEMPTS - 1)])


def both(case: dict[str, Any]) -> Any:
    pad, stride, group = case.get("pad", 1), case.get("stride", 1), case.get("group", 1)
    (outputs, channels, *kernel), (last, middle, *_) = case["w"], case["v"]

    def define(x: te.Tensor, w: te.Tensor, b: te.Tensor, v: te.Tensor, c: te.Tensor) -> te.Tensor:
        around = {"strides": (stride,) * 2, "pads": (pad,) * 4, "dilations": (1, 1)}
        first = convolution(x, w, b, kernel=tuple(kernel), channels=channels, outputs=outputs, **around)
        relu = te.compute(first.shape, lambda *i: tirx.max(first(*i), tirx.const(0, first.dtype)), "relu")
        alone = {"kernel": (1, 1), "strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1)}
        return convolution(relu, v, c, channels=middle, outputs=last, **alone)

    rng = np.random.default_rng(3)
    x, w, v = (random(rng, "float16", *case[name]) for name in "xwv")
    b, c = (random(rng, "float32", case[name][0]) for name in "wv")
    inputs = {"x": x, "w": packed(w, group), "b": b, "v": packed(v, 1), "c": c}
    wide = [each.astype(np.float64) for each in (x, w, b, v, c)]
    first = convolved(wide[0], wide[1], (stride,) * 2, (pad,) * 4, (1, 1), group) + wide[2][:, None, None]
    kept = np.maximum(first, 0).astype(np.float16).astype(np.float64)
    return inputs, define, convolved(kept, wide[3], (1, 1), (0,) * 4, (1, 1), 1) + wide[4][:, None, None]


@pytest.mark.parametrize("attempt", range(ATTEMPTS))
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_both_are_what_they_are_apart(case: dict[str, Any], attempt: int) -> None:
    inputs, define, expected = both(case)
    result = run(nth, case["chip"], inputs, define, attempt)
    assert np.abs(result.output - expected).max() <= 1e-3 * np.abs(expected).max()
    assert "in L1 for" in result.description


def test_what_needs_more_than_the_same_positions_has_no_tile() -> None:
    shapes = {"x": (1, 16, 9, 9), "w": (1, 1, 1, 3, 3, 16, 16), "v": (1, 1, 1, 3, 3, 16, 16)}
    x, w, v = (te.placeholder(shape, "float16", name) for name, shape in shapes.items())
    same = {"kernel": (3, 3), "strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "channels": 16, "outputs": 16}
    second = convolution(convolution(x, w, **same), v, **same)
    with pytest.raises(NoFeasibleTile):
        chain.space(te.create_prim_func([x, w, v, second]), load_chip("tw1"))
