"""Legality rules that rows share. A rule's docstring is the diagnostic; it is true where the operands are legal."""

from __future__ import annotations

import numpy as np

from compiler.isa.dtypes import FLOATS, INTS
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
    return all(_same_elements(s, t) or _apart(s, t) for s in sources for t in targets)


def _same_elements(a: View, b: View) -> bool:
    return (a.address, a.shape, a.strides, a.dtype.itemsize) == (b.address, b.shape, b.strides, b.dtype.itemsize)


def _apart(a: View, b: View) -> bool:
    if a.memory != b.memory or a.address + a.extent_bytes <= b.address or b.address + b.extent_bytes <= a.address:
        return True
    return not np.intersect1d(touched_bytes(a), touched_bytes(b)).size


def sources_apart_from_destinations(args: Args) -> bool:
    """sources and destinations must not overlap: this instruction writes elements before it has read all others"""
    targets = [v for v in args.views if "w" in v.role]
    sources = [v for v in args.views if v.role == "r"]
    return all(_apart(s, t) for s in sources for t in targets)


def destinations_apart(args: Args) -> bool:
    """the destinations of one instruction must not overlap one another"""
    targets = [v for v in args.views if "w" in v.role]
    return all(_apart(a, b) for i, a in enumerate(targets) for b in targets[:i])


def inner_extent_fills_blocks(args: Args) -> bool:
    """n0 must be a whole number of 32-byte blocks of the source"""
    return int(args.n0) % args.dtype_of("@dtype").fractal_k == 0


def inner_extent_is_multiple_of_2(args: Args) -> bool:
    """n0 must be a multiple of 2: one row holds two runs of equal length"""
    return int(args.n0) % 2 == 0


def inner_extent_is_multiple_of_4(args: Args) -> bool:
    """n0 must be a multiple of 4: one row holds four runs of equal length"""
    return int(args.n0) % 4 == 0


def inner_extent_is_multiple_of_32(args: Args) -> bool:
    """n0 must be a multiple of 32: groups of 32 elements are sorted"""
    return int(args.n0) % 32 == 0


def axis_is_in_the_rank(args: Args) -> bool:
    """the axis must be one of the iteration shape: n1 needs rank 2d or 3d, n2 needs 3d"""
    return int(args.axis[1:]) < len(args.shape)


def conversion_exists(args: Args) -> bool:
    """source and destination type must differ, and int64 converts to and from int32 only"""
    pair = {args.src, args.to}
    return len(pair) == 2 and ("int64" not in pair or "int32" in pair)


def rounding_has_a_use(args: Args) -> bool:
    """a rounding other than .rne applies to conversions from a float to an integer type only"""
    return args.round == "rne" or (args.src in FLOATS and args.to in INTS)


def destination_is_narrower(args: Args) -> bool:
    """the destination type must be narrower than the source type: vconv widens"""
    return args.dtype_of("@to").itemsize < args.dtype_of("@src").itemsize


def reflected_padding_fits(args: Args) -> bool:
    """reflection needs more rows than top and bottom and more columns than left and right"""
    rows, columns = max(args.top, args.bottom), max(args.left, args.right)
    return bool(args.mode != "reflect" or (rows < args.n1 and columns < args.n0))


def k_is_at_most_n0(args: Args) -> bool:
    """k must be at most n0: a row has no more elements to choose from"""
    return int(args.k) <= int(args.n0)


VECTOR_RULES = (destination_strides_differ, sources_overlap_wholly_or_not)
# Moves that read one place and write another: nothing may be in place.
MOVE_RULES = (destination_strides_differ, sources_apart_from_destinations)
