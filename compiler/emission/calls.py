"""The TIR spelling of instruction form: calls of ``tw.<mnemonic>.<mod>...``, addresses, loops and guards around."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tvm import tirx

from compiler.emission.nest import Loop

PREFIX = "tw."


def number(value: Any, dtype: str = "int32") -> Any:
    """A Python number as an immediate; expressions pass."""
    if isinstance(value, float):
        return tirx.FloatImm("float32", value)
    return tirx.IntImm(dtype, value) if isinstance(value, int) else value


def address(buffer: Any, indices: Sequence[Any]) -> Any:
    """The address slot of a buffer's element."""
    return tirx.address_of(tirx.BufferLoad(buffer, [number(index) for index in indices]))


def address_at(buffer: Any, byte_offset: Any) -> Any:
    """The address slot of a byte of a buffer whose layout is not the dense one."""
    start = address(buffer, [0] * len(buffer.shape))
    if isinstance(byte_offset, int) and byte_offset == 0:
        return start
    return tirx.call_extern("handle", "tw.at", start, number(byte_offset))


def instruction(mnemonic: str, mods: Iterable[str], slots: Iterable[Any]) -> Any:
    """The statement that executes one instruction; ``slots`` in the order of ``row.slots(mods)``."""
    name = PREFIX + ".".join((mnemonic, *mods))
    return tirx.Evaluate(tirx.call_extern("void", name, *(number(slot) for slot in slots)))


def around(loops: Sequence[Loop], body: Any) -> Any:
    """Scalar loops around a statement, outermost first."""
    for loop in reversed(loops):
        body = tirx.For(loop.var, number(0), number(loop.extent), tirx.ForKind.SERIAL, body)
    return body


def guarded(loops: Iterable[Loop], body: Any) -> Any:
    """``body`` where every loop that became a shape operand has at least one iteration: those must be positive."""
    for loop in loops:
        if loop.may_be_empty:
            body = tirx.IfThenElse(loop.extent > number(0), body, None)
    return body


def sequence(statements: Sequence[Any]) -> Any:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def temporary(name: str, shape: Sequence[int], dtype: str, scope: str = "local.ub") -> Any:
    """A new on-chip buffer; put ``allocation`` of it before its first use."""
    return tirx.decl_buffer([int(extent) for extent in shape], dtype, name, scope=scope)


def allocation(buffer: Any) -> Any:
    return tirx.AllocBuffer(buffer)
