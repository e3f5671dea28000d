"""Whether a nest may run in another order: what it writes must not be what another iteration reads."""

from __future__ import annotations

from compiler.emission.nest import Access, Nest
from compiler.emission.operands import distance


def order_matters(nest: Nest, source: Access) -> bool:
    """Whether an iteration may read, through ``source``, what another iteration writes.

    It cannot where both are the same place in every iteration, or where what is read and what is written over the
    whole nest lie apart.
    """
    target = nest.target
    if not source.buffer.same_as(target.buffer) or source.same_place(target):
        return False
    if not (source.is_affine and target.is_affine):
        return True
    apart = distance(target, source)
    if apart is not None:
        low, high = span(source)
        first, last = span(target)
        return not (apart + low > last or apart + high < first)
    analyzer = source.surroundings.analyzer
    low, high = span(source)
    first, last = span(target)
    difference = source.base - target.base
    return not (analyzer.can_prove(difference > last - low) or analyzer.can_prove(difference < first - high))


def span(access: Access) -> tuple[int, int]:
    """The least and the greatest element an affine access touches, counted from its first iteration's."""
    steps = [(c or 0) * (loop.bound - 1) for c, loop in zip(access.coefficients, access.loops, strict=True)]
    return sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps)
