"""Sums of what is linear in the same map, as one convolution: branches that a network was trained with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.frontend.affine_folding import Affine, elements, is_known, with_terms
from compiler.frontend.graph import Array, Call, GraphBuilder

_KERNEL_AXES = (1, 3, 4)  # of packed weights: [group, kd, c1, kh, kw, outputs, c0]


def summed(graph: GraphBuilder, first: Call, second: Call, add: Call) -> Call | None:
    """``add`` of what both calls make as one convolution, where

        convolution(x, w1) + convolution(x, w2)     # w2's elements see what some of w1's do
        convolution(x, w) + (x * factor + shift)    # as an element of w sees what is at its own place

    The kernel of the sum is the larger one.
    """
    large, small = sorted((first, second), key=lambda call: is_known(call) and elements(call.operands[1]).size)[::-1]
    if not is_known(large) or add.results[0].shape != large.results[0].shape:
        return None
    found = _of_convolution(large, small) if is_known(small) else _of_affine(large, Affine.of(small))
    if found is None:
        return None
    weights, bias = found
    (_, packed, *own) = large.operands
    if own:
        bias = elements(own[0]) if bias is None else bias + elements(own[0])
    nodes = tuple(dict.fromkeys((*small.nodes, *add.nodes)))
    last = Call(add.function, add.operands, add.results, nodes)
    return with_terms(graph, large, elements(packed) + weights, bias, last)


def _of_convolution(large: Call, small: Call) -> tuple[Array, Array | None] | None:
    """The weights of a smaller convolution among those of a larger one, and its bias."""
    ours, theirs = large.attributes, small.attributes
    weights, (x, packed, *bias) = elements(large.operands[1]), small.operands
    alike = all(ours[name] == theirs[name] for name in ("strides", "channels", "outputs"))
    if not alike or x is not large.operands[0] or packed.shape[0] != weights.shape[0]:
        return None
    places = [
        [_place(offset, *side) for offset in _offsets(*other)]
        for side, other in zip(_axes(large), _axes(small), strict=True)
    ]
    if any(place is None for axis in places for place in axis):
        return None
    among = np.zeros_like(weights)
    indices: list[Sequence[int] | range] = [range(extent) for extent in weights.shape]
    for axis, found in zip(_KERNEL_AXES, places, strict=True):
        indices[axis] = [place for place in found if place is not None]
    among[np.ix_(*indices)] = elements(packed)
    return among, elements(bias[0]) if bias else None


def _of_affine(convolution: Call, affine: Affine | None) -> tuple[Array, Array | None] | None:
    """The weights of a factor for each channel among those of a convolution, and its shift."""
    weights = elements(convolution.operands[1])
    if affine is None or affine.x is not convolution.operands[0] or set(convolution.attributes["strides"]) != {1}:
        return None
    centre = [_place(0, *axis) for axis in _axes(convolution)]
    if any(place is None for place in centre):
        return None
    groups, per_group, block = weights.shape[0], weights.shape[-2], weights.shape[-1]
    output = np.arange(affine.factor.size)
    group, column = output // per_group, output % per_group
    channel = output - group * convolution.attributes["channels"]
    if channel.min() < 0 or channel.max() >= convolution.attributes["channels"]:
        return None
    depth, height, width = centre
    among = np.zeros_like(weights)
    among[group, depth, channel // block, height, width, column, channel % block] = affine.factor
    return among, np.pad(affine.shift, (0, groups * per_group - affine.shift.size))


def _axes(convolution: Call) -> list[tuple[int, int, int]]:
    """Of three axes how many elements a kernel has, how far they are apart, and how far before a place the first is."""
    attributes, rank = convolution.attributes, len(convolution.attributes["kernel"])
    own = zip(attributes["kernel"], attributes["dilations"], attributes["pads"][:rank], strict=True)
    return [(1, 1, 0)] * (3 - rank) + list(own)


def _offsets(count: int, apart: int, before: int) -> list[int]:
    return [k * apart - before for k in range(count)]


def _place(offset: int, count: int, apart: int, before: int) -> int | None:
    """Which element of an axis sees what is at an offset from a window's place."""
    offsets = _offsets(count, apart, before)
    return offsets.index(offset) if offset in offsets else None
