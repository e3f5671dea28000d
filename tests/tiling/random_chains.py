"""Random rows of convolutions as one kernel each, run free of hazards, against numpy in float64.
Every fourth seed has a pair that is added instead, every eighth one with what makes its map, every eighth one with what
pools its result, every eighth products of matrices.

Images of one row or many, channels that fill no block, groups, strides, dilations, padding on either side, and what
activates between them; of all tiles that the template has, the best or any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from tvm import te

from ci.random_cases import Outcome
from compiler.operators.convolution import convolution
from compiler.tiling import chain
from tests.tiling import random_pairs, random_pooled, random_prepared, random_product_rows
from tests.tiling.activations import ACTIVATIONS
from tests.tiling.drawn import Drawn, check_first
from tests.tiling.kernels import Result, by_cost, made, random, run
from tests.tiling.test_convolution import convolved, packed

TOLERANCE = 3e-3
ROWS, COLUMNS = (1, 1, 2, 3, 5, 7, 9, 12, 17, 23), (1, 3, 5, 7, 8, 9, 11, 16, 20, 31)
CHANNELS, MORE_CHANNELS = (16, 20, 24, 32, 40, 48), (64, 96)  # the smallest chip has no room for more


class Layer(NamedTuple):
    """A convolution; what is before it activates what it reads, but for the first."""

    outputs: int
    channels: int  # of a group
    rows: int  # of the kernel
    columns: int
    group: int
    stride: int
    pad: int
    dilation: int = 1
    before: str = "relu"
    kept: bool = False  # whether what it reads is a result, too, to which something is added

    @property
    def is_single(self) -> bool:
        """Whether windows are single elements, side by side."""
        return (self.rows, self.columns, self.stride, self.pad) == (1, 1, 1, 0)


def one_kernel(
    chip: str, image: Sequence[int], layers: Sequence[Layer], pick: Callable[[int], int]
) -> tuple[Result, float]:
    """All of them by one of the tiles, of which the best comes first; and how far from what they are apart."""
    rng = np.random.default_rng(3)
    inputs = {"x": random(rng, "float16", *image)}
    whole, expected = inputs["x"].astype(np.float64), list[np.ndarray]()
    for at, layer in enumerate(layers):
        w = random(rng, "float16", layer.outputs, layer.channels, layer.rows, layer.columns)
        w = (w / 4).astype(np.float16)
        inputs |= {f"w{at}": packed(w, layer.group), f"b{at}": random(rng, "float32", layer.outputs)}
        if layer.kept:
            inputs[f"s{at}"] = random(rng, "float16", *whole.shape)
            whole = whole.astype(np.float16).astype(np.float64) + inputs[f"s{at}"]
        if at:
            whole = ACTIVATIONS[layer.before][1](whole).astype(np.float16).astype(np.float64)
        if layer.kept:
            expected.append(whole)
        windows = (layer.stride,) * 2, (layer.pad,) * 4, (layer.dilation,) * 2
        whole = convolved(whole, w.astype(np.float64), *windows, layer.group)
        whole = whole + inputs[f"b{at}"][:, None, None]
    expected.append(whole)

    def define(x: te.Tensor, *others: te.Tensor) -> list[te.Tensor]:
        left, results = iter(others), list[te.Tensor]()
        for at, layer in enumerate(layers):
            weights = next(left), next(left)
            if layer.kept:
                x = added(x, next(left), f"sum{at}")
            activate = ACTIVATIONS[layer.before][0]
            if at and activate is not None:
                x = made(x, activate, f"activation{at}")
            if layer.kept:
                results.append(x)
            windows = {"strides": (layer.stride,) * 2, "pads": (layer.pad,) * 4, "dilations": (layer.dilation,) * 2}
            sizes = {"channels": layer.channels, "outputs": layer.outputs, "kernel": (layer.rows, layer.columns)}
            x = convolution(x, *weights, **sizes, **windows)
        return [*results, x]

    result = run(by_cost(chain.space, pick), chip, inputs, define)
    errors = [
        np.abs(one - whole).max() / max(np.abs(whole).max(), 0.1)
        for one, whole in zip(result.outputs, expected, strict=True)
    ]
    return result, float(max(errors))


def added(x: te.Tensor, other: te.Tensor, name: str) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i) + other(*i), name)


# ---- random ones -------------------------------------------------------------------------------------------------


def check(seed: int, chip: str) -> Outcome:
    """The first of the seed's rows of convolutions that has a tile on the chip."""
    if seed % 4 == 3:
        return random_pairs.check(seed, chip)
    if seed % 8 == 1:
        return random_prepared.check(seed, chip)
    if seed % 8 == 6:
        return random_pooled.check(seed, chip)
    if seed % 8 == 5:
        return random_product_rows.check(seed, chip)

    def draw(source: Random) -> Drawn:
        image, layers = _draw(source, CHANNELS if chip == "tiny" else CHANNELS + MORE_CHANNELS)
        said = f"{image}, {[tuple(layer) for layer in layers]}"
        kind = f"of {len(layers)} convolutions"
        return Drawn(said, kind, lambda pick: one_kernel(chip, image, layers, pick))

    return check_first(seed, chip, draw, TOLERANCE)


def _draw(source: Random, channels: Sequence[int]) -> tuple[tuple[int, ...], list[Layer]]:
    while True:
        image = (source.choice((1, 1, 2)), source.choice(channels), source.choice(ROWS), source.choice(COLUMNS))
        layers, shape = list[Layer](), image[1:]
        for _ in range(source.choice((2, 3, 3))):
            layers.append(_layer(source, shape[0], channels))
            shape = _behind(layers[-1], shape)
            if min(shape) < 1:
                break
        else:
            return image, [_kept(source, layers, at) for at in range(len(layers))]


def _kept(source: Random, layers: Sequence[Layer], at: int) -> Layer:
    may_be = at > 0 and all(layer.is_single for layer in layers[at:])
    return layers[at]._replace(kept=may_be and source.random() < 0.5)


def _layer(source: Random, given: int, channels: Sequence[int]) -> Layer:
    rows = source.choice((1, 1, 2, 3, 3, 5))
    columns = source.choice((rows, rows, 1, 2, 3))
    groups = [group for group in (2, 3, 4, 6) if given % group == 0]
    group = source.choice(groups) if groups and source.random() < 0.2 else 1
    outputs = source.choice(channels) if group == 1 else group * source.choice((16, 16, 32))
    stride, dilation = source.choice((1, 1, 1, 2, 3)), source.choice((1, 1, 1, 2))
    pad = min(source.choice((0, 0, 1, rows // 2)), max(0, min(rows, columns) - 1))
    before = source.choice(("relu", "relu", *ACTIVATIONS))
    return Layer(outputs, given // group, rows, columns, group, stride, pad, dilation, before)


def _behind(layer: Layer, shape: Sequence[int]) -> tuple[int, int, int]:
    sizes = [
        (extent + 2 * layer.pad - (kernel - 1) * layer.dilation - 1) // layer.stride + 1
        for extent, kernel in zip(shape[1:], (layer.rows, layer.columns), strict=True)
    ]
    return layer.outputs, sizes[0], sizes[1]
