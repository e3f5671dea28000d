"""Attention that divides its results by the sums of its weights, not every weight.

    weights = powers / sums          result = powers @ values
    result = weights @ values   ->   ... = ... result / sums ...

Results are fewer than weights. In fp16 the powers, which are at most one, are kept as the product reads them.

TVM moves stages along trees only, and sums would then lead to the result on two ways. So while stages are moved,
results are divided by a buffer that nobody writes, which becomes that of the sums once they stand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import ir, s_tir, tirx

from compiler.tiling import cube
from compiler.tiling.masters import Master, masters_of
from compiler.tiling.schedule import schedule_of
from compiler.tir.products import operands_of
from compiler.tir.sblocks import block_with, in_other_buffers
from compiler.tir.structure import structural_map, structural_walk

NARROW = "float16"  # its rounding of sums is as fine as that of weights
LONGEST = 1 << 15  # a sum of as many ones is still a number in fp16
LATE = "late_divisor"


@dataclass(frozen=True)
class Prepared:
    """An attention to be scheduled, what ends it then, and the name of a stage that there will not be at its end."""

    func: Any
    finish: Callable[[Any], Any] = lambda scheduled: scheduled
    vanishing: str = ""


def prepare(func: Any) -> Prepared:
    """The attention with divided results; the same where it is of another form.

    1. The weights are a quotient whose divisor has one value for all keys of a query.
    2. Nothing but the second product reads them, and what reads that product computes element by element.
    """
    sch = schedule_of(func)
    values = masters_of(sch)[1]
    found = _Quotient.of(sch, values)
    if found is None:
        return Prepared(func)
    keys = max(values.extents[axis] for axis in values.axes("k"))
    late = tirx.decl_buffer([int(n) for n in found.divisor.source.shape], found.divisor.source.dtype, LATE, layout=None)
    divided = structural_map(func.body, (s_tir.SBlock, lambda block: found.divided(block, late)))
    ready = _narrowed(func.with_body(divided), found, keys)
    alike = ready is not None or str(found.powers.dtype) == str(found.weights.dtype)
    return Prepared(
        func.with_body(divided) if ready is None else ready,
        lambda scheduled: _finished(scheduled, found.name),
        found.name if alike else "",
    )


@dataclass
class _Quotient:
    """The stage that divides: what, by what, and where the result of the second product has its divisor."""

    name: str
    weights: Any
    powers: Any
    divisor: Any  # the load
    product: Any  # its buffer
    readers: list[str]
    axes: dict[Any, int]  # variables of the divisor's indices, and which index of the product's result each is
    still: dict[Any, Any]  # those along axes of one, and where these are read

    @staticmethod
    def of(sch: Any, values: Master) -> _Quotient | None:
        block = sch.get(values.block)
        a, _ = operands_of(block)
        makers = [
            maker for maker in sch.get_producers(values.block) if sch.get(maker).writes[0].source.same_as(a.source)
        ]
        readers = [sch.get(reader) for reader in sch.get_consumers(values.block)]
        if not makers or not readers or len(sch.get_consumers(makers[0])) != 1 or not all(map(_is_parallel, readers)):
            return None
        stage = sch.get(makers[0])
        own = [axis.var for axis in stage.iter_vars]
        quotient = _uncast(stage.body.value) if isinstance(stage.body, tirx.BufferStore) else None
        if not isinstance(quotient, tirx.Div) or not all(
            isinstance(x, ir.TensorLoad) for x in (quotient.a, quotient.b)
        ):
            return None
        if not _are(quotient.a.indices, own) or not _are(stage.body.indices, own) or stage.init is not None:
            return None
        axes, still = {}, {}
        for variable in _variables(quotient.b.indices):
            of_a = a.indices[next(i for i, var in enumerate(own) if var.same_as(variable))]
            place = [i for i, index in enumerate(block.body.indices) if index.same_as(of_a)]
            if isinstance(of_a, tirx.IntImm):
                still[variable] = of_a
                continue
            if not isinstance(of_a, tirx.Var) or not place:
                return None
            axes[variable] = place[0]
        names = [reader.name_hint for reader in readers]
        powers, weights = quotient.a.source, stage.body.buffer
        return _Quotient(stage.name_hint, weights, powers, quotient.b, block.body.buffer, names, axes, still)

    def divided(self, block: Any, late: Any) -> Any:
        """The block with its loads of the product divided; the outermost one with the late divisor."""
        if block.name_hint == "root":
            return block_with(block, alloc_buffers=[*block.alloc_buffers, late])
        if block.name_hint not in self.readers:
            return block
        regions = []

        def quotient(load: Any) -> Any:
            if not load.source.same_as(self.product):
                return load
            at = self.still | {variable: load.indices[place] for variable, place in self.axes.items()}
            indices = [structural_map(i, (tirx.Var, lambda var: at.get(var, var))) for i in self.divisor.indices]
            regions.append(tirx.BufferRegion(late, [ir.Range.from_min_extent(index, 1) for index in indices]))
            return load / tirx.BufferLoad(late, indices)

        body = structural_map(block.body, (ir.TensorLoad, quotient))
        return block_with(block, body=body, reads=[*block.reads, *regions[:1]])


def _finished(func: Any, name: str) -> Any:
    """The scheduled attention whose results are divided by the sums, and whose weights are not."""
    found: list[Any] = []
    structural_walk(func.body, (s_tir.SBlock, lambda block: found.append(block) if block.name_hint == name else None))
    store = found[0].body
    quotient = _uncast(store.value)
    powers, divisor = _uncast(quotient.a), _uncast(quotient.b).source
    alike = str(powers.source.dtype) == str(store.buffer.dtype)
    replaced = {store.buffer: powers.source} if alike else {}

    def of(buffer: Any) -> Any:
        return divisor if buffer.name == LATE else replaced.get(buffer, buffer)

    def block(old: Any) -> Any:
        reads, writes = ([tirx.BufferRegion(of(r.source), r.region) for r in side] for side in (old.reads, old.writes))
        body = old.body
        if old.name_hint == name:
            body = tirx.BufferStore(store.buffer, tirx.Cast(str(store.buffer.dtype), powers), store.indices)
            reads, writes = reads[:1], old.writes
        buffers = [one for one in old.alloc_buffers if one.name != LATE and one not in replaced]
        return block_with(old, body=body, reads=reads, writes=writes, alloc_buffers=buffers)

    def load(old: Any) -> Any:
        if of(old.source).same_as(old.source):
            return old
        new = tirx.BufferLoad(of(old.source), old.indices)
        return new if new.ty == old.ty else tirx.Cast(str(old.source.dtype), new)

    def without(seq: Any) -> Any:
        kept = [part for part in seq.seq if not (alike and _is_only(part, name))]
        return tirx.SeqStmt(kept) if len(kept) > 1 else kept[0]

    body = structural_map(func.body, [(tirx.SeqStmt, without), (ir.TensorLoad, load), (s_tir.SBlock, block)])
    return func.with_body(body)


def _is_only(statement: Any, name: str) -> bool:
    """Whether a statement is a nest of one block, of this name."""
    found: list[str] = []
    structural_walk(statement, (s_tir.SBlock, lambda block: found.append(block.name_hint)))
    return found == [name]


# ---- powers in fp16 ----------------------------------------------------------------------------------------------


def _narrowed(func: Any, found: _Quotient, keys: int) -> Any | None:
    """Powers and their sums in fp16, where they are of numbers in fp16 and only the weights and a sum read them."""
    if str(found.weights.dtype) != NARROW or str(found.powers.dtype) != "float32" or keys > LONGEST:
        return None
    sch = schedule_of(func)
    weights = sch.get_sblock(found.name)
    makers = [maker for maker in sch.get_producers(weights) if sch.get(maker).writes[0].source.same_as(found.powers)]
    others = [sch.get(user) for user in sch.get_consumers(makers[0]) if sch.get(user).name_hint != found.name]
    power = _in_narrow(sch.get(makers[0]).body.value)
    if power is None or len(others) != 1 or not _sums(others[0], found.powers):
        return None
    narrow = {buffer: _declared(buffer, NARROW) for buffer in (found.powers, others[0].body.buffer)}

    def rewritten(block: Any) -> Any:
        if block.name_hint == sch.get(makers[0]).name_hint:
            body = tirx.BufferStore(narrow[found.powers], power, block.body.indices)
            return in_other_buffers(block, narrow, body=body)
        if block.name_hint == others[0].name_hint:
            total = narrow[block.body.buffer]
            body = tirx.BufferStore(total, _rounded(block.body.value, narrow), block.body.indices)
            init = tirx.BufferStore(total, tirx.FloatImm(NARROW, 0.0), block.init.indices)
            return in_other_buffers(block, narrow, body=body, init=init)
        body = structural_map(block.body, (ir.TensorLoad, lambda load: _widened(load, narrow)))
        return in_other_buffers(block, narrow, body=body)

    return func.with_body(structural_map(func.body, (s_tir.SBlock, rewritten)))


def _in_narrow(value: Any) -> Any | None:
    """``exp(cast(a) - cast(b))`` of fp16 numbers as ``exp(a - b)``, which the vector unit rounds once."""
    if not isinstance(value, ir.Call) or getattr(value.op, "name", "") != "tirx.exp":
        return None
    difference = value.args[0]
    if not isinstance(difference, tirx.Sub):
        return None
    sides = [difference.a, difference.b]
    if not all(isinstance(side, tirx.Cast) and str(side.value.ty.dtype) == NARROW for side in sides):
        return None
    return tirx.exp(sides[0].value - sides[1].value)


def _sums(block: Any, powers: Any) -> bool:
    value = block.body.value
    return (
        block.init is not None
        and isinstance(value, tirx.Add)
        and all(isinstance(side, ir.TensorLoad) for side in (value.a, value.b))
        and {value.a.source, value.b.source} == {powers, block.body.buffer}
    )


def _declared(buffer: Any, dtype: str) -> Any:
    return tirx.decl_buffer([int(n) for n in buffer.shape], dtype, buffer.name, layout=None)


def _rounded(value: Any, narrow: dict[Any, Any]) -> Any:
    """A value whose loads all are of narrow buffers, in their type."""
    if isinstance(value, ir.TensorLoad):
        return tirx.BufferLoad(narrow[value.source], value.indices)
    return _rounded(value.a, narrow) + _rounded(value.b, narrow)


def _widened(load: Any, narrow: dict[Any, Any]) -> Any:
    if load.source not in narrow:
        return load
    return tirx.Cast("float32", tirx.BufferLoad(narrow[load.source], load.indices))


def _uncast(value: Any) -> Any:
    return value.value if isinstance(value, tirx.Cast) else value


def _is_parallel(block: Any) -> bool:
    return isinstance(block.body, tirx.BufferStore) and all(
        int(axis.iter_type) != cube.REDUCED for axis in block.iter_vars
    )


def _are(indices: Any, variables: list[Any]) -> bool:
    return len(indices) == len(variables) and all(
        index.same_as(variable) for index, variable in zip(indices, variables, strict=True)
    )


def _variables(indices: Any) -> list[Any]:
    found: list[Any] = []
    for index in indices:
        structural_walk(index, (tirx.Var, found.append))
    return found
