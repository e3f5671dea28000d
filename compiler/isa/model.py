"""What a row of the instruction table is made of.

A :class:`Row` declares one instruction: its queue, its operands in the order of the assembly text, the
modifiers that follow the mnemonic, its legality rules, its semantics and its timing. The encoder, the
assembler, the verifier, both engines, the hazard checker and the documentation only read rows.

Operands are made of *slots*, the 32-bit fields of the encoding. A slot's value is an ``int`` (an immediate;
for float slots the bits of an fp32) or a :class:`Reg` (a scalar register plus an immediate offset).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from compiler.isa.dtypes import ALIGNMENT_BYTES, DTYPES, SHARED_MEMORIES, DType, Queue
from compiler.target import Chip

REGISTERS = 32
IMMEDIATE_MIN, IMMEDIATE_MAX = -(2**31), 2**31 - 1
OFFSET_MIN, OFFSET_MAX = -(2**26), 2**26 - 1
# Elements of one operand in DDR or LLB, repeated ones included; on chip it is the bytes of the memory. This bounds
# what rules, costs and semantics may be asked to work on.
MAX_ELEMENTS = 1 << 28


@dataclass(frozen=True, slots=True)
class Reg:
    """A scalar register used as a value, plus a constant offset."""

    index: int
    offset: int = 0


Value = int | Reg


@dataclass(frozen=True)
class Slot:
    """One encoded field; ``kind`` says how its value is written and read."""

    name: str
    kind: str  # "int" | "float" | "dest" | "target" | "addr"
    lo: int = IMMEDIATE_MIN
    hi: int = IMMEDIATE_MAX
    multiple: int = 1


@dataclass(frozen=True)
class Modifier:
    """A dot-suffix of the mnemonic; ``choices`` in encoding order."""

    name: str
    choices: tuple[str, ...]

    @property
    def bits(self) -> int:
        return max(1, (len(self.choices) - 1).bit_length())


RANK = Modifier("rank", ("1d", "2d", "3d"))


def dtype_modifier(*choices: str, name: str = "dtype") -> Modifier:
    return Modifier(name, choices)


# ---- operands -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Int:
    """An integer: an immediate, or a register plus an offset."""

    name: str
    lo: int = IMMEDIATE_MIN
    hi: int = IMMEDIATE_MAX
    multiple: int = 1
    doc: str = ""

    def slots(self, rank: int) -> tuple[Slot, ...]:
        return (Slot(self.name, "int", self.lo, self.hi, self.multiple),)


@dataclass(frozen=True)
class Float:
    """An fp32: an immediate, or a register that holds its bits."""

    name: str
    doc: str = ""

    def slots(self, rank: int) -> tuple[Slot, ...]:
        return (Slot(self.name, "float"),)


@dataclass(frozen=True)
class Dest:
    """The scalar register that is written."""

    name: str
    doc: str = ""

    def slots(self, rank: int) -> tuple[Slot, ...]:
        return (Slot(self.name, "dest", 0, REGISTERS - 1),)


@dataclass(frozen=True)
class Target:
    """A label, encoded as the distance in instructions."""

    name: str
    doc: str = ""

    def slots(self, rank: int) -> tuple[Slot, ...]:
        return (Slot(self.name, "target"),)


@dataclass(frozen=True)
class Shape:
    """The iteration extents, outermost first: ``<n2, n1, n0>`` cut to the rank."""

    names: tuple[str, ...] = ("n2", "n1", "n0")
    hi: int = 65535
    follows_rank: bool = True
    doc: str = ""

    def slots(self, rank: int) -> tuple[Slot, ...]:
        names = self.names[-rank:] if self.follows_rank else self.names
        return tuple(Slot(name, "int", 1, self.hi) for name in names)


Extents = Callable[[Any], tuple[int, ...]]


@dataclass(frozen=True)
class Tensor:
    """A memory operand: an address and, if ``strides`` is None, one stride slot per dimension (in elements).

    ``extents`` gives the logical shape from the bound arguments (default: the iteration shape); ``strides``
    gives fixed element strides instead of slots, or "dense" for row-major. ``offset`` gives the elements between
    the address and the first one touched, ``end`` those between it and all that can be touched by instructions whose
    arguments are between two instructions' each. ``memory`` and ``dtype`` are names, or the name of the modifier that
    chooses them written as ``"@modifier"``; ``"@accumulator"`` is what the cube sums ``@dtype`` in.
    """

    name: str
    role: str  # "r" | "w" | "rw"
    memory: str = "ub"
    dtype: str = "@dtype"
    extents: Extents | None = None
    strides: Extents | str | None = None
    offset: Callable[[Any], int] | None = None
    end: Callable[[Any, Any], int] | None = None
    lacks: int = 0  # how many iteration dimensions the operand does not have (a reduced one, say)
    align: int | None = None
    doc: str = ""

    def slots(self, rank: int) -> tuple[Slot, ...]:
        address = Slot(self.name, "addr", 0, 2**62)
        if self.strides is not None:
            return (address,)
        return (
            address,
            *(Slot(f"{self.name}.s{k}", "int", 0, IMMEDIATE_MAX) for k in reversed(range(rank - self.lacks))),
        )


Operand = Int | Float | Dest | Target | Shape | Tensor


# ---- bound instructions ---------------------------------------------------------------------------------


class View(NamedTuple):
    """The elements one tensor operand touches: strides count elements, ``address`` bytes."""

    memory: str
    dtype: DType
    role: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def extent_bytes(self) -> int:
        """Bytes from the address to the end of the last element."""
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.dtype.itemsize

    @property
    def size(self) -> int:
        return prod(self.shape)


def touched_bytes(view: View) -> np.ndarray:
    """The address of every byte the view touches, unordered, with repeats where strides overlap."""
    offsets = np.zeros(1, np.int64)
    for count, stride in zip(view.shape, view.strides, strict=True):
        offsets = (offsets[:, None] + np.arange(count, dtype=np.int64) * (stride * view.dtype.itemsize)).reshape(-1)
    return (view.address + offsets[:, None] + np.arange(view.dtype.itemsize)).reshape(-1)


@dataclass(frozen=True)
class Timing:
    """What an instruction costs when nothing else runs.

    ``cycles`` holds the queue; ``latency_cycles`` later the result is there. Where ``path`` is set the queue is
    held until ``line_bytes`` have moved over that path at the rate that its shared memories leave to it, at
    least ``cycles``. ``moved_bytes`` is the payload.
    """

    cycles: int
    latency_cycles: int = 0
    path: str = ""
    line_bytes: int = 0
    moved_bytes: int = 0
    conflict_cycles: int = 0


Rule = Callable[[Any], bool]
Computes = str | tuple[str, ...]


def kept_where_positive(otherwise: str, condition: str = "") -> tuple[str, ...]:
    """The ways to write ``a`` where it is positive and something else where it is not, which at zero are the same."""
    kept = tuple(f"where(a {sign} 0, a, {otherwise})" for sign in (">", ">="))
    changed = tuple(f"where(a {sign} 0, {otherwise}, a)" for sign in ("<", "<="))
    return tuple(f"{way}{condition and f' if {condition}'}" for way in kept + changed)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


class Args(SimpleNamespace):
    """A bound instruction as rules, semantics and timing see it.

    Attributes: every modifier and slot by name (dots become underscores), ``chip``, ``row``, ``n0 n1 n2``
    (missing outer extents are 1), ``shape`` (the iteration shape) and ``views``.
    """

    chip: Chip
    row: Row
    shape: tuple[int, ...]
    views: tuple[View, ...]

    @property
    def accumulator(self) -> str:
        return "int32" if self.dtype == "int8" else "fp32"

    def dtype_of(self, reference: str) -> DType:
        return DTYPES[getattr(self, reference[1:]) if reference.startswith("@") else reference]

    def memory_of(self, reference: str) -> str:
        return str(getattr(self, reference[1:])) if reference.startswith("@") else reference

    def view(self, name: str) -> View:
        return self.views[self.row.tensor_index[name]]


@dataclass(frozen=True, eq=False)
class Row:
    """One instruction of the table."""

    opcode: int
    mnemonic: str
    queue: Queue | str  # a queue, or "@modifier" where the text chooses it
    doc: str
    operands: tuple[Operand, ...] = ()
    modifiers: tuple[Modifier, ...] = ()
    rules: tuple[Rule, ...] = ()
    # semantics(args, *inputs) -> one array per written tensor. Inputs are the tensors with role r or rw, in
    # order: floats widened to fp32 (not if ``raw``), integers as they are. Results are rounded to the tensor.
    semantics: Callable[..., Any] | None = None
    raw: bool = False
    timing: Callable[[Args], Timing] | None = None
    meets: bool = False  # whether the cores of one number in all clusters do it together
    kind: str = "compute"  # "compute" | "scalar" | "branch" | "loop" | "sync" | "system" | "load_scalar" ...
    category: str = ""
    # What the destination becomes, as an expression over operand names: what emission matches programs against.
    # Several spellings are alternatives. After " if " stands what must hold of the scalars and modifiers:
    # "round == rne", "low <= high", or one of `floats`, `widens` (to a wider type), `rounds` (a float to an integer)
    # and `wraps` (an integer to one that does not hold its values). `sum_n0(a)` folds over a dimension, `saturate(a)`
    # clips to the destination's range and converts, `cast(a)` converts.
    computes: Computes = ()

    @cached_property
    def spellings(self) -> tuple[str, ...]:
        return (self.computes,) if isinstance(self.computes, str) else self.computes

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(o for o in self.operands if isinstance(o, Tensor))

    @cached_property
    def tensor_index(self) -> dict[str, int]:
        return {t.name: i for i, t in enumerate(self.tensors)}

    @property
    def function(self) -> Callable[..., Any]:
        """The semantics of a row that must have some."""
        if self.semantics is None:
            raise TypeError(f"{self.mnemonic} has no semantics")
        return self.semantics

    def rank(self, mods: tuple[str, ...]) -> int:
        for modifier, choice in zip(self.modifiers, mods, strict=True):
            if modifier.name == "rank":
                return int(choice[0])
        return 3

    def slots(self, mods: tuple[str, ...]) -> tuple[Slot, ...]:
        return _slots(self, self.rank(mods))

    @cached_property
    def modifier_index(self) -> dict[str, int]:
        return {m.name: i for i, m in enumerate(self.modifiers)}

    def chosen(self, reference: str, mods: tuple[str, ...]) -> str:
        """A word of the table itself, or of "@modifier" what that modifier is."""
        return mods[self.modifier_index[reference[1:]]] if reference.startswith("@") else reference

    def memories(self, mods: tuple[str, ...]) -> tuple[str, ...]:
        """Where each of its tensors lies."""
        return tuple(self.chosen(tensor.memory, mods) for tensor in self.tensors)

    def queue_of(self, mods: tuple[str, ...]) -> Queue:
        return self.queue if isinstance(self.queue, Queue) else Queue[self.chosen(self.queue, mods).upper()]


@cache
def _slots(row: Row, rank: int) -> tuple[Slot, ...]:
    return tuple(slot for operand in row.operands for slot in operand.slots(rank))


@dataclass(frozen=True, slots=True)
class Instr:
    """One instruction of a program: a row, its modifiers and its slot values."""

    row: Row
    mods: tuple[str, ...]
    values: tuple[Value, ...]


def counting_faults(args: Args) -> list[str]:
    """The operands that count more elements than they may."""
    found = []
    for tensor, view in zip(args.row.tensors, args.views, strict=True):
        limit = MAX_ELEMENTS if view.memory in SHARED_MEMORIES else args.chip.memory_bytes(view.memory)
        if view.size > limit:
            found.append(f"{tensor.name} counts {view.size} elements; an operand in {view.memory} has at most {limit}")
    return found


def bind(instr: Instr, values: tuple[int, ...] | list[int], chip: Chip) -> Args:
    """Resolve an instruction whose slots all have values into the namespace its row's functions read."""
    row = instr.row
    rank = row.rank(instr.mods)
    args = Args(chip=chip, row=row, rank=rank, n0=1, n1=1, n2=1)
    for modifier, choice in zip(row.modifiers, instr.mods, strict=True):
        setattr(args, modifier.name, choice)
    slots = row.slots(instr.mods)
    for slot, value in zip(slots, values, strict=True):
        resolved: int | float = value
        if slot.kind == "float":
            resolved = float(np.uint32(value & 0xFFFFFFFF).view(np.float32))
        setattr(args, slot.name.replace(".", "_"), resolved)
    args.shape = (args.n2, args.n1, args.n0)[-rank:]
    args.views = tuple(_view(args, tensor, rank) for tensor in row.tensors)
    return args


def _view(args: Args, tensor: Tensor, rank: int) -> View:
    shape = args.shape if tensor.extents is None else tensor.extents(args)
    if tensor.strides is None:
        names = [s.name for s in tensor.slots(rank)[1:]]
        strides = tuple(getattr(args, name.replace(".", "_")) for name in names)
    elif isinstance(tensor.strides, str):
        strides = dense_strides(shape)
    else:
        strides = tensor.strides(args)
    dtype, address = args.dtype_of(tensor.dtype), getattr(args, tensor.name)
    if tensor.offset is not None:
        address += tensor.offset(args) * dtype.itemsize
    return View(args.memory_of(tensor.memory), dtype, tensor.role, address, shape, strides)


def alignment_bytes(tensor: Tensor, args: Args) -> int:
    """What a tensor's address must be a multiple of."""
    memory = args.memory_of(tensor.memory)
    return tensor.align or max(ALIGNMENT_BYTES[memory], args.dtype_of(tensor.dtype).itemsize)
