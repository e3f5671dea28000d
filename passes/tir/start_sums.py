"""Let the first product of a sum write it, instead of adding to a sum that was set to zero."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar, NamedTuple

from tvm import ir, tirx
from tvm_ffi import structural_equal

from compiler.emission.calls import PREFIX
from compiler.target import Chip
from compiler.tir.rewriter import Rewriter, loop_with, sequence
from compiler.tir.structure import structural_map, structural_walk
from passes.base import Pass

ADD, BIAS = PREFIX + "madacc.", PREFIX + "mbias."
WRITES = {PREFIX + "mfill.": PREFIX + "mad.", BIAS: PREFIX + "madbias."}


class StartSums(Pass):
    """Replace the zeros or the bias before a sum of products by another instruction for its first product.

    Before: ``mfill(c, m, n, 0)``, ``for k: madacc(c, a, b, m, n, ..)``;
    after: ``for k: if k == 0: mad(c, a, b, m, n, ..) else: madacc(c, a, b, m, n, ..)``;
    ``madbias(c, a, b, bias, m, n, ..)`` in the place of ``mad`` where it was ``mbias(c, bias, m, n)``.

    1. The statement behind the fill that first mentions c does so in one instruction, a ``madacc`` of as many rows and
       columns.
    2. That instruction is executed in the first iteration of all loops around it where the fill is: it stands under the
       fill's guards, and every other one of its guards holds there.
    3. Between the two nothing touches the bias.
    """

    name: ClassVar[str] = "start-sums"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _Starter().function(subject)


class _Starter(Rewriter):
    def sequence(self, seq: Any) -> Any:
        parts = [self.statement(part) for part in seq.seq]
        for position in reversed(range(len(parts))):
            guards, fill = _guarded_fill(parts[position])
            if fill is None:
                continue
            user = next((i for i in range(position + 1, len(parts)) if _mentions(parts[i], fill.sums)), None)
            if user is None or any(
                _mentions(part, bias) for part in parts[position + 1 : user + 1] for bias in fill.bias
            ):
                continue  # (3)
            started = self._started(parts[user], guards, fill)
            if started is not None:
                parts[user] = started
                del parts[position]
        return seq if len(parts) == len(seq.seq) and all(map(_same, parts, seq.seq)) else sequence(parts)

    def _started(self, user: Any, guards: list[Any], fill: _Fill) -> Any | None:
        """The statement whose first product writes the sum, or None where that is not known to be the first."""
        walk = _First(fill, guards, self.analyzer)
        changed = walk.statement(user)
        return changed if walk.mentions == 1 and walk.written else None


class _Fill(NamedTuple):
    """What writes the start of a sum, and what would write it together with the first product."""

    sums: Any  # an address
    bias: list[Any]  # none, or an address
    sizes: list[Any]
    first: str  # the instruction's name, but for its modifiers


def _guarded_fill(stmt: Any) -> tuple[list[Any], _Fill | None]:
    """The conditions around a fill, and what it does."""
    guards = []
    while isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
        guards.append(stmt.condition)
        stmt = stmt.then_case
    for name, first in WRITES.items():
        if (call := _call(stmt, name)) is not None:
            sums, *rest = list(call.args)[1:]
            if first == WRITES[BIAS]:
                return guards, _Fill(sums, rest[:1], rest[1:], first)
            return guards, _Fill(sums, [], rest[:2], first) if float(rest[2]) == 0 else None
    return guards, None


def _same(one: Any, other: Any) -> bool:
    return bool(one.same_as(other))


@dataclass
class _First:
    """Rewrites the only product of a statement, where it is executed in the first iteration of the loops around it."""

    fill: _Fill
    guards: list[Any]  # of the fill, that were not met yet
    analyzer: Any
    loops: list[Any] = field(default_factory=list)
    mentions: int = 0  # instructions that touch the sum
    written: bool = False

    def statement(self, stmt: Any) -> Any:
        if isinstance(stmt, tirx.For):
            self.loops.append(stmt.loop_var)
            body = self.statement(stmt.body)
            self.loops.pop()
            return loop_with(stmt, body)
        if isinstance(stmt, tirx.SeqStmt):
            return tirx.SeqStmt([self.statement(part) for part in stmt.seq])
        if not _mentions(stmt, self.fill.sums):
            return stmt
        if isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None and self._holds(stmt.condition):
            return tirx.IfThenElse(stmt.condition, self.statement(stmt.then_case), None)
        self.mentions += 1
        product = _call(stmt, ADD)
        if self.guards or product is None or not all(map(structural_equal, product.args[4:6], self.fill.sizes)):
            return stmt
        self.written = True
        name = self.fill.first + product.args[0].value.removeprefix(ADD)
        slots = [*product.args[1:4], *self.fill.bias, *product.args[4:]]
        first = tirx.Evaluate(tirx.call_extern("void", name, *slots))
        if not self.loops:
            return first
        return tirx.IfThenElse(reduce(lambda a, b: a + b, self.loops) == 0, first, stmt)

    def _holds(self, condition: Any) -> bool:
        """Whether it holds in the first iteration wherever the fill is executed."""
        met = [guard for guard in self.guards if structural_equal(guard, condition)]
        if met:
            self.guards = [guard for guard in self.guards if guard not in met]
            return True
        zeros = {var: tirx.IntImm(str(var.ty), 0) for var in self.loops}
        return bool(self.analyzer.can_prove(structural_map(condition, (tirx.Var, lambda var: zeros.get(var, var)))))


def _call(stmt: Any, prefix: str) -> Any | None:
    """The call of an instruction whose name begins so."""
    call = stmt.value if isinstance(stmt, tirx.Evaluate) else None
    if not isinstance(call, ir.Call) or not len(call.args) or not isinstance(call.args[0], ir.StringImm):
        return None
    return call if str(call.args[0].value).startswith(prefix) else None


def _mentions(stmt: Any, address: Any) -> bool:
    """Whether an instruction has an operand in the buffer of an address."""
    buffers: list[Any] = []
    structural_walk(address, (ir.TensorLoad, lambda load: buffers.append(load.source)))
    found = False

    def visit(load: Any) -> None:
        nonlocal found
        found = found or load.source.same_as(buffers[0])

    structural_walk(stmt, (ir.TensorLoad, visit))
    return found
