"""Cycle costs of the engines, as pure functions of bound operands and chip: vector unit with banks, cube, copies."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from compiler.isa.dtypes import SHARED_MEMORIES
from compiler.isa.model import Args, Row, Timing, View
from compiler.target import Chip


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


# ---- vector unit ------------------------------------------------------------------------------------------


def vector_timing(args: Args, cycles_per_repeat: int = 1, lanes: int | None = None) -> Timing:
    """A head, one or more cycles per repeat, a tail; more where operands collide in the banks of UB.

    The unit works on 32-byte blocks. A repeat handles as many blocks of the widest operand as the datapath is
    wide; short rows share a repeat, since each block has its own address. ``lanes`` overrides the number of
    elements that are worked on (for rows whose work is not the size of their largest operand).
    """
    vector, chip = args.chip.vector, args.chip
    views = [v for v in args.views if v.memory == "ub"]
    widest = max((v.dtype.itemsize for v in args.views), default=4)
    if lanes is not None or not views:
        elements = lanes if lanes is not None else args.n0 * args.n1 * args.n2
        repeats = ceil_div(elements * widest, vector.bytes_per_cycle)
        return Timing(vector.head_cycles + repeats * cycles_per_repeat + vector.tail_cycles)
    key = tuple((v.role, v.address % _bank_period(chip), v.shape, v.strides, v.dtype.itemsize) for v in views)
    millicycles, conflict = _repeat_millicycles(chip, key, widest, cycles_per_repeat)
    body = ceil_div(millicycles, 1000)
    return Timing(vector.head_cycles + body + vector.tail_cycles, conflict_cycles=ceil_div(conflict, 1000))


def _bank_period(chip: Chip) -> int:
    return chip.memory.ub_bytes


OperandKey = tuple[str, int, tuple[int, ...], tuple[int, ...], int]


@lru_cache(maxsize=65536)
def _repeat_millicycles(chip: Chip, operands: tuple[OperandKey, ...], widest: int, slope: int) -> tuple[int, int]:
    """(millicycles of all repeats, of which lost to bank conflicts) for operands placed at these addresses."""
    from compiler.isa import bank_kernels  # compiled code is loaded when something is costed, not when it is assembled

    banks, block_bytes = chip.vector.banks, chip.block_bytes
    within = tuple((role, address % block_bytes, *rest) for role, address, *rest in operands)
    touched = _touched(within, widest, chip.vector.bytes_per_cycle // block_bytes, block_bytes)
    total, lost = bank_kernels.repeat_millicycles(
        *touched[:5],
        np.array([address // block_bytes for _, address, *_ in operands]),
        chip.memory.ub_bytes // block_bytes,
        touched.repeats,
        banks.groups,
        banks.bank_shift - banks.group_shift,
        slope,
        banks.same_group_read_millicycles,
        banks.same_group_write_millicycles,
        banks.same_bank_read_write_millicycles,
    )
    return int(total), int(lost)


class _Touched(NamedTuple):
    """The blocks that operands touch, one after another, from the one on in which an operand begins."""

    block: np.ndarray
    repeat: np.ndarray  # in which it does so; ascends for each operand
    first: np.ndarray  # of each operand, and the end of the last
    reads: np.ndarray  # which operands do
    writes: np.ndarray
    repeats: int


@lru_cache(maxsize=1024)
def _touched(operands: tuple[OperandKey, ...], widest: int, per_repeat: int, block_bytes: int) -> _Touched:
    """Of operands that start within their first block; it stays the same wherever that block is."""
    lanes_per_block = block_bytes // widest
    # Short operands (a reduction's result, a broadcast vector) follow the largest one lane by lane.
    work_shape = max((shape for _, _, shape, _, _ in operands), key=lambda s: (prod(s), len(s)))
    rows, length = prod(work_shape[:-1]), work_shape[-1]
    blocks_per_row = ceil_div(length, lanes_per_block)
    repeats = ceil_div(rows * blocks_per_row, per_repeat)
    touched = [
        _pattern(within, shape, strides, itemsize, work_shape, lanes_per_block, per_repeat, repeats, block_bytes)
        for _, within, shape, strides, itemsize in operands
    ]
    return _Touched(
        np.concatenate([block for block, _ in touched]),
        np.concatenate([repeat for _, repeat in touched]),
        np.cumsum([0, *(block.size for block, _ in touched)]),
        np.array(["r" in role for role, *_ in operands]),
        np.array(["w" in role for role, *_ in operands]),
        repeats,
    )


@lru_cache(maxsize=1024)
def _pattern(
    within: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    itemsize: int,
    work_shape: tuple[int, ...],
    lanes_per_block: int,
    per_repeat: int,
    repeats: int,
    block_bytes: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The blocks that an operand touches, and the repeat in which it does so; neighbours in both are one."""
    offsets = np.zeros(1, np.int64)
    for count, stride in zip(shape, strides, strict=True):
        offsets = (offsets[:, None] + np.arange(count, dtype=np.int64) * (stride * itemsize)).reshape(-1)
    blocks = (within + offsets) // block_bytes
    if shape == work_shape:
        rows, length = blocks.size // shape[-1], shape[-1]
        lane_block = np.arange(length) // lanes_per_block
        order = (np.arange(rows)[:, None] * ceil_div(length, lanes_per_block) + lane_block).reshape(-1)
        repeat = order // per_repeat
    else:
        repeat = np.arange(blocks.size, dtype=np.int64) * repeats // blocks.size
    new = np.ones(blocks.size, bool)
    new[1:] = (blocks[1:] != blocks[:-1]) | (repeat[1:] != repeat[:-1])
    return blocks[new], repeat[new]


