"""Leaf nests written down by hand, and the instruction that emission makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, tirx

from compiler.emission.candidates import Candidate, Rejection, best, recognise
from compiler.emission.cube.places import MARK
from compiler.emission.nest import Surroundings, nest_of
from compiler.target import load_chip


def buffer(scope: str, dtype: str, *shape: int, name: str = "") -> Any:
    return tirx.decl_buffer(shape, dtype, name or scope.rpartition(".")[2], scope=scope, layout=None)


def load(source: Any, *indices: Any) -> Any:
    return tirx.BufferLoad(source, list(indices))


def outer(name: str, extent: int, surroundings: Surroundings) -> Any:
    """The variable of a loop around the nest."""
    var = tirx.Var(name, "int32")
    surroundings.bind(var, extent)
    return var


def nest(
    extents: Sequence[Any], target: Any, body: Callable[..., tuple[Sequence[Any], Any]], mark: str
) -> tirx.AttrStmt:
    """Loops around ``target[indices] = value``, marked; ``body`` gives indices and value for the loop variables."""
    variables = [tirx.Var(f"i{n}", "int32") for n in range(len(extents))]
    indices, value = body(*variables)
    statement: Any = tirx.BufferStore(target, value, list(indices))
    for var, extent in reversed(list(zip(variables, extents, strict=True))):
        statement = tirx.For(var, tirx.IntImm("int32", 0), extent, tirx.ForKind.SERIAL, statement)
    return tirx.AttrStmt(tirx.IntImm("int32", 0), MARK, mark, statement)


def found(statement: Any, chip: str = "tiny", surroundings: Surroundings | None = None) -> list[Any]:
    leaf = nest_of(statement, surroundings or Surroundings())
    assert leaf is not None
    return list(recognise(leaf, load_chip(chip)))


def emitted(statement: Any, chip: str = "tiny", surroundings: Surroundings | None = None) -> str:
    """The best instruction: its name and its operands, addresses as buffer+bytes or buffer[indices]."""
    chosen = best(found(statement, chip, surroundings))
    assert isinstance(chosen, Candidate)
    return text(chosen.build())


def reasons(statement: Any, chip: str = "tiny") -> list[str]:
    return [f"{one.instruction}: {one.reason}" for one in found(statement, chip) if isinstance(one, Rejection)]


def text(statement: Any) -> str:
    if isinstance(statement, tirx.Evaluate):
        name, *slots = statement.value.args
        return f"{name.value.removeprefix('tw.')} {', '.join(_slot(slot) for slot in slots)}"
    if isinstance(statement, tirx.IfThenElse):
        other = f" else {text(statement.else_case)}" if statement.else_case is not None else ""
        return f"if {statement.condition}: {text(statement.then_case)}{other}"
    if isinstance(statement, tirx.For):
        return f"for {statement.loop_var.name} in {statement.extent}: {text(statement.body)}"
    if isinstance(statement, tirx.SeqStmt):
        return "; ".join(map(text, statement.seq))
    raise TypeError(type(statement))


def _slot(slot: Any) -> str:
    if isinstance(slot, tirx.FloatImm):
        return f"{float(slot.value):g}"
    if isinstance(slot, ir.Call) and getattr(slot.op, "name", "").endswith("address_of"):
        access = slot.args[0]
        return f"{access.source.name}[{', '.join(str(i) for i in access.indices)}]"
    if isinstance(slot, ir.Call) and getattr(slot.op, "name", "").endswith("call_extern"):
        return f"{_slot(slot.args[1]).partition('[')[0]}+{slot.args[2]}"
    return str(slot)
