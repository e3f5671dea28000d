"""Memories full of noise on which one instruction runs, and where elements lie in each layout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from compiler.isa.dtypes import DTYPES, MEMORIES
from compiler.isa.execute import execute
from compiler.isa.model import Args, Instr, Row, alignment_bytes, bind, touched_bytes
from compiler.target import load_chip

TW1, TW2 = load_chip("tw1"), load_chip("tw2")
SHARED_BYTES = 1 << 18

# With the paths of every row.
WHOLE = replace(TW2, path={**TW2.path, "ddr_l1s": TW2.path["ddr_l1"], "ddr_llbs": TW2.path["ddr_llb"]})


class Machine:
    """One core of tw2 with little DDR and LLB. Every byte starts as noise, so what is not written shows."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        sizes = {name: min(TW2.memory_bytes(name), SHARED_BYTES) for name in MEMORIES}
        self.memories = {name: self.rng.integers(0, 256, size, np.uint8) for name, size in sizes.items()}

    def noise(self, dtype: str, *shape: int) -> np.ndarray:
        """Random bits, NaN and infinity among them: what a copy must not change."""
        size = DTYPES[dtype].itemsize
        raw = self.rng.integers(0, 256, (*shape[:-1], shape[-1] * size), np.uint8)
        return raw.view(DTYPES[dtype].numpy)

    def small(self, dtype: str, *shape: int) -> np.ndarray:
        """Small integers: their sums and products are exact in every type."""
        return self.rng.integers(-8, 9, shape).astype(DTYPES[dtype].numpy)

    def elements(self, memory: str, address: int, dtype: str) -> np.ndarray:
        kind = DTYPES[dtype]
        whole = (len(self.memories[memory]) - address) // kind.itemsize * kind.itemsize
        return self.memories[memory][address : address + whole].view(kind.numpy)

    def poke(self, memory: str, address: int, dtype: str, index: np.ndarray, values: np.ndarray) -> None:
        self.elements(memory, address, dtype)[index] = values

    def peek(self, memory: str, address: int, dtype: str, index: np.ndarray) -> np.ndarray:
        return self.elements(memory, address, dtype)[index]

    def run(self, row: Row, mods: dict[str, str], **slots: float) -> Args:
        """Check that the instruction is legal and has a cost, run it, and see that it wrote its footprint only."""
        args = bound(row, mods, slots)
        assert refused(args) == []
        timing = row.timing(args) if row.timing else None
        assert timing is not None
        assert timing.cycles > 0
        before = {name: memory.copy() for name, memory in self.memories.items()}
        execute(args, self.memories)
        for view in args.views:
            assert 0 <= touched_bytes(view).min() <= touched_bytes(view).max() < len(before[view.memory])
            if "w" in view.role:
                before[view.memory][touched_bytes(view)] = self.memories[view.memory][touched_bytes(view)]
        assert all(np.array_equal(before[name], self.memories[name]) for name in before)
        return args


def bound(row: Row, mods: dict[str, str], slots: dict[str, float], chip: Any = WHOLE) -> Args:
    assert list(mods) == [m.name for m in row.modifiers]
    chosen = tuple(mods.values())
    names = [slot.name.replace(".", "_") for slot in row.slots(chosen)]
    assert list(slots) == names
    values = tuple(
        int(np.float32(slots[name]).view(np.uint32)) if slot.kind == "float" else int(slots[name])
        for slot, name in zip(row.slots(chosen), names, strict=True)
    )
    return bind(Instr(row, chosen, values), values, chip)


def refused(args: Args) -> list[str]:
    """The names of the rules that the operands break, after slot ranges and alignment."""
    mods = tuple(getattr(args, m.name) for m in args.row.modifiers)
    for slot in args.row.slots(mods):
        value = getattr(args, slot.name.replace(".", "_"))
        assert slot.kind == "float" or (slot.lo <= value <= slot.hi and value % slot.multiple == 0), (slot, value)
    for tensor in args.row.tensors:
        assert getattr(args, tensor.name) % alignment_bytes(tensor, args) == 0, tensor
    return [rule.__name__ for rule in args.row.rules if not rule(args)]


def forms(rows: Iterable[Row]) -> list[tuple[Row, dict[str, str]]]:
    """Every row with every choice of its modifiers."""
    return [
        (row, dict(zip((m.name for m in row.modifiers), choice, strict=True)))
        for row in rows
        for choice in product(*(m.choices for m in row.modifiers))
    ]


def form_name(value: object) -> str:
    return value.mnemonic if isinstance(value, Row) else ".".join(value.values()) if isinstance(value, dict) else ""


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# ---- where element (r, c) lies, counted in elements -------------------------------------------------------------


def k0_of(dtype: str) -> int:
    return 32 // DTYPES[dtype].itemsize


def up(value: int, multiple: int) -> int:
    return (value + multiple - 1) // multiple * multiple


def _grid(rows: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(rows)[:, None], np.arange(cols)[None, :]


def strided(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    return sum(i * s for i, s in zip(np.indices(shape), strides, strict=True))


def nz(rows: int, cols: int, pitch: int, dtype: str) -> np.ndarray:
    (r, c), k0 = _grid(rows, cols), k0_of(dtype)
    return c // k0 * pitch * k0 + r * k0 + c % k0


def l0a(m: int, k: int, columns: int, dtype: str) -> np.ndarray:
    """Element (r, c) of m x k in an L0A block of ``columns`` columns."""
    (r, c), k0 = _grid(m, k), k0_of(dtype)
    return (r // 16 * (up(columns, k0) // k0) + c // k0) * 16 * k0 + r % 16 * k0 + c % k0


def l0b(k: int, n: int, columns: int, dtype: str) -> np.ndarray:
    (r, c), k0 = _grid(k, n), k0_of(dtype)
    return (r // k0 * (up(columns, 16) // 16) + c // 16) * 16 * k0 + c % 16 * k0 + r % k0


def l0c(m: int, n: int, pitch: int) -> np.ndarray:
    r, c = _grid(m, n)
    return c // 16 * pitch * 16 + r * 16 + c % 16


def zero_extended(matrix: np.ndarray, rows: int, cols: int) -> np.ndarray:
    out = np.zeros((rows, cols), matrix.dtype)
    out[: matrix.shape[0], : matrix.shape[1]] = matrix
    return out
