"""Random convolutions with what pools them, as one kernel each, run free of hazards, against numpy in float64.

The greatest or the sum of windows that do not overlap, with places between them or none, or of all places; whether
others read what is pooled, too; groups, strides and padding, and what activates it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np
from tvm import te, tirx

from ci.random_cases import Outcome
from compiler.operators.convolution import convolution
from compiler.operators.reduction import MAX
from compiler.tiling import pooled
from tests.tiling.activations import ACTIVATIONS
from tests.tiling.drawn import Drawn, check_first
from tests.tiling.kernels import Result, by_cost, made, random, run
from tests.tiling.test_convolution import convolved, packed

TOLERANCE = 3e-3
ROWS, COLUMNS = (1, 2, 3, 5, 6, 7, 8, 12, 14, 24), (1, 3, 4, 5, 7, 8, 9, 14, 16, 28, 33)
CHANNELS, OUTPUTS = (3, 16, 20, 32, 48), (5, 16, 20, 32, 48, 64)
WHOLE = (0, 0)  # in the place of a window


class Case(NamedTuple):
    """A convolution of so many places, and how these are pooled."""

    images: int
    channels: int  # of a group
    rows: int
    columns: int
    outputs: int  # of a group
    kernel: int = 3
    stride: int = 1
    pad: int = 1
    group: int = 1
    behind: str = "relu"
    window: tuple[int, int] = (2, 2)
    steps: tuple[int, int] = (2, 2)
    sums: bool = False
    kept: bool = False
    keeps_axes: bool = True

    @property
    def image(self) -> tuple[int, ...]:
        sides = ((n - 1) * self.stride + self.kernel - 2 * self.pad for n in (self.rows, self.columns))
        return (self.images, self.channels * self.group, *sides)


def one_kernel(chip: str, case: Case, pick: Callable[[int], int]) -> tuple[Result, float]:
    """By one of the tiles, of which the best comes first; and how far from what it is step by step."""
    rng, outputs = np.random.default_rng(4), case.outputs * case.group
    x = random(rng, "float16", *case.image)
    w = (random(rng, "float16", outputs, case.channels, case.kernel, case.kernel) / 4).astype(np.float16)
    inputs = {"x": x, "w": packed(w, case.group), "b": random(rng, "float32", outputs)}
    activate, activated = ACTIVATIONS[case.behind]
    windows = (case.stride,) * 2, (case.pad,) * 4, (1, 1)
    whole = convolved(x.astype(np.float64), w.astype(np.float64), *windows, case.group)
    whole = activated(whole + inputs["b"][:, None, None])
    expected = [whole] * case.kept + [_pooled(case, whole)]

    def define(*given: te.Tensor) -> list[te.Tensor]:
        sizes = {"channels": case.channels, "outputs": outputs, "kernel": (case.kernel,) * 2}
        steps = {"strides": (case.stride,) * 2, "pads": (case.pad,) * 4, "dilations": (1, 1)}
        result = convolution(*given, **sizes, **steps)
        result = made(result, activate, "activated") if activate else result
        return [result] * case.kept + [_pool(case, result)]

    result = run(by_cost(pooled.space, pick), chip, inputs, define)
    errors = [
        np.abs(one.reshape(true.shape) - true).max() / max(np.abs(true).max(), 0.1)
        for one, true in zip(result.outputs, expected, strict=True)
    ]
    return result, float(max(errors))


def _pooled(case: Case, whole: np.ndarray) -> np.ndarray:
    if case.window == WHOLE:
        return np.asarray(whole.mean(axis=(2, 3)) if case.sums else whole.max(axis=(2, 3)))
    wide = np.lib.stride_tricks.sliding_window_view(whole, case.window, axis=(2, 3))
    wide = wide[:, :, :: case.steps[0], :: case.steps[1]]
    return np.asarray(wide.mean(axis=(-2, -1)) if case.sums else wide.max(axis=(-2, -1)))


def _pool(case: Case, x: te.Tensor) -> te.Tensor:
    images, channels, *places = (int(extent) for extent in x.shape)
    whole = case.window == WHOLE
    window, steps = (places, [0, 0]) if whole else (case.window, case.steps)
    found = [(n - k) // s + 1 if s else 1 for n, k, s in zip(places, window, steps, strict=True)]
    shape = (images, channels, *(found if case.keeps_axes or not whole else ()))

    def pooled_of(n: Any, c: Any, *at: Any) -> Any:
        inside = [te.reduce_axis((0, extent), f"k{axis}") for axis, extent in enumerate(window)]
        place = inside if whole else [i * s + k for i, s, k in zip(at, steps, inside, strict=True)]
        if case.sums:
            return te.sum(x(n, c, *place).astype("float32"), axis=inside)
        return MAX.reducer(x(n, c, *place), axis=inside)

    found = te.compute(shape, pooled_of, "pooled")
    if not case.sums:
        return found
    share = tirx.const(1 / (window[0] * window[1]), "float32")
    return te.compute(shape, lambda *i: (found(*i) * share).astype("float16"), "mean")


def check(seed: int, chip: str) -> Outcome:
    """The first of the seed's convolutions that has a tile on the chip."""

    def draw(source: Random) -> Drawn:
        case = _draw(source)
        return Drawn(str(tuple(case)), "that is pooled", lambda pick: one_kernel(chip, case, pick))

    return check_first(seed, chip, draw, TOLERANCE)


def _draw(source: Random) -> Case:
    while True:
        kernel, group = source.choice((1, 1, 2, 3, 3)), source.choice((1, 1, 1, 2, 32))
        channels = source.choice(CHANNELS) if group == 1 else 1 if group == 32 else 16
        outputs = source.choice(OUTPUTS) if group == 1 else 1 if group == 32 else source.choice((16, 32))
        rows, columns = source.choice(ROWS), source.choice(COLUMNS)
        window = source.choice((WHOLE, WHOLE, (2, 2), (2, 2), (3, 3), (1, 2), (2, 1), (4, 4)))
        steps = tuple(max(1, n + source.choice((0, 0, 0, 1))) for n in window)
        stride, pad = source.choice((1, 1, 1, 2)), source.choice((0, kernel // 2))
        flags = [source.random() < 0.5 for _ in range(3)]
        case = Case(
            source.choice((1, 1, 2, 3)), channels, rows, columns, outputs, kernel, stride, pad, group,
            source.choice(("relu", *ACTIVATIONS)), window, (steps[0], steps[1]), *flags,
        )  # fmt: skip
        if min(case.image) >= 1 and rows >= window[0] and columns >= window[1] and rows * columns > 1:
            return case
