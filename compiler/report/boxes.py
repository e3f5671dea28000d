"""Parts of tensors: for every axis, which of its positions."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from compiler.report.onnx_facts import Value


@dataclass(frozen=True)
class Box:
    axes: tuple[np.ndarray, ...]  # of each axis, which positions

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(int(axis.sum()) for axis in self.axes)

    @property
    def size(self) -> int:
        return prod(self.counts)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self.axes)

    @property
    def is_whole(self) -> bool:
        return all(bool(axis.all()) for axis in self.axes)


Need: TypeAlias = Box | None


def whole(value: Value | None) -> Need:
    if value is None or value.shape is None:
        return None
    return Box(tuple(np.ones(n, bool) for n in value.shape))


def merged(one: Need, other: Need) -> Need:
    """A box within the union: of boxes that differ along one axis all, of others the larger."""
    if one is None or other is None:
        return one or other
    differ = [i for i, (a, b) in enumerate(zip(one.axes, other.axes, strict=True)) if not np.array_equal(a, b)]
    if len(differ) <= 1:
        axes = tuple(a | b for a, b in zip(one.axes, other.axes, strict=True))
        return Box(axes)
    return max(one, other, key=lambda box: box.size)


def broadcast(value: Value | None, out: Box, drop: int = 0) -> Need:
    """Of a value that is broadcast to the box's shape, its last ``drop`` axes not counted."""
    if value is None or value.shape is None:
        return None
    shape = value.shape[: len(value.shape) - drop]
    axes = out.axes[: len(out.axes) - drop]
    if len(shape) > len(axes):
        return None
    aligned = axes[len(axes) - len(shape) :] if shape else ()
    return Box(
        tuple(
            axis if len(axis) == size else np.full(size, bool(axis.any()))
            for size, axis in zip(shape, aligned, strict=True)
        )
    )
