"""Reductions of several values at once as one of each, where one does not need the others or says where another is.

    s[i], q[i] = reduce((x, x * x), (s + x, q + x * x))  ->  s[i] = sum of x;  q[i] = sum of x * x
    at[i], top[i] = reduce((k, x), "the larger")         ->  top[i] = max of x
                                                             at[i] = min of (k if x == top[i] else the last place)

1. Each value is stored once, of what it was and of elements that are not reduced; or it is the place of another one.
2. A place is kept or replaced by comparisons of both values, and places, alone: as those of a maximum or minimum say
   that is found first or last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, sym, tirx
from tvm.s_tir import SBlock
from tvm_ffi import structural_equal

from compiler.tir.made_stages import stages_of, with_nests
from compiler.tir.rewriter import substitute
from compiler.tir.sblocks import block_with, innermost, point
from compiler.tir.structure import structural_map, structural_walk

_ORDERS = {
    tirx.LT: lambda sign: sign < 0,
    tirx.LE: lambda sign: sign <= 0,
    tirx.GT: lambda sign: sign > 0,
    tirx.GE: lambda sign: sign >= 0,
    tirx.EQ: lambda sign: sign == 0,
    tirx.NE: lambda sign: sign != 0,
}


@dataclass(frozen=True)
class _Value:
    """One of the values: what it begins with, and becomes with each element."""

    buffer: Any
    indices: Sequence[Any]
    first: Any
    value: Any

    @property
    def load(self) -> Any:
        return tirx.BufferLoad(self.buffer, self.indices)

    def needs(self) -> list[Any]:
        found: list[Any] = []
        structural_walk(self.value, (ir.TensorLoad, lambda load: found.append(load.source)))
        return found


def reductions_apart(func: Any) -> Any:
    """The function of TE with such reductions in several stages, of which nobody makes one that nobody reads."""
    nests, is_changed = list[Any](), False
    for nest in stages_of(func):
        blocks = [realize.block for realize in innermost(nest)]
        parts = _parts(blocks[0]) if len(blocks) == 1 else None
        if parts is None:
            nests.append(nest)
            continue
        is_changed = True
        nests += [_with_own_axes(structural_map(nest, (SBlock, lambda _, part=part: part))) for part in parts]
    return _without_unread(func, nests) if is_changed else func


def reduces_several(func: Any) -> str | None:
    """The name of a stage that still does."""
    blocks = [realize.block for nest in stages_of(func) for realize in innermost(nest)]
    return next((str(block.name_hint) for block in blocks if len(block.writes) > 1 and block.init is not None), None)


def _without_unread(func: Any, nests: list[Any]) -> Any:
    kept, read = list[Any](), list[Any](func.params)
    for nest in reversed(nests):
        block = next(innermost(nest)).block
        if any(block.writes[0].source.same_as(buffer) for buffer in read):
            kept.insert(0, nest)
            read += [region.source for region in block.reads]
    buffers = [buffer for buffer in func.body.block.alloc_buffers if any(buffer.same_as(one) for one in read)]
    return with_nests(func, kept, buffers)


def _with_own_axes(nest: Any) -> Any:
    """A nest with loops and axes that no other one has."""
    defined: list[Any] = []
    structural_walk(nest, [(tirx.For, lambda loop: defined.append(loop.loop_var)),
                           (tirx.IterVar, lambda axis: defined.append(axis.var))])  # fmt: skip
    own = {var: tirx.Var(var.name, str(var.ty)) for var in defined}
    return structural_map(nest, (tirx.Var, lambda var: own.get(var, var)))


def _parts(block: Any) -> list[Any] | None:
    """A block for each value, those that others need first."""
    values = _values(block)
    if values is None:
        return None
    alone, places = list[_Value](), list[Any]()
    for value in values:
        others = [other for other in values if other is not value]
        if not any(source.same_as(other.buffer) for source in value.needs() for other in others):
            alone.append(value)
    for value in values:
        if value not in alone:
            found = next((made for other in alone if (made := _place(block, value, other)) is not None), None)
            if found is None:
                return None
            places.append(found)
    return [_block(block, one, _plain(one)) for one in alone] + places


def _values(block: Any) -> list[_Value] | None:
    if not isinstance(block.body, tirx.SeqStmt) or not isinstance(block.init, tirx.SeqStmt):
        return None
    bound, found = dict[Any, Any](), list[_Value]()
    for statement in block.body.seq:
        if isinstance(statement, tirx.Bind):
            bound[statement.var] = substitute(statement.value, bound)
        elif isinstance(statement, tirx.BufferStore) and len(found) < len(block.init.seq):
            first = block.init.seq[len(found)]
            if not isinstance(first, tirx.BufferStore) or not first.buffer.same_as(statement.buffer):
                return None
            value = substitute(statement.value, bound)
            found.append(_Value(statement.buffer, list(statement.indices), first.value, value))
        else:
            return None
    return found if len(found) == len(block.init.seq) else None


def _block(block: Any, one: _Value, value: Any, first: Any = None) -> Any:
    needed: list[Any] = []
    structural_walk(value, (ir.TensorLoad, needed.append))
    reads = [region for region in block.reads if any(region.source.same_as(load.source) for load in needed)]
    made = [load for load in needed if any(load.source.same_as(each.source) for each in block.writes)]
    reads += [point(load.source, load.indices) for load in made if not load.source.same_as(one.buffer)][:1]
    return block_with(
        block,
        name_hint=str(one.buffer.name).replace(".", "_"),  # as TE calls several of one stage
        reads=reads,
        writes=[region for region in block.writes if region.source.same_as(one.buffer)],
        init=tirx.BufferStore(one.buffer, one.first if first is None else first, one.indices),
        body=tirx.BufferStore(one.buffer, value, one.indices),
    )


# ---- places ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Choice:
    """What was, or an element instead of it, by a condition that keeps what was."""

    element: Any
    keeps: Any
    is_negated: bool

    @staticmethod
    def of(value: _Value) -> _Choice | None:
        chosen = value.value
        if isinstance(chosen, tirx.Max | tirx.Min):
            sides = [side for side in (chosen.a, chosen.b) if not structural_equal(side, value.load)]
            if len(sides) != 1:
                return None
            compared = tirx.GE if isinstance(chosen, tirx.Max) else tirx.LE
            return _Choice(sides[0], compared(value.load, sides[0]), is_negated=False)
        if not isinstance(chosen, tirx.Select):
            return None
        if structural_equal(chosen.true_value, value.load):
            return _Choice(chosen.false_value, chosen.condition, is_negated=False)
        if structural_equal(chosen.false_value, value.load):
            return _Choice(chosen.true_value, chosen.condition, is_negated=True)
        return None


def _plain(value: _Value) -> Any:
    """A maximum or minimum that is written as a choice as such."""
    choice = _Choice.of(value)
    if choice is None:
        return value.value
    kept = [_holds(choice.keeps, [(value.load, choice.element)], (sign,)) for sign in (1, -1)]
    if None in kept or kept[0] == kept[1]:
        return value.value
    picked = tirx.max if kept[0] != choice.is_negated else tirx.min
    return picked(value.load, choice.element)


def _place(block: Any, place: _Value, best: _Value) -> Any | None:
    """The block that finds the place of a best value, when that is known (2)."""
    where, what = _Choice.of(place), _Choice.of(best)
    if where is None or what is None or "int" not in str(place.buffer.dtype):
        return None
    pairs = [(best.load, what.element), (place.load, where.element)]

    def kept(choice: _Choice, of_best: int, of_place: int) -> bool | None:
        found = _holds(choice.keeps, pairs, (of_best, of_place))
        return None if found is None else found != choice.is_negated

    larger = kept(what, 1, 1)
    cases = [(choice, s, p) for choice in (what, where) for s in (-1, 1) for p in (-1, 1)]
    if larger is None or any(kept(choice, s, p) is not ((s == 1) is larger) for choice, s, p in cases):
        return None
    ties = (kept(where, 0, -1), kept(where, 0, 1))
    reduced = [axis for axis in block.iter_vars if axis.iter_type == tirx.IterVar.CommReduce]
    in_turn = len(reduced) == 1 and _is_axis(where.element, reduced[0].var)
    if ties == (True, False) or (ties == (True, True) and in_turn):
        pick, other = tirx.min, _last(block, where.element)
    elif ties == (False, True) or (ties == (False, False) and in_turn):
        pick, other = tirx.max, tirx.min_value(str(place.buffer.dtype))
    else:
        return None
    here = tirx.Select(tirx.EQ(what.element, best.load), where.element, other)
    return _block(block, place, pick(place.load, here), other)


def _is_axis(value: Any, axis: Any) -> bool:
    return bool((value.value if isinstance(value, tirx.Cast) else value).same_as(axis))


def _last(block: Any, place: Any) -> Any:
    """The greatest place there is, where that is known: what is none is no worse than it."""
    dtype, analyzer = str(place.ty), sym.Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    greatest = int(analyzer.const_int_bound(place).max_value)
    return tirx.const(greatest, dtype) if greatest < 1 << 31 else tirx.max_value(dtype)


def _holds(condition: Any, pairs: Sequence[tuple[Any, Any]], signs: Sequence[int]) -> bool | None:
    """Whether a condition does, by the sign of the difference of what was and the element, of each pair."""
    if isinstance(condition, tirx.And | tirx.Or):
        sides = [_holds(side, pairs, signs) for side in (condition.a, condition.b)]
        if None in sides:
            return None
        return all(sides) if isinstance(condition, tirx.And) else any(sides)
    if isinstance(condition, tirx.Not):
        inner = _holds(condition.a, pairs, signs)
        return None if inner is None else not inner
    if type(condition) not in _ORDERS:
        return None
    for (was, element), sign in zip(pairs, signs, strict=True):
        if structural_equal(condition.a, was) and structural_equal(condition.b, element):
            return bool(_ORDERS[type(condition)](sign))
        if structural_equal(condition.a, element) and structural_equal(condition.b, was):
            return bool(_ORDERS[type(condition)](-sign))
    return None
