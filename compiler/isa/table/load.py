"""Loads: DDR and LLB into L1, UB and LLB (queue MTE2), then L1 into the memories beside the cube and UB (MTE1).

Layouts are those of :mod:`compiler.isa.layout`; they change on the way, so no instruction exists for that alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from compiler.isa import img2col, layout
from compiler.isa.dtypes import CUBE_TYPES, DTYPES, NUMBERS, Queue
from compiler.isa.model import RANK, Args, Float, Int, Modifier, Operand, Row, Rule, Shape, Tensor, Timing
from compiler.isa.model import dtype_modifier as dtypes
from compiler.isa.table.copy_rules import (
    fill_path_exists,
    path_exists,
    pitch_covers_rows,
    starts_at_block,
    windows_exist,
)
from compiler.isa.table.matrix_operands import l0a, l0b, nd, nz
from compiler.isa.table.rules import destination_strides_differ, sources_overlap_wholly_or_not
from compiler.isa.timing import ceil_div, copy_timing

_SOURCE = Modifier("source", ("ddr", "llb"))
_MET_TARGET = Modifier("target", ("l1", "llb"))
_ANY = dtypes(*DTYPES)
_CUBE = dtypes(*CUBE_TYPES)
_ROWS_COLS = Shape(("rows", "cols"), follows_rank=False)
_SRC_STRIDE = Int("src_stride", 0, doc="elements between source rows")
_DST_STRIDE = Int("dst_stride", 1, doc="elements between destination rows")
_DST_PITCH = Int("dst_pitch", 1, doc="rows between column blocks")
_SRC_PITCH = Int("src_pitch", 1, doc="rows between column blocks")


def _timing(args: Args) -> Timing:
    return copy_timing(args, args.view("src"), args.view("dst"))


def _row(
    opcode: int,
    mnemonic: str,
    queue: Queue,
    doc: str,
    operands: tuple[Operand, ...],
    modifiers: tuple[Modifier, ...],
    rules: tuple[Rule, ...],
    semantics: Callable[..., Any],
    timing: Callable[[Args], Timing] = _timing,
) -> Row:
    return Row(opcode, mnemonic, queue, doc, operands, modifiers, rules, semantics, raw=True, timing=timing)


# ---- MTE2: from DDR and LLB -------------------------------------------------------------------------------------


LAYOUT_CHANGING = frozenset(
    {"ldnz", "ldnzt", "ldc1"}
)  # and the loads of all clusters at once that are called after them


def _layout_timing(args: Args, run_elements: int) -> Timing:
    """Layout changes run at full rate only where the source's rows are whole blocks."""
    source, chip = args.view("src"), args.chip
    ragged = run_elements * source.dtype.itemsize % chip.block_bytes
    return copy_timing(args, source, args.view("dst"), chip.transfer.ragged_nz_percent if ragged else 100)


def _c1_timing(args: Args) -> Timing:
    run = args.w if args.src_s0 == 1 else args.c if args.src_s2 == 1 else 1
    return _layout_timing(args, run)


def _padded(args: Args, source: np.ndarray) -> np.ndarray:
    out = np.full(args.view("dst").shape, layout.constant(args.pad, source.dtype), source.dtype)
    out[:, args.left : args.left + args.cols] = source
    return out


def _gather(args: Args, table: np.ndarray, index: np.ndarray) -> np.ndarray:
    inside = (index >= 0) & (index < args.table_rows)
    rows = table[np.where(inside, index, 0)]
    rows[~inside] = 0
    return rows


def _gather_timing(args: Args) -> Timing:
    """Every row moves its own lines, wherever it lies."""
    source, target = args.view("src"), args.view("dst")
    one = copy_timing(args, source._replace(shape=(1, args.cols)), target)
    return replace(one, line_bytes=one.line_bytes * args.rows)


def _c0(args: Args) -> int:
    return args.dtype_of("@dtype").fractal_k


_FEATURE_MAP = Tensor(
    "dst",
    "w",
    "l1",
    extents=lambda args: (ceil_div(args.c, _c0(args)), args.h, args.w, _c0(args)),
    strides=lambda args: (args.c1_stride, args.w * _c0(args), _c0(args), 1),
)

