"""First contents of a random program's regions, and the way of every result to an output."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from compiler.isa.dtypes import DTYPES, SHARED_MEMORIES, Queue
from compiler.isa.model import Reg, Value
from compiler.isa.program_writer import CORE, KNOWN, TOTAL, Done, ProgramWriter
from compiler.isa.sampler import Region
from compiler.isa.table import by_mnemonic

_FRACTAL = 512
_CHUNK_BYTES = 1024  # what one copy to an output carries


class DataWriter(ProgramWriter):
    """Fills regions and shows what they hold. Memories that no plain copy leaves are shown by way of L0C."""

    # ---- first contents

    def _fill_if_needed(self, place: Region, dtype: str) -> None:
        if not place.full:
            self._fill(place, dtype)

    def _write(
        self, mnemonic: str, mods: tuple[str, ...], place: Region, source: Region | None, *values: Value
    ) -> None:
        """An instruction that writes all of a region from one other region, or from nothing."""
        queue = by_mnemonic()[mnemonic].queue_of(mods)
        uses = [(place, True)] + ([(source, False)] if source else [])
        self._order(queue, uses)
        addresses = [self._address(region.start, region, 0) for region, _ in uses]
        strided = by_mnemonic()[mnemonic].operands[0].slots(1)[1:]
        operands: list[Value] = []
        for address in addresses:
            operands += [address, *([1] if strided else [])]
        self._add(mnemonic, mods, *operands, *values)
        done = Done(queue, self.order.step(queue))
        for region, writes in uses:
            self._accesses(region).note(done, writes)
        place.ready[:] = True

    def _fill(self, place: Region, dtype: str) -> None:
        """Give all of a region values, of this type if the memory can hold it."""
        memory, size = place.memory, place.size
        place.holds = dtype
        if memory in ("ub", "l1", "llb"):
            self._write(
                "ld", ("ddr", memory, dtype, "1d"), place, self.shared_inputs[dtype], size // DTYPES[dtype].itemsize
            )
        elif memory in ("l0a", "l0b"):
            self._fill_fractals(place, dtype)
        elif memory == "l0c":
            choice = dtype if dtype in ("fp32", "int32") else "fp32"
            self._write("mfill", (choice,), place, None, size // 1024 * 16, 16, self._float(1.5))
        elif memory in ("bt", "fb"):
            choice = "int32" if dtype == "int32" and memory == "bt" else "fp32"
            self._write(f"ld{memory}", (choice,), place, self._some_l1(choice), size // 4)
        elif memory in SHARED_MEMORIES:  # an output of which too little is written to be read again
            staging = self.regions["ub"][0]
            self._fill_if_needed(staging, dtype)
            self._write("st", ("ddr", "uint8", "1d"), place, staging, size)

    def _fill_fractals(self, place: Region, dtype: str) -> None:
        """L0A and L0B: a constant, or fractals from L1 of which each is one column block."""
        choice = dtype if dtype in ("fp16", "bf16", "fp32", "int8") else "fp16"
        if self.rng.random() < 0.3:
            count = place.size // DTYPES[choice].itemsize
            self._write(f"fill{place.memory}", (choice,), place, None, count, self._float(-0.5))
            return
        rows_, k0 = place.size // _FRACTAL * 16, DTYPES[choice].fractal_k
        if place.memory == "l0a":
            self._write("ldl0a", (choice,), place, self._some_l1(choice), rows_, k0, rows_)
        else:
            self._write("ldl0bt", (choice,), place, self._some_l1(choice), k0, rows_, rows_)

    def _some_l1(self, dtype: str) -> Region:
        place = self.rng.choice(self.regions["l1"])
        if place.holds != dtype or not place.full:
            self._fill(place, dtype)
        return place

    @staticmethod
    def _float(value: float) -> int:
        return int(np.float32(value).view(np.uint32))

    # ---- to the outputs

    def _show_regions(self) -> None:
        """Copy every region that holds a result to an output, the memories around the cube by way of L0C."""
        for memory in ("ub", "llb", "l0c", "l1", "l0a", "l0b", "bt", "fb"):
            for place in self.regions[memory]:
                if place.dirty:
                    self._show(place)

    def _show(self, place: Region) -> None:
        if place.memory in ("l0a", "l0b"):
            self._show(self._product(place))
        elif place.memory in ("bt", "fb"):
            self._show(self._applied(place))
        else:
            if place.memory == "l0c":
                self._fill_if_needed(place, "fp32")
            for start, end in _runs(place.ready):
                for first in range(start, end, _CHUNK_BYTES):
                    self._show_bytes(place, first, min(_CHUNK_BYTES, end - first))
        place.dirty = False

    def _show_bytes(self, place: Region, start: int, size: int) -> None:
        source = Region(place.memory, place.start + start, size, place.core_stride)
        self.accesses[source] = self._accesses(place)
        out = self._buffer(f"result{len(self.buffers)}", "ddr", "output", "uint8", size, size)
        if place.memory == "llb":
            self._write("mvlb", ("uint8", "1d"), out, source, size)
        else:
            if place.memory != "ub":
                staging = self.regions["ub"][self.rng.randrange(len(self.regions["ub"]))]
                target = Region("ub", staging.start, size)
                self.accesses[target] = self._accesses(staging)
                if place.memory == "l1":
                    self._write("l1ub", ("uint8", "1d"), target, source, size)
                else:
                    integers = "int32" if place.holds == "int32" else "fp32"
                    self._write(
                        "fix", ("ub", "nd", integers, integers, "none"), target, source, size // 64, 16, 16 * 64, 16
                    )
                source = target
            self._write("st", ("ddr", "uint8", "1d"), out, source, size)

    def _product(self, place: Region) -> Region:
        """What L0A or L0B holds, times something."""
        result, dtype = self.rng.choice(self.regions["l0c"]), place.holds
        other = self.rng.choice(self.regions["l0b" if place.memory == "l0a" else "l0a"])
        self._fill_if_needed(place, dtype)
        self._fill(other, dtype)
        wide, k0 = place.size // _FRACTAL * 16, DTYPES[dtype].fractal_k
        m, n = (wide, 16) if place.memory == "l0a" else (16, wide)
        a, b = (place, other) if place.memory == "l0a" else (other, place)
        return self._cube("mad", (dtype,), result, (a, b), m, n, k0)

    def _applied(self, place: Region) -> Region:
        """What BT or FB holds: as a bias, or as scales."""
        self._fill_if_needed(place, place.holds)
        count, result = place.size // 4, self.rng.choice(self.regions["l0c"])
        if place.memory == "bt":
            return self._cube("mbias", (place.holds,), result, (place,), 16, count)
        self._fill(result, "fp32")
        target = self.rng.choice(self.regions["ub"])
        self._fill_if_needed(target, "fp32")
        self._order(Queue.FIX, [(target, True), (result, False), (place, False)])
        self._add(
            "fixquant",
            ("ub", "nd", "fp32", "fp32", "none"),
            target.start,
            result.start,
            place.start,
            4,
            count,
            16,
            count,
            0,
        )
        done = Done(Queue.FIX, self.order.step(Queue.FIX))
        for region, writes in ((target, True), (result, False), (place, False)):
            self._accesses(region).note(done, writes)
        return target

    def _cube(
        self, mnemonic: str, mods: tuple[str, ...], result: Region, sources: tuple[Region, ...], *extents: int
    ) -> Region:
        if result.dirty:
            self._show(result)
        self._fill_if_needed(result, "fp32")
        uses = [(result, True), *((source, False) for source in sources)]
        self._order(Queue.M, uses)
        self._add(mnemonic, mods, *(region.start for region, _ in uses), *extents)
        done = Done(Queue.M, self.order.step(Queue.M))
        for region, writes in uses:
            self._accesses(region).note(done, writes)
        result.holds = "int32" if mods[0] in ("int8", "int32") else "fp32"
        return result

    def _show_registers(self) -> None:
        """Both halves of every register, by the scalar unit's own stores."""
        registers = [TOTAL, *KNOWN]
        out = self._buffer("registers", "ddr", "output", "int32", 8 * len(registers), 8 * len(registers))
        base = self._next_scratch()
        self._add("smadd", (), base, Reg(CORE), out.core_stride, out.start)
        for k, register in enumerate(registers):
            half = self._next_scratch()
            if half == base:
                half = self._next_scratch()
            self._add("sshl", (), half, Reg(register), 32)
            self._add("ssar", (), half, Reg(half), 32)
            self._add("sst", ("ddr", "int32"), Reg(base, 8 * k), Reg(half))
            self._add("ssar", (), half, Reg(register), 32)
            self._add("sst", ("ddr", "int32"), Reg(base, 8 * k + 4), Reg(half))


def _runs(ready: np.ndarray) -> Iterator[tuple[int, int]]:
    """Stretches of bytes that hold values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], ready, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
