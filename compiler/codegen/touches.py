"""Which bytes a kernel's queues touch: of its parameters on each core, and which of the core's own memories; and flags.

What a linker has to know to leave out order that nothing needs, and to put parameters into another memory.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.codegen.reach import FAR, Reach, Reaches
from compiler.codegen.values import Operand
from compiler.isa.dtypes import SHARED_MEMORIES
from compiler.isa.encoding import form
from compiler.isa.model import Args, Instr, Row, Tensor, View, bind
from compiler.target import Chip

FLAGS = frozenset({"set_flag", "wait_flag"})


@dataclass(frozen=True)
class Touch:
    """What a queue reads or writes of a parameter: per core that runs the kernel, from ``low`` to before ``high``."""

    parameter: int
    queue: str
    reads: bool
    writes: bool
    low: tuple[int, ...]
    high: tuple[int, ...]


@dataclass(frozen=True)
class Use:
    """A queue reads or writes a memory of the core."""

    memory: str
    queue: str
    writes: bool


@dataclass(frozen=True)
class Flags:
    """How many flags two queues have, counted from zero."""

    queues: tuple[str, ...]
    ids: int


@dataclass(frozen=True)
class Far:
    """An operand that lies in a parameter: its instruction, and which modifier names the parameter's memory."""

    instruction: int
    modifier: int
    parameter: int


@dataclass(frozen=True)
class Touched:
    """``movable`` are the parameters that may lie in LLB instead of DDR."""

    touches: tuple[Touch, ...]
    uses: tuple[Use, ...]
    far: tuple[Far, ...]
    movable: tuple[int, ...]
    flags: tuple[Flags, ...]


def touched(
    code: Sequence[tuple[Instr, tuple[Operand, ...]]], reaches: Reaches, sizes: Sequence[int], chip: Chip
) -> Touched:
    """``code``: instructions with what their operands were made from; ``sizes``: bytes of each parameter."""
    reader = _Reader(chip, reaches, sizes)
    for index, (instr, operands) in enumerate(code):
        if instr.row.tensors:
            reader.instruction(index, instr, operands)
        elif instr.row.kind in FLAGS:
            reader.flag(instr.mods, operands[0])
    return reader.result()