_FROM_FAR = [
    _row(
        224,
        "ld",
        Queue.MTE2,
        "dst = src, strided on both sides",
        (Tensor("dst", "w", "@target"), Tensor("src", "r", "@source"), Shape()),
        (_SOURCE, Modifier("target", ("ub", "l1", "llb")), _ANY, RANK),
        (path_exists, destination_strides_differ),
        lambda args, source: source,
    ),
    _row(
        225,
        "ldpad",
        Queue.MTE2,
        "rows of src with left and right elements of pad around them; integer pads are cut and saturated",
        (
            Tensor(
                "dst",
                "w",
                "@target",
                extents=lambda args: (args.rows, args.left + args.cols + args.right),
                strides=lambda args: (args.dst_stride, 1),
            ),
            nd("src", "r", "@source", "rows", "cols", "src_stride"),
            _ROWS_COLS,
            _SRC_STRIDE,
            _DST_STRIDE,
            Int("left", 0, 65535),
            Int("right", 0, 65535),
            Float("pad"),
        ),
        (_SOURCE, Modifier("target", ("ub", "l1")), dtypes(*NUMBERS)),
        (path_exists, destination_strides_differ),
        _padded,
    ),
    _row(
        226,
        "ldnz",
        Queue.MTE2,
        "a row-major block into nz layout, zeros behind its last column",
        (
            nz("dst", "w", "l1", "rows", "cols", "dst_pitch"),
            nd("src", "r", "@source", "rows", "cols", "src_stride"),
            _ROWS_COLS,
            _SRC_STRIDE,
            _DST_PITCH,
        ),
        (_SOURCE, _CUBE),
        (path_exists, pitch_covers_rows),
        lambda args, source: layout.nd_to_nz(source, _c0(args)),
        lambda args: _layout_timing(args, args.cols),
    ),
    _row(
        227,
        "ldnzt",
        Queue.MTE2,
        "rows x cols in nz layout from a row-major block that holds its transpose, zeros behind the last column",
        (
            nz("dst", "w", "l1", "rows", "cols", "dst_pitch"),
            nd("src", "r", "@source", "cols", "rows", "src_stride"),
            _ROWS_COLS,
            _SRC_STRIDE,
            _DST_PITCH,
        ),
        (_SOURCE, _CUBE),
        (path_exists, pitch_covers_rows),
        lambda args, source: layout.nd_to_nz(source.T, _c0(args)),
        lambda args: _layout_timing(args, args.rows),
    ),
    _row(
        228,
        "ldc1",
        Queue.MTE2,
        "an image [c][h][w] of any strides into [c1][h][w][c0], zeros behind the last channel",
        (
            _FEATURE_MAP,
            Tensor("src", "r", "@source", extents=lambda args: (args.c, args.h, args.w)),
            Shape(("c", "h", "w"), follows_rank=False),
            Int("c1_stride", 0, doc="elements between channel blocks"),
        ),
        (_SOURCE, _CUBE),
        (path_exists, destination_strides_differ),
        lambda args, source: layout.chw_to_feature_map(source, _c0(args)),
        _c1_timing,
    ),
    _row(
        229,
        "ldgather",
        Queue.MTE2,
        "row index[i] of a table to row i of dst; zeros where the index is outside the table",
        (
            nd("dst", "w", "ub", "rows", "cols", "dst_stride"),
            nd("src", "r", "@source", "table_rows", "cols", "table_stride"),
            Tensor("index", "r", "ub", "int32", extents=lambda args: (args.rows,), strides="dense"),
            _ROWS_COLS,
            _DST_STRIDE,
            Int("table_rows", 1, doc="rows of the table"),
            Int("table_stride", 1, doc="elements between table rows"),
        ),
        (_SOURCE, _ANY),
        (path_exists, destination_strides_differ, sources_overlap_wholly_or_not),
        _gather,
        _gather_timing,
    ),
    _row(
        230,
        "ldrep",
        Queue.MTE2,
        "one row of src to every row of dst",
        (
            nd("dst", "w", "ub", "rows", "cols", "dst_stride"),
            Tensor("src", "r", "@source", extents=lambda args: (args.cols,), strides="dense"),
            _ROWS_COLS,
            _DST_STRIDE,
        ),
        (_SOURCE, _ANY),
        (path_exists, destination_strides_differ),
        lambda args, source: source,
    ),
]

