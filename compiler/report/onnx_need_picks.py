"""What nodes need that pick elements by indices, or put them at places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.report.boxes import Box, Need, whole
from compiler.report.onnx_facts import Node


def gather(node: Node, out: Box) -> list[Need]:
    """Rows by numbers that are known; of a table by numbers that are not, nothing is known to be needed."""
    value, indices = node.inputs
    if value is None or value.shape is None or indices is None or indices.shape is None:
        return [None, None]
    axis, rank = int(node.attributes.get("axis", 0)) % len(value.shape), len(indices.shape)
    numbers = node.constants.get(indices.name)
    found = Box(out.axes[axis : axis + rank])
    if numbers is None:
        return [None, None if indices.constant else found]
    if not found.is_whole:
        return [None, None]
    taken = np.zeros(value.shape[axis], bool)
    taken[np.asarray(numbers).reshape(-1)] = True
    return [Box((*out.axes[:axis], taken, *out.axes[axis + rank :])), None]


def gather_elements(node: Node, out: Box) -> list[Need]:
    """Which are picked is known to the indices, each of which is for one element."""
    return [None, out]


def grid_sample(node: Node, out: Box) -> list[Need]:
    return [None, whole(node.inputs[1]) if out.is_whole else None]


def scatter_nd(node: Node, out: Box) -> list[Need]:
    """What is kept where it is known which is; updates that no others may take the place of."""
    data, indices, updates = node.inputs
    if not out.is_whole or data is None or data.shape is None or indices is None:
        return [None, None, None]
    places = None if whole(indices) is None or indices.constant else whole(indices)
    if node.attributes.get("reduction", b"none") != b"none":
        return [whole(data), places, whole(updates)]
    known = node.constants.get(indices.name)
    if known is None:
        return [None, places, None]
    tuples = np.asarray(known).reshape(-1, np.shape(known)[-1])
    extents = data.shape[: tuples.shape[1]]
    kept = np.ones(extents, bool)
    kept[tuple(tuples.T)] = False
    once = int((~kept).sum()) == len(tuples)
    return [_slices_of(kept, data.shape), None, whole(updates) if once else None]


def scatter_elements(node: Node, out: Box) -> list[Need]:
    """What says where; and what is combined with others. Else it may be the place of another."""
    data, indices, updates = node.inputs
    if not out.is_whole or indices is None:
        return [None, None, None]
    is_combined = node.attributes.get("reduction", b"none") != b"none"
    places = None if indices.constant else whole(indices)
    return [whole(data), places, whole(updates)] if is_combined else [None, places, None]


def col2im(node: Node, out: Box) -> list[Need]:
    """Every element of every window, unless some lie in what is cut off."""
    is_cut = any(node.attributes.get("pads", ()))
    return [whole(node.inputs[0]) if out.is_whole and not is_cut else None, *[None] * (len(node.inputs) - 1)]


def _slices_of(kept: np.ndarray, shape: Sequence[int]) -> Need:
    """Of what is kept along the first axes, the slices along one of these that are whole: of the axis with most."""
    found: Need = None
    for axis in range(kept.ndim):
        others = tuple(other for other in range(kept.ndim) if other != axis)
        axes: list[np.ndarray] = [np.ones(n, bool) for n in shape]
        axes[axis] = np.asarray(kept.all(axis=others))
        box = Box(tuple(axes))
        found = box if found is None or box.size > found.size else found
    return found
