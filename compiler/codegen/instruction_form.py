"""What instruction form is made of: calls ``tw.<row>.<modifiers>`` over addresses in buffers of the chip's memories.

Every other module of code generation reads TIR's calls and buffers through this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from tvm import ir, tirx

from compiler.errors import InvalidError, Problem
from compiler.isa.dtypes import DTYPES, Queue
from compiler.isa.encoding import form
from compiler.isa.model import Row, Slot, dense_strides
from compiler.isa.table import by_mnemonic
from compiler.tir.scopes import ISA_DTYPE, MEMORY_OF_SCOPE
from compiler.tir.structure import answered_once, structural_map, structural_walk

PREFIX = "tw."
AT = "tw.at"
ADDRESS, BYTES = "tw.address", "tw.bytes"  # annotations of an AllocBuffer
SLOTS = "tw.slots"  # of one that is a ring: its first dimension, which a variable indexes that the block binds
PHASE = "tw.phase"  # attribute: by how many turns of the loop what stands in it may be late (`CutTrips`)
CORE_AXIS = "blockIdx.x"


def refuse(message: str, subject: object = None) -> InvalidError:
    """The error of a kernel that is not in instruction form."""
    where = f": {str(subject).splitlines()[-1]}" if subject is not None else ""
    return InvalidError(Problem("TW2601", f"not instruction form: {message}{where}"))


@answered_once
def memory_of(buffer: Any) -> str:
    """The memory that a buffer's scope names."""
    scope = str(buffer.ty.storage_scope)
    if scope not in MEMORY_OF_SCOPE:
        raise refuse(f"buffer `{buffer.name}` has scope {scope!r}; allowed: {', '.join(filter(None, MEMORY_OF_SCOPE))}")
    return MEMORY_OF_SCOPE[scope]


@answered_once
def dtype_of(node: Any) -> str:
    """The instruction set's name of a buffer's or an expression's element type."""
    name = str(node.ty.dtype)
    if name not in ISA_DTYPE:
        raise refuse(f"element type {name} does not exist on the chip", node)
    return ISA_DTYPE[name]


@answered_once
def static_shape(buffer: Any) -> tuple[int, ...]:
    if not all(isinstance(extent, tirx.IntImm) for extent in buffer.ty.shape[:]):
        raise refuse(f"buffer `{buffer.name}` has a dynamic shape {list(buffer.ty.shape)}")
    return tuple(int(extent) for extent in buffer.ty.shape[:])


@answered_once
def strides_of(buffer: Any) -> tuple[int, ...]:
    """Elements between neighbours of each dimension."""
    if buffer.ty.strides:
        return tuple(int(stride) for stride in buffer.ty.strides)
    return dense_strides(static_shape(buffer))


@answered_once
def dense_bytes(buffer: Any) -> int:
    """Bytes from a buffer's first element to its last, at its logical size."""
    shape, strides = static_shape(buffer), strides_of(buffer)
    elements = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if prod(shape) else 0
    return elements * DTYPES[dtype_of(buffer)].itemsize


def at_addresses(func: Any, addresses: Mapping[Any, int]) -> Any:
    """The function with the addresses of these buffers noted where they are allocated."""

    def annotate(alloc: Any) -> Any:
        if alloc.buffer not in addresses:
            return alloc
        noted = {**dict(alloc.annotations), ADDRESS: tirx.IntImm("int32", addresses[alloc.buffer])}
        return tirx.AllocBuffer(alloc.buffer, noted, alloc.span)

    return structural_map(func, (tirx.AllocBuffer, annotate))


def physical_bytes(alloc: Any) -> int:
    """Bytes an AllocBuffer takes: what emission says, else the dense size."""
    noted = alloc.annotations.get(BYTES)
    return int(noted) if noted is not None else dense_bytes(alloc.buffer)


@dataclass(frozen=True)
class Address:
    """Where a memory operand starts: an element of a buffer, or a byte offset from it."""

    buffer: Any
    indices: tuple[Any, ...]
    byte_offset: Any = None


