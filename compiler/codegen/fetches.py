"""What later kernels read from DDR, brought to LLB by kernels before them: pieces of it between their own loads.

Queues work in order, so what is to be loaded beside a kernel's own loads has to stand between these in its code:

    loop x1, 14:                            loop x1, 14:
      ld.ddr.l1 ...                           ld.ddr.l1 ...
      ...                        ->           ld.ddr.llb [x30 + copy], [x29], 4096    in this core's turns, as long as
      mmad ...                                mmad ...                                not all of its part is there
                                            ld.ddr.llb ...                            until it is

1. The linker puts the code into a kernel that knows nothing of it, in registers that no kernel uses.
2. Pieces go round among the cores, and cores load theirs in different turns: the path of one core is fast, but where
   all load at once each waits for all, and with it its own loads behind that.
3. What there were not turns enough for is loaded behind the kernel's last instruction, as it is by cores that skip the
   kernel: in the end all of it is there, however often the kernel came by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.codegen.reach import Reaches
from compiler.codegen.registers import LINKERS
from compiler.codegen.values import Operand
from compiler.isa.dtypes import Queue
from compiler.isa.encoding import form
from compiler.isa.model import OFFSET_MAX, Instr, Reg, Value
from compiler.isa.table import by_mnemonic
from compiler.target import Chip

LEAST_PIECE_BYTES = 4096  # below that a load is mostly latency
_MOST_PIECE_BYTES = 65408  # that one instruction moves, in whole lines
_MOST_SITES = 16  # in a kernel's code
_MOST_TIMES = 1 << 20
_HALF = 0.5  # of the times it comes to a branch, a core goes either way
_TURN, _AT, _FROM = LINKERS  # how often a core came by; where its piece begins in the fetch, and in DDR


@dataclass(frozen=True)
class Sites:
    """Instructions of a kernel in front of which a load may stand, and how often a core comes to them in all."""

    places: tuple[int, ...] = ()
    times: int = 0


NO_SITES = Sites()


@dataclass(frozen=True)
class Fetch:
    """The bytes from ``low`` to before ``high`` of a buffer in DDR that no kernel writes, to a buffer in LLB; where
    it ``is_common``, all clusters are sent the same at once.
    """

    source: str
    target: str
    low: int
    high: int
    is_common: bool = False


def sites_of(instrs: Sequence[Instr], operands: Sequence[tuple[Operand, ...]], reaches: Reaches) -> Sites:
    """Evenly among what the matrix unit does, or else the vector unit: with that, a kernel's time goes on."""
    found: dict[Queue, list[tuple[int, float]]] = {Queue.M: [], Queue.V: []}
    times, open_ = 1.0, list[tuple[int, float]]()  # of loops and branches: where each ends, and the times around it
    for index, (instr, given) in enumerate(zip(instrs, operands, strict=True)):
        while open_ and open_[-1][0] <= index:
            times = open_.pop()[1]
        queue, target = instr.row.queue_of(instr.mods), index + _distance(instr)
        if instr.row.kind == "loop":
            open_.append((target, times))
            times = min(max(times * float(reaches.of(given[0]).low.mean()), 0.0), _MOST_TIMES)
        elif index < target < len(instrs):  # one to the end is that of cores that skip the kernel
            open_.append((target, times))
            times *= _HALF
        elif instr.row.kind == "compute" and queue in found:
            found[queue].append((index, times))
    able = found[Queue.M] or found[Queue.V]
    count = min(len(able), _MOST_SITES)
    chosen = [able[number * len(able) // count] for number in range(count)]
    return Sites(tuple(place for place, _ in chosen), int(sum(times for _, times in chosen)))


def _distance(instr: Instr) -> int:
    """How far an instruction may branch."""
    slots = form(instr.row, instr.mods).slots if instr.row.kind in ("branch", "loop") else ()
    found = (value for slot, value in zip(slots, instr.values, strict=False) if slot.kind == "target")
    return next((value for value in found if isinstance(value, int)), 0)


class Bringing:
    """The code of a fetch in a kernel: what stands before it, at each of its sites, and behind it.

    A core's pieces are those whose numbers it shares with itself, counted round the cores. Once in ``every`` times that
    it comes by it loads the next one: its count tells which.
    """

    def __init__(self, fetch: Fetch, target: int, source: Callable[[int], Instr], times: int, chip: Chip) -> None:
        """``target``: the first byte's address in LLB. ``source`` makes what loads its address in DDR."""
        self._target, self._source, self._cores, self._is_common = target, source, chip.cores, fetch.is_common
        self._size = fetch.high - fetch.low
        line, share = chip.transfer.ddr_line_bytes, -(-self._size // chip.cores)
        piece = max(LEAST_PIECE_BYTES, -(-share // max(1, times)))
        self._piece = min(-(-piece // line) * line, _MOST_PIECE_BYTES)
        self._whole = self._size // self._piece * self._piece  # in full pieces
        self._every = max(1, times // -(-share // self._piece))

    def before(self) -> list[Instr]:
        """The count, which starts between two pieces: at another place for each core."""
        return [
            _instr("getsr.core", _TURN),
            _instr("smul", _TURN, Reg(_TURN), self._every),
            _instr("sdiv", _TURN, Reg(_TURN), self._cores),
        ]

    def at_site(self) -> list[Instr]:
        """The next piece, where this is its turn."""
        load = self._load(self._piece)
        code = [*self._piece_of_turn(), _instr("bge", Reg(_AT), self._whole, len(load) + 1), *load]
        if self._every == 1:
            return [_instr("sadd", _TURN, Reg(_TURN), 1), *code]
        return [
            _instr("sadd", _TURN, Reg(_TURN), 1),
            _instr("srem", _AT, Reg(_TURN), self._every),
            _instr("bne", Reg(_AT), 0, len(code) + 1),
            *code,
        ]

    def behind(self) -> list[Instr]:
        """All pieces that are left, one after another, and what is less than a piece."""
        load = self._load(self._piece)
        each = [
            _instr("sadd", _TURN, Reg(_TURN), self._every),
            *self._piece_of_turn(),
            _instr("bge", Reg(_AT), self._whole, len(load) + 2),
            *load,
        ]
        code = [*each, _instr("jmp", -len(each))]
        if self._whole < self._size:
            load = self._load(self._size - self._whole)
            code += [
                _instr("getsr.core", _AT),
                _instr("bne", Reg(_AT), self._whole // self._piece % self._cores, len(load) + 2),
                _instr("smov", _AT, self._whole),
                *load,
            ]
        return code

    def _piece_of_turn(self) -> list[Instr]:
        return [
            _instr("getsr.core", _AT),
            _instr("sdiv", _FROM, Reg(_TURN), self._every),
            _instr("smadd", _AT, Reg(_FROM, -1), self._cores, Reg(_AT)),
            _instr("smul", _AT, Reg(_AT), self._piece),
        ]

    def _load(self, size: int) -> list[Instr]:
        name = "pld.llb.uint8.1d" if self._is_common else "ld.ddr.llb.uint8.1d"
        code = [self._source(_FROM), _instr("sadd", _FROM, Reg(_FROM), Reg(_AT))]
        if self._target <= OFFSET_MAX:
            return [*code, _instr(name, Reg(_AT, self._target), 1, Reg(_FROM), 1, size)]
        return [*code, _instr("sadd", _AT, Reg(_AT), self._target), _instr(name, Reg(_AT), 1, Reg(_FROM), 1, size)]


def _instr(name: str, *values: Value) -> Instr:
    mnemonic, *mods = name.split(".")
    return Instr(by_mnemonic()[mnemonic], tuple(mods), values)
