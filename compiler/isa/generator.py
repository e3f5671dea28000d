"""Random legal, race-free programs over the whole table: what engines, text and encoding must agree on.

``random_program(seed, chip)`` writes a program down step by step: instructions drawn from their rows, scalar code
that computes their operands, the sync that their dependencies need, hardware loops, guarded and skipped code, data
handed from core to core. In the end every result is copied to an output. The same seed gives the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compiler.isa.dtypes import DTYPES, INTERLOCKED, SHARED_MEMORIES, Queue
from compiler.isa.model import Instr, Reg, Row, Slot, Value, touched_bytes
from compiler.isa.program import Program, TilingWord
from compiler.isa.program_data import DataWriter
from compiler.isa.program_writer import CORE, COUNTERS, KNOWN, TOTAL, Done
from compiler.isa.sampler import INTEGERS, Draw, Region
from compiler.isa.table import rows
from compiler.isa.table.sync import IN_CLUSTER
from compiler.target import Chip

TRAP_CODE = 7
_EXCHANGE_MEMORIES = tuple(sorted(SHARED_MEMORIES))


class Unreachable(Exception):
    """A row has no legal instruction on a chip, or none was found."""


def random_program(seed: int, chip: Chip, must_contain: Row | None = None) -> tuple[Program, dict[str, np.ndarray]]:
    """A program and its inputs. Raises :class:`Unreachable` where the chip has no legal instruction of the row."""
    in_cluster = must_contain is not None and must_contain.mnemonic in IN_CLUSTER
    meets = must_contain is not None and must_contain.meets
    writer = _Story(seed, chip, whole_clusters=in_cluster, several_clusters=meets)
    writer.write(must_contain)
    return writer.program(f"random-{seed}"), writer.inputs()


class _Story(DataWriter):
    """What happens in a program, step by step."""

    def write(self, must: Row | None) -> None:
        self._add("getsr", ("core",), CORE)
        self.registers[CORE] = list(range(self.cores))
        for _ in range(self.rng.randint(1, 4)):
            self._scalar()
        kinds: list[Any] = [
            self._compute, self._scalar, self._branch, self._loop, self._guarded, self._exchange, self._pipeline,
        ]  # fmt: skip
        weights = [8, 3, 1, 2, 2, 1, 1]
        if "ddr_l1s" in self.chip.path:
            kinds, weights = [*kinds, self._meeting], [*weights, 1]
        steps: list[Any] = [self.rng.choices(kinds, weights)[0] for _ in range(self.rng.randint(4, 12))]
        if must is not None:
            steps.insert(self.rng.randint(0, len(steps)), lambda: self._must(must))
        for step in steps:
            step()
        self._show_regions()
        self._show_registers()
        if must is not None and must.kind == "trap":
            self._add("trap", (), TRAP_CODE)
        self._add("halt", ())

    def _must(self, row: Row) -> None:
        """At least one instruction of the row, in the surroundings that its kind needs."""
        if row.timing is not None and row.semantics is not None:
            if not self._compute(row):
                raise Unreachable(f"no legal {row.mnemonic} was found on {self.chip.name}")
        elif row.kind in ("alu", "falu", "fcmp", "itof", "getsr", "ldt", "ldtc", "nop"):
            self._scalar(row)
        elif row.kind == "branch":
            self._branch(row)
        elif row.kind == "loop":
            self._loop()
        elif row.kind == "barrier_all":
            self._barrier_all()
        elif row.kind == "pipe_barrier":
            queue = self.rng.choice(list(Queue)[1:])
            self._sync("pipe_barrier", (queue,))
        elif row.kind in ("set_flag", "wait_flag"):
            source, target = self.rng.sample(list(Queue), 2)
            self._flag(source, target)
        elif row.kind in ("core_barrier", "cluster_barrier", "cross_set", "cross_wait"):
            self._exchange(row.mnemonic)

    # ---- single instructions

    def _compute(self, row: Row | None = None) -> bool:
        """One instruction that works on memory, with the data and the sync that it needs."""
        chosen = row or self._random_row()
        draw = self.sampler.draw(chosen, self._in_common() if chosen.meets else self.regions)
        if draw is None:
            return False
        self._prepare(draw)
        self._emit(draw)
        return True

    def _meeting(self) -> None:
        """A load that cores of all clusters do together: nothing may keep one of them from it."""
        self._compute(self.rng.choice([row for row in rows() if row.meets]))

    def _in_common(self) -> dict[str, list[Region]]:
        """The regions, of DDR those of which every core can read the same."""
        same = [replace(region, core_stride=0) for region in self.shared_inputs.values()]
        return {**self.regions, "ddr": same}

    def _random_row(self, queue: Queue | None = None) -> Row:
        candidates = [
            row for row in rows()
            if row.timing is not None and row.semantics is not None and queue in (None, row.queue) and not row.meets
        ]  # fmt: skip
        # Categories first: else nearly all would be vector instructions.
        category = self.rng.choice(sorted({row.category for row in candidates}))
        return self.rng.choice([row for row in candidates if row.category == category])

    def _prepare(self, draw: Draw, always: bool = False) -> None:
        """Fill the regions whose bytes are read, and those of which only some bytes would be written."""
        for tensor, view, place in zip(draw.row.tensors, draw.args.views, draw.places, strict=True):
            touched = touched_bytes(view) - place.start
            if "r" in tensor.role or always:
                missing = not place.ready[touched].all()
            else:
                missing = np.ptp(touched) + 1 != np.unique(touched).size or self.rng.random() < 0.5
            if missing and not place.full:
                self._fill(place, view.dtype.name)

    def _scalar(self, row: Row | None = None) -> None:
        """One scalar instruction on registers whose values are followed, so that addresses may rest on them."""
        kinds = ("alu", "alu", "falu", "fcmp", "itof", "getsr", "ldt", "ldtc", "nop")
        kind = self.rng.choice(kinds)
        chosen = row or self.rng.choice([row for row in rows() if row.kind == kind])
        mods = tuple(self.rng.choice(modifier.choices) for modifier in chosen.modifiers)
        register = self.rng.choice((0, *KNOWN, *KNOWN))
        values: list[Value] = []
        for slot in chosen.slots(mods):
            values.append(register if slot.kind == "dest" else self._source(slot, chosen))
        instr = Instr(chosen, mods, tuple(values))
        self.instrs.append(instr)
        if register and chosen.kind != "nop":
            self.registers[register] = self._results(instr)

    def _source(self, slot: Slot, row: Row) -> Value:
        if row.kind in ("ldt", "ldtc"):
            first = len(self.tiling)
            for number in range(first, first + (self.clusters if row.kind == "ldtc" else 1)):
                self.tiling.append(TilingWord(f"word{number}", self.rng.choice((*INTEGERS, 2**63 - 1, -(2**63)))))
            return first
        if self.rng.random() < 0.6:
            return Reg(self.rng.choice(KNOWN), 0 if slot.kind == "float" else self.rng.choice((0, 0, 1, -3)))
        if slot.kind == "float":
            return int(np.float32(self.rng.gauss(0, 100)).view(np.uint32))
        return self.rng.choice(INTEGERS)

    def _branch(self, row: Row | None = None) -> None:
        """A branch forward over code that would end the run, if it is taken; else over nothing that matters."""
        if (row is not None and row.mnemonic == "jmp") or (row is None and self.rng.random() < 0.4):
            self._add("jmp", (), 2)
            self._add("trap", (), TRAP_CODE)
            return
        branches = [each for each in rows() if each.kind == "branch" and len(each.operands) > 1]
        chosen = row or self.rng.choice(branches)
        self._add(chosen.mnemonic, (), *self._comparison(), 2)
        self._add("nop", ())

    def _comparison(self) -> tuple[Value, Value]:
        sources = (CORE, CORE, *KNOWN)
        left = Reg(self.rng.choice(sources), self.rng.choice((0, 1, -1)))
        return left, self.rng.choice((0, 1, 2, Reg(self.rng.choice(sources))))

    # ---- control around instructions

    def _guarded(self) -> None:
        """An instruction that only some cores execute, maybe none: they find out at run time."""
        draw = self.sampler.draw(self._random_row(), self.regions)
        if draw is None or any(slot.kind == "dest" for slot in draw.slots):
            return
        self._prepare_all(draw)
        queue = draw.row.queue_of(draw.mods)
        self._order(queue, [(p, "w" in t.role) for p, t in zip(draw.places, draw.row.tensors, strict=True)])
        instr = self._with_registers(draw, None)
        branches = [row for row in rows() if row.kind == "branch" and len(row.operands) > 1]
        self._add(self.rng.choice(branches).mnemonic, (), *self._comparison(), 2)
        self.instrs.append(instr)
        self._note(draw, queue)

    def _prepare_all(self, draw: Draw) -> None:
        for place, view in zip(draw.places, draw.args.views, strict=True):
            if not place.full:
                self._fill(place, view.dtype.name)

    def _loop(self) -> None:
        """A hardware loop: over vector instructions, which need no sync, or any, with all queues empty at its end."""
        vector = self.rng.random() < 0.5
        depth = len(self.loops)
        if depth >= 2:
            return
        draws = self._loop_draws([Queue.V] * self.rng.randint(1, 3) if vector else [None] * self.rng.randint(1, 3))
        if not draws:
            return
        trips = self.rng.randint(1, 4)
        for draw in draws:
            self._prepare_all(draw)
        if vector:
            uses = [(p, "w" in t.role) for d in draws for p, t in zip(d.places, d.row.tensors, strict=True)]
            self._order(Queue.V, uses)
        else:
            self._barrier_all()
        start = self._open_loop(trips)
        if self.rng.random() < 0.3:
            self._add("smadd", (), TOTAL, Reg(TOTAL), 3, Reg(self.loops[-1][0]))
            self.registers[TOTAL] = None
        if vector and self.rng.random() < 0.3:
            inner = self._open_loop(self.rng.randint(0, 3))
            for draw in draws:
                self._emit(draw, self._steps(draw, trips=4))
            self._close_loop(inner)
        for draw in draws:
            self._emit(draw, self._steps(draw, trips))
        leaves = self.rng.random() < 0.25 and vector
        if leaves:  # on to the next iteration, or out of the loop
            self._add("beq", (), Reg(self.loops[-1][0]), self.rng.randrange(trips + 1), self.rng.choice((2, 3)))
            self._add("nop", ())
        if not vector:
            self._barrier_all()
        self._close_loop(start)
        if leaves:
            self._add("nop", ())

    def _loop_draws(self, queues: Sequence[Queue | None]) -> list[Draw]:
        """Instructions for a loop's body: none writes a register."""
        found = []
        for queue in queues:
            draw = self.sampler.draw(self._random_row(queue), self.regions, attempts=60)
            if draw is not None and not any(slot.kind == "dest" for slot in draw.slots):
                found.append(draw)
        return found

    def _open_loop(self, trips: int) -> int:
        """Begin a loop; its end is entered when it is known."""
        counter = COUNTERS[len(self.loops)]
        count: Value = trips if self.rng.random() < 0.5 else self._relative(trips) or self._shifted(trips)
        start = len(self.instrs)
        self._add("loop", (), counter, count, 0)
        self.loops.append((counter, trips))
        return start

    def _close_loop(self, start: int) -> None:
        loop = self.instrs[start]
        self.instrs[start] = Instr(loop.row, (), (*loop.values[:2], len(self.instrs) - start))
        self.loops.pop()

    def _steps(self, draw: Draw, trips: int) -> list[int]:
        """How far each operand moves per iteration so that it stays in its region; shared regions do not move."""
        steps = []
        for operand, (view, place) in enumerate(zip(draw.args.views, draw.places, strict=True)):
            left = place.start + place.size - view.address - view.extent_bytes
            alone = sum(other is place for other in draw.places) == 1
            unit = 1024 if view.memory in ("l0a", "l0b", "l0c") else 64 if place.memory != "ub" else 32
            most = left // unit // max(1, trips - 1) if alone else 0
            steps.append(unit * self.rng.randint(0, min(most, 4)))
            if draw.address(operand) != view.address:  # addresses that operands shape stay where they are
                steps[-1] = 0
        return steps

    def _pipeline(self) -> None:
        """A loop of stages on different queues that hand a region on by flags and take it back from the last one."""
        stages = self.rng.choice(((Queue.MTE2, Queue.V, Queue.MTE3), (Queue.MTE2, Queue.MTE1), (Queue.V, Queue.MTE3),
                                  (Queue.MTE1, Queue.M, Queue.FIX), (Queue.MTE2, Queue.V)))  # fmt: skip
        bodies = [(queue, self._loop_draws([queue] * self.rng.randint(1, 2))) for queue in stages]
        for _, draws in bodies:
            for draw in draws:
                self._prepare_all(draw)
        if not all(draws for _, draws in bodies):
            return
        self._barrier_all()
        trips, back = self.rng.randint(1, 4), self.rng.randrange(self.chip.event_ids)
        first, last = stages[0], stages[-1]
        self._set(last, first, back)
        start = self._open_loop(trips)
        self._wait(last, first, back)
        previous: Queue | None = None
        for queue, draws in bodies:
            if previous is not None:
                event = self.rng.randrange(self.chip.event_ids)
                self._set(previous, queue, event)
                self._wait(previous, queue, event)
            for draw in draws:
                self._emit_in_stage(draw, queue, trips)
            previous = queue
        self._set(last, first, back)
        self._close_loop(start)
        self._wait(last, first, back)

    def _emit_in_stage(self, draw: Draw, queue: Queue, trips: int) -> None:
        if queue not in INTERLOCKED:
            self._sync("pipe_barrier", (queue,))
        self.instrs.append(self._with_registers(draw, self._steps(draw, trips)))
        self._note(draw, queue)

    # ---- between cores

    def _exchange(self, mnemonic: str | None = None) -> None:
        """Every core hands a piece of UB to another one: through DDR or LLB, by a barrier or by cross-core flags."""
        alike = self.cores % self.cluster_cores == 0
        ways = ("core_barrier", "cluster_barrier", "cross_set", *(("cluster_set",) if alike else ()))
        way = mnemonic or self.rng.choice(ways)
        in_cluster = way in IN_CLUSTER
        one_cluster = self.cores <= self.chip.cores_per_cluster
        if way == "cluster_barrier" and not one_cluster:
            self._barrier("cluster_barrier")
            way = "core_barrier"
        memory = self.rng.choice(_EXCHANGE_MEMORIES) if one_cluster or in_cluster else "ddr"
        dtype = self.rng.choice(tuple(DTYPES))
        size, distance = 256 * self.rng.randint(1, 4), self.rng.randrange(self.cores)
        count = size // DTYPES[dtype].itemsize
        source, target = self.rng.sample(self.regions["ub"], 2)
        buffer = self._buffer(f"exchange{self.exchanges}", memory, "scratch", "uint8", size, size)
        self.exchanges += 1
        self._fill_if_needed(source, dtype)
        self._fill_if_needed(target, dtype)
        self._order(Queue.MTE3, [(source, False)])
        self._add("st", (memory, dtype, "1d"), self._address(buffer.start, buffer, 0), 1, source.start, 1, count)
        self._accesses(source).note(Done(Queue.MTE3, self.order.step(Queue.MTE3)), False)
        ring = self.cluster_cores if in_cluster else self.cores
        giver, taker = self._neighbour(distance, "sadd", ring), self._neighbour(distance, "ssub", ring)
        if in_cluster or way.startswith("cross"):
            event = self.rng.randrange(self.chip.cross_flag_ids)
            self._sync("cluster_set" if in_cluster else "cross_set", (Queue.MTE3,), Reg(taker), event)
            self.order.step(Queue.MTE3)
            self._sync("cluster_wait" if in_cluster else "cross_wait", (Queue.MTE2,), Reg(giver), event)
            self.order.step(Queue.MTE2)
        else:
            self._barrier(way)
        self._order(Queue.MTE2, [(target, True)])
        if in_cluster:  # over all cores, the giver's number
            first = self._next_scratch()
            self._add("getsr", ("cluster",), first)
            self._add("smadd", (), giver, Reg(first), ring, Reg(giver))
        self._add("smul", (), giver, Reg(giver), size)
        self._add("ld", (memory, "ub", dtype, "1d"), target.start, 1, Reg(giver, buffer.start), 1, count)
        self._accesses(target).note(Done(Queue.MTE2, self.order.step(Queue.MTE2)), True)
        target.holds, target.dirty = dtype, True

    def _barrier(self, kind: str) -> None:
        self._add(kind, ())
        self.order.barrier_all()

    def _neighbour(self, distance: int, operation: str, ring: int) -> int:
        """A scratch register with the number of the core that is so far away, in a ring of the cores next to it."""
        register = self._next_scratch()
        self._add(operation, (), register, Reg(CORE), distance)
        self._add("srem", (), register, Reg(register), ring)
        return register