# ---- MTE2, together with other clusters -------------------------------------------------------------------------


def _meeting(opcode: int, alone: str, doc: str) -> Row:
    """A load from DDR that the cores of one number in all clusters have in common."""
    one = next(row for row in _FROM_FAR if row.mnemonic == alone)
    target, source = one.tensors
    modifiers = (_MET_TARGET if each.name == "target" else each for each in one.modifiers if each.name != "source")
    meeting = "the cores of one number in all clusters of the program load the same bytes, each to its own dst, once"
    return replace(
        one,
        opcode=opcode,
        mnemonic=f"p{alone}",
        doc=f"{doc}: {meeting} the last of them is there; DDR is read once",
        operands=(target, replace(source, memory="ddr"), *one.operands[2:]),
        modifiers=tuple(modifiers),
        meets=True,
    )


_MEETING = [
    _meeting(231, "ld", "dst = src, strided on both sides"),
    _meeting(232, "ldnz", "a row-major block into nz layout, zeros behind its last column"),
    _meeting(233, "ldnzt", "a row-major block into nz layout, transposed, zeros behind the last column"),
]

# ---- MTE1: from L1 ----------------------------------------------------------------------------------------------


def _l0a(args: Args, blocks: layout.Blocks) -> layout.Laid:
    return layout.nz_to_l0a(blocks, args.k)


def _l0a_transposed(args: Args, blocks: layout.Blocks) -> layout.Laid:
    return layout.transposed_nz_to_l0a(blocks, args.m)


def _l0b(args: Args, blocks: layout.Blocks) -> layout.Laid:
    return layout.nz_to_l0b(blocks, args.n)


def _l0b_transposed(args: Args, blocks: layout.Blocks) -> layout.Laid:
    return layout.transposed_nz_to_l0b(blocks, args.k)


def _fractal_load(opcode: int, mnemonic: str, doc: str, dst: Tensor, held: str, semantics: Callable[..., Any]) -> Row:
    """``held``: the rows and columns of what L1 holds in nz layout; the shape operand is the matrix's own."""
    shape = Shape(("m", "k") if "m" in held else ("k", "n"), hi=4095, follows_rank=False)
    return _row(
        opcode,
        mnemonic,
        Queue.MTE1,
        doc,
        (dst, nz("src", "r", "l1", held[0], held[1], "src_pitch"), shape, _SRC_PITCH),
        (_CUBE,),
        (path_exists, pitch_covers_rows),
        semantics,
    )


def _window_timing(args: Args) -> Timing:
    """What is written counts: each input element is read once for every window that it lies in."""
    target = args.view("dst")
    return copy_timing(args, args.view("src")._replace(shape=target.shape, strides=target.strides), target)


def _fill_timing(args: Args) -> Timing:
    """MTE1 writes a constant as fast as it writes what it reads."""
    memory = args.view("dst").memory
    spec = args.chip.path["l1_l0b" if memory == "l0b" else "l1_l0a"]
    filled = args.view("dst").size * args.view("dst").dtype.itemsize
    return Timing(
        max(spec.issue_cycles, ceil_div(filled, spec.bytes_per_cycle)), spec.latency_cycles, moved_bytes=filled
    )


def _fill(args: Args) -> np.ndarray:
    return layout.constant(args.value, args.view("dst").dtype.numpy)


def _fill_l0(opcode: int, memory: str) -> Row:
    return _row(
        opcode,
        f"fill{memory}",
        Queue.MTE1,
        f"{memory.upper()} = value; integers are cut and saturated",
        (
            Tensor("dst", "w", memory, extents=lambda args: (args.n,), strides="dense"),
            Shape(("n",), hi=1 << 20, follows_rank=False),
            Float("value"),
        ),
        (_CUBE,),
        (fill_path_exists,),
        _fill,
        _fill_timing,
    )


