"""Legality rules that rows share. A rule's docstring is the diagnostic; it is true where the operands are legal."""

from __future__ import annotations

import numpy as np

from compiler.isa.model import Args, View, touched_bytes


def destination_strides_differ(args: Args) -> bool:
    """no two elements of a destination may share an address: a stride of zero is legal for sources only"""
    return all(_elements_are_distinct(view) for view in args.views if "w" in view.role)


def _elements_are_distinct(view: View) -> bool:
    loops = sorted((s, n) for n, s in zip(view.shape, view.strides, strict=True) if n > 1)
    covered = 1
    for stride, count in loops:
        if stride < covered:
            return False
        covered = stride * (count - 1) + covered
    return True


def sources_overlap_wholly_or_not(args: Args) -> bool:
    """a source that overlaps the destination must be the destination itself: same address, shape and strides"""
    targets = [v for v in args.views if "w" in v.role]
    sources = [v for v in args.views if v.role == "r"]
    return all(_apart(s, t) or _same_elements(s, t) for s in sources for t in targets)


def _same_elements(a: View, b: View) -> bool:
    return (a.address, a.shape, a.strides, a.dtype.itemsize) == (b.address, b.shape, b.strides, b.dtype.itemsize)


def _apart(a: View, b: View) -> bool:
    if a.memory != b.memory or a.address + a.extent_bytes <= b.address or b.address + b.extent_bytes <= a.address:
        return True
    return not np.intersect1d(touched_bytes(a), touched_bytes(b)).size


VECTOR_RULES = (destination_strides_differ, sources_overlap_wholly_or_not)