@dataclass
class _Reader:
    chip: Chip
    reaches: Reaches
    sizes: Sequence[int]
    _hulls: dict[tuple[int, str, bool, bool], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    _uses: dict[Use, None] = field(default_factory=dict)
    _far: list[Far] = field(default_factory=list)
    _fixed: set[int] = field(default_factory=set)
    _flags: dict[tuple[str, ...], int] = field(default_factory=dict)

    def result(self) -> Touched:
        touches = tuple(
            Touch(parameter, queue, reads, writes, tuple(low.tolist()), tuple(high.tolist()))
            for (parameter, queue, reads, writes), (low, high) in self._hulls.items()
        )
        movable = tuple(which for which in range(len(self.sizes)) if which not in self._fixed)
        flags = [Flags(queues, ids) for queues, ids in self._flags.items()]
        return Touched(touches, tuple(self._uses), tuple(self._far), movable, tuple(flags))

    def flag(self, queues: tuple[str, ...], number: Operand) -> None:
        ids = min(int(self.reaches.of(number).high.max()) + 1, self.chip.event_ids)
        self._flags[queues] = max(ids, self._flags.get(queues, 0))

    def instruction(self, index: int, instr: Instr, operands: tuple[Operand, ...]) -> None:
        row, mods = instr.row, instr.mods
        reached = [self.reaches.of(operand) for operand in operands]
        slots = [slot for slot in form(row, mods).slots if slot.kind not in ("dest", "target")]
        addresses = [reach for slot, reach in zip(slots, reached, strict=True) if slot.kind == "addr"]
        queue = row.queue_of(mods).name.lower()
        views: tuple[View, ...] | None = None
        for at, (tensor, memory, address) in enumerate(zip(row.tensors, row.memories(mods), addresses, strict=True)):
            if memory not in SHARED_MEMORIES:
                self._uses.update({Use(memory, queue, "w" in role): None for role in tensor.role})
                continue
            views = views or _views(row, mods, reached, self.chip)
            self._touch(address, views[at], queue, known=tensor.offset is None)
            if address.parameter is None:
                self._fixed.update(range(len(self.sizes)))
            elif self._moves(row, mods, modifier := naming_modifier(row, tensor)):
                self._far.append(Far(index, modifier, address.parameter))
            else:
                self._fixed.add(address.parameter)

    def _touch(self, address: Reach, view: View, queue: str, *, known: bool) -> None:
        """Note the bytes; all of the parameter (or of all) where they are not known."""
        reads, writes = "r" in view.role, "w" in view.role
        named = range(len(self.sizes)) if address.parameter is None else (address.parameter,)
        for parameter in named:
            size = self.sizes[parameter]
            low, high = np.zeros_like(address.low), np.full_like(address.high, size)
            if known and address.parameter is not None:
                low = np.clip(address.low, 0, size)
                high = np.clip(np.minimum(address.high, FAR) + view.extent_bytes, 0, size)
            key = (parameter, queue, reads, writes)
            if key in self._hulls:
                low, high = np.minimum(low, self._hulls[key][0]), np.maximum(high, self._hulls[key][1])
            self._hulls[key] = low, high

    def _moves(self, row: Row, mods: tuple[str, ...], modifier: int) -> bool:
        """Whether the instruction can reach LLB in the place of DDR."""
        if modifier < 0 or "llb" not in row.modifiers[modifier].choices:
            return False
        if row.kind != "compute" or mods[modifier] == "llb":
            return False
        moved = [naming_modifier(row, tensor) == modifier for tensor in row.tensors]
        roles = "".join(tensor.role for tensor, is_moved in zip(row.tensors, moved, strict=True) if is_moved)
        others = {memory for memory, is_moved in zip(row.memories(mods), moved, strict=True) if not is_moved}
        near, reads, writes = others & {"l1", "ub", "l0c"}, "r" in roles, "w" in roles
        paths = [f"llb_{memory}" for memory in near if reads and not writes]
        paths += [f"{memory}_llb" for memory in near if writes]
        return bool(paths) and all(path in self.chip.path for path in paths)


def _views(row: Row, mods: tuple[str, ...], reached: Sequence[Reach], chip: Chip) -> tuple[View, ...]:
    """The operands as if all addresses were zero, with the greatest extents that there can be."""
    return _bound(row, mods, [int(reach.high.max()) for reach in reached], chip).views


def _bound(row: Row, mods: tuple[str, ...], operands: Sequence[int], chip: Chip) -> Args:
    """An instruction with these operands where its slots allow them, and zero for all addresses."""
    given = iter(operands)
    values = []
    for slot in form(row, mods).slots:
        if slot.kind in ("dest", "target"):
            values.append(0)
            continue
        value = next(given)
        values.append(0 if slot.kind in ("addr", "float") else max(min(value, slot.hi), slot.lo))
    return bind(Instr(row, mods, tuple(values)), values, chip)


@dataclass(frozen=True)
class Span:
    """Bytes of the core's memories, or of a ``parameter``, by core."""

    memory: str
    low: np.ndarray
    high: np.ndarray
    parameter: int | None = None

    @property
    def is_known(self) -> bool:
        return bool((self.low > -FAR).all() and (self.high < FAR).all())

    def meets(self, other: Span) -> bool:
        """Whether both touch the same bytes on a core."""
        if self.memory != other.memory:
            return False
        if None not in (self.parameter, other.parameter) and self.parameter != other.parameter:
            return False
        return bool(((self.low < other.high) & (other.low < self.high)).any())


def spans(
    row: Row, mods: tuple[str, ...], reached: Sequence[Reach], chip: Chip, memories: Container[str]
) -> list[Span]:
    """What an instruction touches of some memories; ``reached``: all operands but results and targets."""
    slots = [slot for slot in form(row, mods).slots if slot.kind not in ("dest", "target")]
    addresses = [reach for slot, reach in zip(slots, reached, strict=True) if slot.kind == "addr"]
    found = []
    for at, (tensor, memory, address) in enumerate(zip(row.tensors, row.memories(mods), addresses, strict=True)):
        if memory not in memories:
            continue
        low, high = np.full_like(address.low, -FAR), np.full_like(address.high, FAR)
        if address.is_known and (tensor.offset is None or tensor.end is not None):
            view = _views(row, mods, reached, chip)[at]
            size = view.extent_bytes
            if tensor.end is not None:
                least, most = (_bound(row, mods, bounds, chip) for bounds in _bounds(reached))
                size = tensor.end(least, most) * view.dtype.itemsize
            low, high = address.low, address.high + size
        found.append(Span(memory, low, high, address.parameter))
    return found


def _bounds(reached: Sequence[Reach]) -> tuple[list[int], list[int]]:
    return [int(reach.low.min()) for reach in reached], [int(reach.high.max()) for reach in reached]


def naming_modifier(row: Row, tensor: Tensor) -> int:
    """The modifier that names a tensor's memory, or -1."""
    return row.modifier_index[tensor.memory[1:]] if tensor.memory.startswith("@") else -1
