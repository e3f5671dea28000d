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


@dataclass(frozen=True)
class Parts:
    """An attention whose stage of sums has no readers: these find what it makes only at the end."""

    func: Any
    powers: str  # the stages, by name
    summing: str
    weights: str
    sums: Any  # the buffer
    of_powers: tuple[int, ...]  # their shape

    def are_summed_as(self, block: Any) -> bool:
        """Whether another stage reduces along the same axis, to a result of the same shape."""
        read = [region.source for region in block.reads if not region.source.same_as(block.writes[0].source)]
        shapes = [tuple(int(n) for n in buffer.shape) for buffer in (*read, block.writes[0].source)]
        return shapes == [self.of_powers, tuple(int(n) for n in self.sums.shape)]

    def finish(self, scheduled: Any, sums: Any) -> Any:
        return _by_sums(_without_copies(scheduled, self.weights), sums)


def prepare(func: Any) -> Prepared:
    """The attention with divided results; the same where it is of another form.

    1. The weights are a quotient whose divisor has one value for all keys of a query.
    2. Nothing but the second product reads them, and what reads that product computes element by element.
    """
    found, divided, alike = _divided_late(func)
    if found is None:
        return Prepared(func)

    def finish(scheduled: Any) -> Any:
        undivided, sums = _undivided(scheduled, found.name)
        return _by_sums(_without_copies(undivided, found.name), sums)

    return Prepared(divided, finish, found.name if alike else "")


def prepare_in_parts(func: Any) -> Parts | None:
    """The attention with divided results whose weights are powers from the start; None where it is of another form."""
    found, divided, _ = _divided_late(_read(func))
    names = found.stages(schedule_of(divided)) if found is not None else None
    if found is None or names is None:
        return None
    undivided, sums = _undivided(divided, found.name)
    maker, summing = names
    shape = tuple(int(n) for n in found.powers.shape)
    return Parts(undivided, maker, summing, found.name, sums, shape)


def _read(func: Any) -> Any:
    """The attention with a stage behind its second product, if only one that stores it."""
    sch = schedule_of(func)
    values = masters_of(sch)[1].block
    if not sch.get_consumers(values):
        sch.cache_write(values, 0, "global")
    return sch.mod["main"]


def _divided_late(func: Any) -> tuple[_Quotient | None, Any, bool]:
    """What divides weights, the attention that divides results, too, and whether its weights are the powers."""
    sch = schedule_of(func)
    values = masters_of(sch)[1]
    found = _Quotient.of(sch, values)
    if found is None:
        return None, func, False
    keys = max(values.extents[axis] for axis in values.axes("k"))
    late = tirx.decl_buffer([int(n) for n in found.divisor.source.shape], found.divisor.source.dtype, LATE, layout=None)
    divided = structural_map(func.body, (s_tir.SBlock, lambda block: found.divided(block, late)))
    ready = _narrowed(func.with_body(divided), found, keys)
    alike = ready is not None or str(found.powers.dtype) == str(found.weights.dtype)
    return found, func.with_body(divided) if ready is None else ready, alike


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

    def stages(self, sch: Any) -> tuple[str, str] | None:
        """What makes the powers and what sums them, if the divisor is just that."""
        weights = sch.get_sblock(self.name)
        makers = [sch.get(maker) for maker in sch.get_producers(weights)]
        powers = [maker for maker in makers if maker.writes[0].source.name == self.powers.name]
        sums = [maker for maker in makers if maker.writes[0].source.name == self.divisor.source.name]
        if len(powers) != 1 or len(sums) != 1 or not _sums(sums[0], powers[0].writes[0].source):
            return None
        return str(powers[0].name_hint), str(sums[0].name_hint)

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


def _undivided(func: Any, name: str) -> tuple[Any, Any]:
    """The attention whose weights are the powers, and what these were divided by."""
    divisor: list[Any] = []

    def block(old: Any) -> Any:
        if old.name_hint != name:
            return old
        store = old.body
        quotient = _uncast(store.value)
        divisor.append(_uncast(quotient.b).source)
        powers = _uncast(quotient.a)
        alike = str(powers.source.dtype) == str(store.buffer.dtype)
        value = powers if alike else tirx.Cast(str(store.buffer.dtype), powers)
        return block_with(old, body=tirx.BufferStore(store.buffer, value, store.indices), reads=list(old.reads)[:1])

    return func.with_body(structural_map(func.body, (s_tir.SBlock, block))), divisor[0]


def _without_copies(func: Any, name: str) -> Any:
    """The attention without the stage of this name, if that only copies."""
    store = _block_of(func, name).body
    if not isinstance(store.value, ir.TensorLoad):
        return func
    replaced = {store.buffer: store.value.source}

    def block(old: Any) -> Any:
        buffers = [one for one in old.alloc_buffers if one not in replaced]
        return in_other_buffers(block_with(old, alloc_buffers=buffers), replaced)

    def without(seq: Any) -> Any:
        kept = [part for part in seq.seq if not _is_only(part, name)]
        return tirx.SeqStmt(kept) if len(kept) > 1 else kept[0]

    rules = [(tirx.SeqStmt, without), (ir.TensorLoad, lambda old: _read_from(replaced, old)), (s_tir.SBlock, block)]
    return func.with_body(structural_map(func.body, rules))


def _by_sums(func: Any, sums: Any) -> Any:
    """The attention whose results are divided by these sums, in place of the late divisor."""
    late: list[Any] = []
    structural_walk(
        func.body, (s_tir.SBlock, lambda block: late.extend(b for b in block.alloc_buffers if b.name == LATE))
    )
    replaced = dict.fromkeys(late, sums)

    def block(old: Any) -> Any:
        buffers = [one for one in old.alloc_buffers if one not in replaced]
        return in_other_buffers(block_with(old, alloc_buffers=buffers), replaced)

    rules = [(ir.TensorLoad, lambda old: _read_from(replaced, old)), (s_tir.SBlock, block)]
    return func.with_body(structural_map(func.body, rules))


def _read_from(replaced: dict[Any, Any], load: Any) -> Any:
    """The load from what stands for its buffer, in the type of that."""
    if load.source not in replaced:
        return load
    new = tirx.BufferLoad(replaced[load.source], load.indices)
    return new if new.ty == load.ty else tirx.Cast(str(load.source.dtype), new)


def _block_of(func: Any, name: str) -> Any:
    found: list[Any] = []
    structural_walk(func.body, (s_tir.SBlock, lambda block: found.append(block) if block.name_hint == name else None))
    return found[0]


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
    value = getattr(block.body, "value", None)
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