@dataclass(frozen=True)
class Call:
    """One instruction: its row and modifiers, and per slot an :class:`Address`, an expression or an immediate."""

    row: Row
    mods: tuple[str, ...]
    operands: tuple[Any, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self.row.slots(self.mods)

    @property
    def queue(self) -> Queue:
        return self.row.queue_of(self.mods)

    @cached_property
    def known(self) -> tuple[int | None, ...]:
        """What the field of each slot holds where that is a constant, of addresses as if they were zero."""
        return tuple(_known(slot, value) for slot, value in zip(self.slots, self.operands, strict=True))

    def buffers(self, role: str) -> list[Any]:
        """Those that it reads ("r") or writes ("w")."""
        addresses = [value for value in self.operands if isinstance(value, Address)]
        return [a.buffer for tensor, a in zip(self.row.tensors, addresses, strict=True) if role in tensor.role]

    def deciding(self) -> list[Any]:
        """Those whose elements the scalar unit reads to work out the operands."""
        found: list[Any] = []
        for value in self.operands:
            parts = (*value.indices, value.byte_offset) if isinstance(value, Address) else (value,)
            for part in parts:
                if part is not None and not isinstance(part, tirx.IntImm | tirx.FloatImm | tirx.Var):
                    structural_walk(part, (ir.TensorLoad, lambda load: found.append(load.source)))
        return found


def _known(slot: Slot, value: Any) -> int | None:
    if isinstance(value, tirx.FloatImm):
        return float_bits(float(value.value)) & 0xFFFFFFFF
    if isinstance(value, Address) or slot.kind == "float":
        return 0
    return max(slot.lo, min(slot.hi, int(value.value))) if isinstance(value, tirx.IntImm) else None


def is_call(expression: Any, operator: str) -> bool:
    return isinstance(expression, ir.Call) and isinstance(expression.op, ir.Op) and expression.op.name == operator


@answered_once
def read_call(statement: Any) -> Call | None:
    """The instruction of an Evaluate; None where it does nothing."""
    value = statement.value
    if isinstance(value, tirx.IntImm):
        return None
    if not is_call(value, "tirx.call_extern"):
        raise refuse("only calls of `tw.` instructions are evaluated", statement)
    name, *slots = value.args
    text = str(name.value)
    mnemonic, *mods = text.removeprefix(PREFIX).split(".")
    row = by_mnemonic().get(mnemonic)
    if row is None or not text.startswith(PREFIX):
        raise refuse(f"no instruction is called `{text}`", statement)
    try:
        declared = form(row, tuple(mods)).slots
    except ValueError as fault:
        raise refuse(str(fault), statement) from None
    if len(slots) != len(declared):
        raise refuse(f"`{text}` has {len(declared)} slots, not {len(slots)}", statement)
    read = tuple(_slot(slot, value) for slot, value in zip(declared, slots, strict=True))
    return Call(row, tuple(mods), read)


def _slot(slot: Slot, value: Any) -> Any:
    if slot.kind == "addr":
        return read_address(value)
    if slot.kind in ("dest", "target"):
        raise refuse(f"slot `{slot.name}` belongs to the scalar unit, which code generation programs itself")
    return value


def read_address(value: Any) -> Address:
    if is_call(value, "tirx.address_of"):
        load = value.args[0]
        return Address(load.source, tuple(load.indices))
    if is_call(value, "tirx.call_extern") and str(value.args[0].value) == AT:
        base = read_address(value.args[1])
        return Address(base.buffer, base.indices, value.args[2])
    raise refuse("an address is `address_of(buffer[...])` or `tw.at(address, bytes)`", value)


def scalar_type(name: str) -> str:
    """The type by which the scalar unit reads and writes elements: a bool is a byte."""
    return "uint8" if name == "bool" else name


def float_bits(value: float) -> int:
    """The bits of an fp32, as the signed integer that a register holds."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.int32))


def is_float(expression: Any) -> bool:
    return "float" in str(expression.ty.dtype)