def _vector_load(opcode: int, mnemonic: str, memory: str, doc: str, *choices: str, held_as: str = "@dtype") -> Row:
    return _row(
        opcode,
        mnemonic,
        Queue.MTE1,
        doc,
        (
            Tensor("dst", "w", memory, held_as, extents=lambda args: (args.n,), strides="dense"),
            Tensor("src", "r", "l1", extents=lambda args: (args.n,), strides="dense"),
            Shape(("n",), hi=4095, follows_rank=False),
        ),
        (dtypes(*choices),),
        (path_exists,),
        lambda args, source: source,
    )


_FROM_L1 = [
    _fractal_load(240, "ldl0a", "A (m x k) in nz layout to L0A", l0a("dst", "w"), "mk", _l0a),
    _fractal_load(241, "ldl0at", "A (m x k), transposed in nz layout, to L0A", l0a("dst", "w"), "km", _l0a_transposed),
    _fractal_load(242, "ldl0b", "B (k x n) in nz layout to L0B", l0b("dst", "w"), "kn", _l0b),
    _fractal_load(243, "ldl0bt", "B (k x n), transposed in nz layout, to L0B", l0b("dst", "w"), "nk", _l0b_transposed),
    _row(
        244,
        "img2col",
        Queue.MTE1,
        "m rows and k columns of the im2col matrix of [c1][h][w][c0] to L0A; columns are ordered (c1, kh, kw, c0), "
        "padding is pad_value, cut and saturated for integers",
        (
            l0a("dst", "w"),
            Tensor(
                "src",
                "r",
                "l1",
                extents=img2col.source_extents,
                strides=img2col.source_strides,
                offset=img2col.source_offset,
                end=img2col.source_end,
            ),
            Shape(("m", "k"), hi=4095, follows_rank=False),
            Int("m_start", 0, doc="first output position"),
            Int("k_start", 0, doc="first column, a multiple of c0"),
            Shape(("h", "w"), hi=32767, follows_rank=False),
            Int("c1_stride", 0, doc="elements between channel blocks"),
            Shape(("kh", "kw"), hi=255, follows_rank=False),
            Shape(("stride_h", "stride_w"), hi=63, follows_rank=False),
            Shape(("dilation_h", "dilation_w"), hi=255, follows_rank=False),
            Int("pad_top", 0, 255),
            Int("pad_left", 0, 255),
            Int("pad_bottom", 0, 255),
            Int("pad_right", 0, 255),
            Float("pad_value"),
        ),
        (_CUBE,),
        (path_exists, windows_exist, starts_at_block),
        img2col.img2col,
        _window_timing,
    ),
    _vector_load(245, "ldbt", "bt", "a bias, one element per column of C, to BT", "fp32", "int32"),
    _vector_load(246, "ldfb", "fb", "scales, one per column of C, to FB", "fp32"),
    _row(
        247,
        "filll1",
        Queue.MTE1,
        "L1 = value, strided; integers are cut and saturated",
        (Tensor("dst", "w", "l1"), Shape(), Float("value")),
        (dtypes(*NUMBERS), RANK),
        (fill_path_exists, destination_strides_differ),
        _fill,
        _fill_timing,
    ),
    _fill_l0(248, "l0a"),
    _fill_l0(249, "l0b"),
    _row(
        250,
        "l1ub",
        Queue.MTE1,
        "dst = src from L1 to UB, strided on both sides",
        (Tensor("dst", "w", "ub"), Tensor("src", "r", "l1"), Shape()),
        (_ANY, RANK),
        (path_exists, destination_strides_differ),
        lambda args, source: source,
    ),
    _vector_load(
        251,
        "ldbtw",
        "bt",
        "a bias, one element per column of C, to BT, where it is as wide as the sums of such factors",
        *("fp16", "bf16"),
        held_as="@accumulator",
    ),
]

ROWS = [*_FROM_FAR, *_MEETING, *_FROM_L1]
