"""Random convolutions of single elements with what makes their map before them, as one kernel each, against numpy.

Scales and shifts of channels, of images or of all elements, what is added, functions, or nothing but the map itself.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np
from tvm import te

from ci.random_cases import Outcome
from compiler.operators.convolution import convolution
from compiler.tiling import prepared
from tests.tiling.activations import ACTIVATIONS
from tests.tiling.drawn import Drawn, check_first
from tests.tiling.kernels import Result, by_cost, random, run
from tests.tiling.test_convolution import convolved, packed

TOLERANCE = 3e-3
ROWS, COLUMNS = (1, 2, 3, 5, 7, 8, 14, 28), (1, 3, 5, 7, 8, 14, 16, 28, 33)
CHANNELS, OUTPUTS = (16, 32, 48, 80, 128, 240), (5, 16, 20, 32, 48, 64, 128)


class Case(NamedTuple):
    """A convolution, and what is done to its map."""

    images: int
    channels: int
    rows: int
    columns: int
    outputs: int
    before: str = "scaled"
    activated: str = "relu"
    bias: bool = True
    behind: str = "relu"


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """Of what the stages before the convolution read, but for the map."""
    whole = (case.images, case.channels, case.rows, case.columns)
    return {
        "": {},
        "scaled": {"s": (case.channels,), "t": (case.channels,)},
        "of images": {"s": (case.images, case.channels, 1, 1)},
        "added": {"s": whole},
    }[case.before]


def _before(case: Case, x: Any, given: dict[str, Any], at: Callable[..., Any]) -> Any:
    if case.before == "scaled":
        return x * given["s"](at(1)) + given["t"](at(1))
    if case.before == "of images":
        return x * given["s"](at(0), at(1), 0, 0)
    return x + given["s"](at(0), at(1), at(2), at(3)) if case.before == "added" else x


def one_kernel(chip: str, case: Case, pick: Callable[[int], int]) -> tuple[Result, float]:
    """By one of the tiles, of which the best comes first; and how far from what it is step by step."""
    rng = np.random.default_rng(5)
    x = random(rng, "float16", case.images, case.channels, case.rows, case.columns)
    others = {name: random(rng, "float16", *shape) for name, shape in _shapes(case).items()}
    w = (random(rng, "float16", case.outputs, case.channels, 1, 1) / 4).astype(np.float16)
    inputs: dict[str, Any] = {"x": x, **others, "w": packed(w, 1)}
    wide = {name: each.astype(np.float64) for name, each in others.items()}
    of_channels = {name: each.reshape(1, -1, 1, 1) if each.ndim == 1 else each for name, each in wide.items()}
    made = x.astype(np.float64)
    if case.before:
        made = made + of_channels["s"] if case.before == "added" else made * of_channels["s"]
    made = made + of_channels["t"] if case.before == "scaled" else made
    activate, activated = ACTIVATIONS[case.activated]
    behind, behind_of = ACTIVATIONS[case.behind]
    expected = convolved(activated(made), w.astype(np.float64), (1, 1), (0,) * 4, (1, 1), 1)
    if case.bias:
        inputs["b"] = random(rng, "float32", case.outputs)
        expected = expected + inputs["b"][:, None, None]

    def define(*given: te.Tensor) -> te.Tensor:
        source, *rest = given
        named = dict(zip((*others, "w", "b"), rest, strict=False))
        function = activate or (lambda v: v)

        def element(*i: Any) -> Any:
            return function(_before(case, source(*i), named, lambda axis: i[axis]))

        stage = te.compute(x.shape, element, "before") if case.before or activate else source
        sizes = {"channels": case.channels, "outputs": case.outputs, "kernel": (1, 1)}
        windows: dict[str, Any] = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1)}
        result = convolution(stage, named["w"], *([named["b"]] if case.bias else []), **sizes, **windows)
        return te.compute(result.shape, lambda *i: behind(result(*i)), "behind") if behind else result

    result = run(by_cost(prepared.space, pick), chip, inputs, define)
    # What is cut off is as far off as the sums were.
    return result, float(np.abs(result.output - behind_of(expected)).max() / max(np.abs(expected).max(), 0.1))


def check(seed: int, chip: str) -> Outcome:
    """The first of the seed's convolutions that has a tile on the chip."""

    def draw(source: Random) -> Drawn:
        case = _draw(source)
        return Drawn(str(tuple(case)), "of a map made on the way", lambda pick: one_kernel(chip, case, pick))

    return check_first(seed, chip, draw, TOLERANCE)


def _draw(source: Random) -> Case:
    places = source.choice((1, 1, 2, 3)), source.choice(CHANNELS), source.choice(ROWS), source.choice(COLUMNS)
    before = source.choice(("scaled", "scaled", "of images", "added", ""))
    activations = [source.choice(("relu", *ACTIVATIONS)) for _ in range(2)]
    return Case(*places, source.choice(OUTPUTS), before, activations[0], source.random() < 0.8, activations[1])
