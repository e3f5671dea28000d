"""Random pairs of convolutions whose results are added, as one kernel each, run free of hazards, against numpy.

Of their own images, kernels, strides and padding, with biases or without, and with what activates their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np
from tvm import te

from ci.random_cases import Outcome
from compiler.operators.convolution import convolution
from compiler.tiling import paired
from tests.tiling.activations import ACTIVATIONS
from tests.tiling.drawn import Drawn, check_first
from tests.tiling.kernels import Result, by_cost, random, run
from tests.tiling.test_convolution import convolved, packed

TOLERANCE = 3e-3
ROWS, COLUMNS = (1, 1, 2, 3, 5, 7, 9, 14, 17), (1, 3, 5, 7, 8, 9, 14, 20, 31)
CHANNELS, OUTPUTS = (3, 16, 20, 32, 48, 64), (5, 16, 20, 32, 48, 64)


class One(NamedTuple):
    """A convolution; the image follows from what it makes."""

    channels: int  # of a group
    kernel: int
    stride: int
    pad: int
    bias: bool = True


class Pair(NamedTuple):
    """Two that make the same: images, outputs of a group, rows and columns."""

    images: int
    outputs: int
    rows: int
    columns: int
    added: One
    last: One
    group: int = 1
    behind: str = "relu"
    turned: bool = False  # the sum, of which the last one is the first summand

    def image(self, one: One) -> tuple[int, ...]:
        sides = ((n - 1) * one.stride + one.kernel - 2 * one.pad for n in (self.rows, self.columns))
        return (self.images, one.channels * self.group, *sides)


def one_kernel(chip: str, pair: Pair, pick: Callable[[int], int]) -> tuple[Result, float]:
    """Both by one of the tiles, of which the best comes first; and how far from what they are apart."""
    rng, inputs, expected = np.random.default_rng(3), dict[str, Any](), np.zeros(1)
    for at, one in enumerate((pair.added, pair.last)):
        x = random(rng, "float16", *pair.image(one))
        w = random(rng, "float16", pair.outputs * pair.group, one.channels, one.kernel, one.kernel) / 4
        inputs |= {f"x{at}": x, f"w{at}": packed(w.astype(np.float16), pair.group)}
        windows = (one.stride,) * 2, (one.pad,) * 4, (1, 1)
        made = convolved(x.astype(np.float64), w.astype(np.float16).astype(np.float64), *windows, pair.group)
        if one.bias:
            inputs[f"b{at}"] = random(rng, "float32", pair.outputs * pair.group)
            made = made + inputs[f"b{at}"][:, None, None]
        expected = expected + made
    activate, activated = ACTIVATIONS[pair.behind]

    def define(*given: te.Tensor) -> te.Tensor:
        left, results = list(given), []
        for one in (pair.added, pair.last):
            own = [left.pop(0) for _ in range(3 if one.bias else 2)]
            windows = {"strides": (one.stride,) * 2, "pads": (one.pad,) * 4, "dilations": (1, 1)}
            sizes = {"channels": one.channels, "outputs": pair.outputs * pair.group, "kernel": (one.kernel,) * 2}
            results.append(convolution(*own, **sizes, **windows))
        added, last = results
        first, second = (last, added) if pair.turned else (added, last)
        total = te.compute(added.shape, lambda *i: first(*i) + second(*i), "both")
        return te.compute(added.shape, lambda *i: activate(total(*i)), "behind") if activate else total

    result = run(by_cost(paired.space, pick), chip, inputs, define)
    expected = activated(expected)
    return result, float(np.abs(result.output - expected).max() / max(np.abs(expected).max(), 0.1))


def check(seed: int, chip: str) -> Outcome:
    """The first of the seed's pairs that has a tile on the chip."""

    def draw(source: Random) -> Drawn:
        pair = _draw(source)
        return Drawn(str(tuple(pair)), "of two that are added", lambda pick: one_kernel(chip, pair, pick))

    return check_first(seed, chip, draw, TOLERANCE)


def _draw(source: Random) -> Pair:
    group = source.choice((1, 1, 1, 2))
    outputs = source.choice(OUTPUTS) if group == 1 else source.choice((16, 32))
    while True:
        places = source.choice((1, 1, 2, 3)), outputs, source.choice(ROWS), source.choice(COLUMNS)
        ones = [_one(source, group) for _ in range(2)]
        pair = Pair(*places, *ones, group, source.choice(("", "relu", *ACTIVATIONS)), source.random() < 0.5)
        if min(min(pair.image(one)) for one in ones) >= 1:
            return pair


def _one(source: Random, group: int) -> One:
    kernel = source.choice((1, 1, 2, 3))
    channels = source.choice(CHANNELS) if group == 1 else 16
    return One(channels, kernel, source.choice((1, 1, 2, 3)), source.choice((0, kernel // 2)), source.random() < 0.8)