# ---- cube -------------------------------------------------------------------------------------------------


def cube_timing(args: Args) -> Timing:
    """A fixed overhead and the fractal products at the cube's rate for the type."""
    k0 = args.dtype_of("@dtype").fractal_k
    products = ceil_div(args.m, 16) * ceil_div(args.k, k0) * ceil_div(args.n, 16)
    macs = products * 16 * k0 * 16
    cube = args.chip.cube
    return Timing(cube.overhead_cycles + ceil_div(macs, args.chip.macs_per_cycle(args.dtype)))


# ---- copies -----------------------------------------------------------------------------------------------

DDR, LLB = 1, 2  # bits of what a path takes bandwidth of


def path_of(row: Row, source: View, target: View) -> str:
    """What a copy goes over, by its name in a chip: to a memory of this core, or to those of all clusters at once."""
    return f"{source.memory}_{target.memory}{'s' if row.meets else ''}"


def memories_of(path: str) -> int:
    """The shared memories at the ends of a path, as bits."""
    ends = path.removesuffix("s").split("_")
    return DDR * ("ddr" in ends) | LLB * ("llb" in ends)


def copy_timing(args: Args, source: View, target: View, percent: int = 100) -> Timing:
    """Latency plus bytes over the path's rate; DDR and LLB move whole lines, so unaligned runs cost more.

    Repeated, padded or filled elements come over no shared path, yet each takes its time to be written.
    """
    path = path_of(args.row, source, target)
    spec = args.chip.path[path]
    moved = max(source.size * source.dtype.itemsize, target.size * target.dtype.itemsize)
    if source.memory not in SHARED_MEMORIES and target.memory not in SHARED_MEMORIES:
        cycles = max(spec.issue_cycles, ceil_div(moved * 100, spec.bytes_per_cycle * percent))
        return Timing(cycles, spec.latency_cycles, moved_bytes=moved)
    far = source if source.memory in SHARED_MEMORIES else target
    lines = _line_bytes(far, args.chip.transfer.ddr_line_bytes)
    written = target.size * target.dtype.itemsize
    cycles = max(spec.issue_cycles, ceil_div(written * 100, spec.bytes_per_cycle * percent))
    return Timing(cycles, spec.latency_cycles, path, ceil_div(lines * 100, percent), moved)


def _line_bytes(view: View, line: int) -> int:
    """Bytes of all lines that the view's contiguous runs touch."""
    run, outer = contiguous_run(view)
    starts = np.zeros(1, np.int64)
    for count, stride_bytes in outer:
        starts = (starts[:, None] + np.arange(count, dtype=np.int64) * stride_bytes).reshape(-1)
    first = (view.address + starts) // line
    last = (view.address + starts + run - 1) // line
    return int((last - first + 1).sum()) * line


def contiguous_run(view: View) -> tuple[int, list[tuple[int, int]]]:
    """The view as (bytes of one contiguous run, [(count, stride in bytes), ...] of the loops around it).

    Loops are ordered by stride, the widest first; dimensions of one and of stride zero are gone.
    """
    size = view.dtype.itemsize
    loops = sorted((s * size, n) for n, s in zip(view.shape, view.strides, strict=True) if n > 1 and s > 0)
    run, outer = size, list[tuple[int, int]]()
    for stride, count in loops:
        if not outer and stride == run:
            run *= count
        elif outer and stride == outer[-1][0] * outer[-1][1]:
            outer[-1] = (outer[-1][0] * count, outer[-1][1])
        else:
            outer.append((count, stride))
    return run, outer[::-1]
