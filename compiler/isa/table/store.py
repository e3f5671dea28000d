"""Stores, queue MTE3: UB (and LLB) to DDR, LLB and L1, plain, fractal, accumulating or scattered by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from compiler.isa import layout
from compiler.isa.dtypes import CUBE_TYPES, DTYPES, NUMBERS, Queue
from compiler.isa.model import RANK, Args, Int, Modifier, Operand, Row, Rule, Shape, Tensor, Timing, dtype_modifier
from compiler.isa.table.copy_rules import path_exists, pitch_covers_rows
from compiler.isa.table.matrix_operands import nd, nz
from compiler.isa.table.rules import destination_strides_differ
from compiler.isa.timing import copy_timing

_ANY = dtype_modifier(*DTYPES)
_FAR = Modifier("target", ("ddr", "llb"))
_RULES = (path_exists, destination_strides_differ)


def _timing(args: Args) -> Timing:
    return copy_timing(args, args.view("src"), args.view("dst"))


def _store(
    opcode: int,
    mnemonic: str,
    doc: str,
    operands: tuple[Operand, ...],
    modifiers: tuple[Modifier, ...],
    semantics: Callable[..., Any],
    rules: tuple[Rule, ...] = _RULES,
    timing: Callable[[Args], Timing] = _timing,
    raw: bool = True,
) -> Row:
    return Row(opcode, mnemonic, Queue.MTE3, doc, operands, modifiers, rules, semantics, raw, timing)


def _accumulate(opcode: int, mnemonic: str, function: Callable[..., Any], doc: str) -> Row:
    return _store(
        opcode,
        mnemonic,
        f"{doc}, in one piece that no other core can come between; floats in fp32, rounded once",
        (Tensor("dst", "rw", "@target"), Tensor("src", "r", "ub"), Shape()),
        (_FAR, dtype_modifier(*NUMBERS), RANK),
        lambda args, old, new: function(old, new),
        raw=False,
    )


def _scatter(args: Args, table: np.ndarray, source: np.ndarray, index: np.ndarray) -> np.ndarray:
    # In place: the table is most of DDR where its rows are few. A table row's last source row wins.
    inside = (index >= 0) & (index < args.table_rows)
    table[index[inside]] = source[inside]
    return table


def _scatter_timing(args: Args) -> Timing:
    """Every row moves its own lines, wherever it goes."""
    source, target = args.view("src"), args.view("dst")
    one = copy_timing(args, source, target._replace(shape=(1, args.cols)))
    return replace(one, line_bytes=one.line_bytes * args.rows)


ROWS = [
    _store(
        288,
        "st",
        "dst = src, strided on both sides",
        (Tensor("dst", "w", "@target"), Tensor("src", "r"), Shape()),
        (Modifier("target", ("ddr", "llb", "l1")), _ANY, RANK),
        lambda args, source: source,
    ),
    _store(
        289,
        "stnz",
        "a row-major block of UB into nz layout in L1, zeros behind its last column",
        (
            nz("dst", "w", "l1", "rows", "cols", "dst_pitch"),
            nd("src", "r", "ub", "rows", "cols", "src_stride"),
            Shape(("rows", "cols"), follows_rank=False),
            Int("src_stride", 0, doc="elements between source rows"),
            Int("dst_pitch", 1, doc="rows between column blocks"),
        ),
        (dtype_modifier(*CUBE_TYPES),),
        lambda args, source: layout.nd_to_nz(source, args.view("dst").shape[-1]),
        (path_exists, pitch_covers_rows),
    ),
    _accumulate(291, "stadd", np.add, "dst += src"),
    _accumulate(292, "stmax", np.maximum, "dst = max(dst, src)"),
    _accumulate(293, "stmin", np.minimum, "dst = min(dst, src)"),
    _store(
        294,
        "stscatter",
        "row i of src to row index[i] of a table; rows outside the table go nowhere, the last of equal indices stays",
        (
            nd("dst", "rw", "@target", "table_rows", "cols", "table_stride"),
            nd("src", "r", "ub", "rows", "cols", "src_stride"),
            Tensor("index", "r", "ub", "int32", extents=lambda args: (args.rows,), strides="dense"),
            Shape(("rows", "cols"), follows_rank=False),
            Int("src_stride", 0, doc="elements between source rows"),
            Int("table_rows", 1, doc="rows of the table"),
            Int("table_stride", 1, doc="elements between table rows"),
        ),
        (_FAR, _ANY),
        _scatter,
        timing=_scatter_timing,
    ),
    _store(
        295,
        "mvlb",
        "dst = src from LLB to DDR, strided on both sides",
        (Tensor("dst", "w", "ddr"), Tensor("src", "r", "llb"), Shape()),
        (_ANY, RANK),
        lambda args, source: source,
    ),
]
