"""Every load against index arithmetic on noise, and the operands each rule refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler.isa.dtypes import DTYPES
from compiler.isa.model import Row
from compiler.isa.table.load import ROWS
from tests.isa.table.copy_machine import (
    TW1,
    TW2,
    Machine,
    bound,
    form_name,
    forms,
    k0_of,
    l0a,
    l0b,
    nz,
    refused,
    same_bits,
    strided,
    up,
    zero_extended,
)

BY_NAME = {row.mnemonic: row for row in ROWS}
MATRICES = [(1, 1), (5, 7), (16, 32), (17, 33), (31, 100), (64, 16)]
Mods = dict[str, str]
Check = Callable[[Machine, Row, Mods, str], None]


def _strided_copy(source: str, target: str) -> Check:
    def check(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
        src, dst = mods.get("source", source), mods.get("target", target)
        for n2, n1, n0 in [(1, 1, 1), (3, 5, 7), (2, 9, 33)]:
            rank = int(mods["rank"][0])
            shape = (n2, n1, n0)[-rank:]
            src_strides = ((n0 * 2 + 1) * n1 + 3, n0 * 2 + 1, 2)[-rank:]
            dst_strides = ((n0 + 4) * n1, n0 + 4, 1)[-rank:]
            values = machine.noise(dtype, *shape)
            machine.poke(src, 512, dtype, strided(shape, src_strides), values)
            axes = range(rank)[::-1]
            slots = {"dst": 64} | {f"dst_s{a}": s for a, s in zip(axes, dst_strides, strict=True)}
            slots |= {"src": 512} | {f"src_s{a}": s for a, s in zip(axes, src_strides, strict=True)}
            machine.run(row, mods, **slots, **{f"n{a}": n for a, n in zip(axes, shape, strict=True)})
            assert same_bits(machine.peek(dst, 64, dtype, strided(shape, dst_strides)), values)

    return check


def ldpad(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
    for rows, cols, left, right, pad in [
        (3, 7, 0, 0, 0.0),
        (4, 33, 2, 5, -1.5),
        (5, 8, 0, 3, 300.7),
        (2, 2, 1, 0, -1e9),
    ]:
        values, width = machine.noise(dtype, rows, cols), left + cols + right
        machine.poke(mods["source"], 96, dtype, strided((rows, cols), (cols + 1, 1)), values)
        machine.run(row, mods, dst=32, src=96, rows=rows, cols=cols, src_stride=cols + 1, dst_stride=width + 2,
                    left=left, right=right, pad=pad)  # fmt: skip
        kind = DTYPES[dtype]
        limits = (0, 0) if kind.is_float else (np.iinfo(kind.numpy).min, np.iinfo(kind.numpy).max)
        element = pad if kind.is_float else min(max(int(pad), limits[0]), limits[1])
        with np.errstate(over="ignore"):
            expected = np.full((rows, width), np.array(element).astype(kind.numpy))
        expected[:, left : left + cols] = values
        assert same_bits(machine.peek(mods["target"], 32, dtype, strided((rows, width), (width + 2, 1))), expected)


def _to_nz(transposed: bool) -> Check:
    def check(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
        for rows, cols in MATRICES:
            values, wide = machine.noise(dtype, rows, cols), up(cols, k0_of(dtype))
            held = values.T if transposed else values
            stride = held.shape[1] + 3
            machine.poke(mods.get("source", "ddr"), 160, dtype, strided(held.shape, (stride, 1)), held)
            machine.run(row, mods, dst=64, src=160, rows=rows, cols=cols, src_stride=stride, dst_pitch=rows + 2)
            found = machine.peek("l1", 64, dtype, nz(rows, wide, rows + 2, dtype))
            assert same_bits(found, zero_extended(values, rows, wide))

    return check


def ldc1(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
    for c, h, w in [(1, 1, 1), (3, 5, 7), (37, 4, 9), (64, 3, 2)]:
        for strides in [(h * w, w, 1), (1, w * c, c), (h * w + 5, w + 1, 1)]:  # NCHW, NHWC, rows apart
            values, c0 = machine.noise(dtype, c, h, w), k0_of(dtype)
            machine.poke(mods["source"], 32, dtype, strided((c, h, w), strides), values)
            apart = h * w * c0 + c0
            machine.run(row, mods, dst=96, src=32, src_s2=strides[0], src_s1=strides[1], src_s0=strides[2],
                        c=c, h=h, w=w, c1_stride=apart)  # fmt: skip
            full = np.zeros((up(c, c0), h, w), values.dtype)
            full[:c] = values
            ch, y, x = np.indices(full.shape)
            assert same_bits(machine.peek("l1", 96, dtype, ch // c0 * apart + (y * w + x) * c0 + ch % c0), full)


def ldgather(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
    for rows, cols, table_rows in [(1, 1, 1), (7, 33, 11), (20, 8, 3)]:
        table = machine.noise(dtype, table_rows, cols)
        index = machine.rng.integers(-2, table_rows + 2, rows).astype(np.int32)
        machine.poke(mods["source"], 64, dtype, strided(table.shape, (cols + 1, 1)), table)
        machine.poke("ub", 32768, "int32", np.arange(rows), index)
        machine.run(row, mods, dst=0, src=64, index=32768, rows=rows, cols=cols, dst_stride=cols + 2,
                    table_rows=table_rows, table_stride=cols + 1)  # fmt: skip
        found = machine.peek("ub", 0, dtype, strided((rows, cols), (cols + 2, 1)))
        for i, at in enumerate(index):
            expected = table[at] if 0 <= at < table_rows else np.zeros(cols, table.dtype)
            assert same_bits(found[i], expected)


def ldrep(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
    values = machine.noise(dtype, 1, 33)
    machine.poke(mods["source"], 64, dtype, np.arange(33)[None], values)
    machine.run(row, mods, dst=32, src=64, rows=5, cols=33, dst_stride=40)
    assert same_bits(machine.peek("ub", 32, dtype, strided((5, 33), (40, 1))), np.repeat(values, 5, axis=0))


def _to_l0a(transposed: bool) -> Check:
    def check(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
        for m, k in MATRICES:
            values, k0 = machine.noise(dtype, m, k), k0_of(dtype)
            held = values.T if transposed else values
            pitch = held.shape[0] + 1
            machine.poke("l1", 32, dtype, nz(*held.shape, pitch, dtype), held)
            machine.run(row, mods, dst=512, src=32, m=m, k=k, src_pitch=pitch)
            found = machine.peek("l0a", 512, dtype, l0a(up(m, 16), up(k, k0), k, dtype))
            assert same_bits(found, zero_extended(values, up(m, 16), up(k, k0)))

    return check


def _to_l0b(transposed: bool) -> Check:
    def check(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
        for k, n in MATRICES:
            values, k0 = machine.noise(dtype, k, n), k0_of(dtype)
            held = values.T if transposed else values
            pitch = held.shape[0] + 1
            machine.poke("l1", 32, dtype, nz(*held.shape, pitch, dtype), held)
            machine.run(row, mods, dst=512, src=32, k=k, n=n, src_pitch=pitch)
            found = machine.peek("l0b", 512, dtype, l0b(up(k, k0), up(n, 16), n, dtype))
            assert same_bits(found, zero_extended(values, up(k, k0), up(n, 16)))

    return check


# Operand, and what integers make of it.
PAD_VALUES = [(0.0, 0), (2.5, 2), (-1.0, -1), (-300.0, -128), (300.0, 127)]
# h, w, kernel, stride, dilation, pads (top, left, bottom, right), channel blocks
WINDOWS = [
    (1, 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1),
    (5, 7, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 2),
    (9, 6, (3, 2), (2, 3), (1, 1), (0, 2, 1, 0), 1),
    (11, 10, (2, 3), (1, 2), (3, 2), (2, 0, 3, 4), 3),
    (4, 4, (3, 3), (1, 1), (1, 1), (9, 9, 9, 9), 1),  # whole windows in the padding
]


def _im2col(
    image: np.ndarray, case: tuple[Any, ...], padding: float, m_start: int, m: int, k_start: int, k: int
) -> np.ndarray:
    """[c1][h][w][c0] -> rows and columns of the im2col matrix, one element at a time."""
    h, w, (kh, kw), (sh, sw), (dh, dw), (top, left, _, right), _ = case
    wo = (w + left + right - dw * (kw - 1) - 1) // sw + 1
    out = np.full((m, k), padding, image.dtype)
    for i in range(m):
        oy, ox = (m_start + i) // wo, (m_start + i) % wo
        for j in range(k):
            rest, c0 = divmod(k_start + j, image.shape[3])
            rest, s = divmod(rest, kw)
            c1, r = divmod(rest, kh)
            y, x = oy * sh + r * dh - top, ox * sw + s * dw - left
            if 0 <= y < h and 0 <= x < w:
                out[i, j] = image[c1, y, x, c0]
    return out


def img2col(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
    c0 = k0_of(dtype)
    for case, (pad_value, of_integers) in zip(WINDOWS, PAD_VALUES, strict=True):
        h, w, (kh, kw), stride, dilation, pads, c1 = case
        padding = of_integers if dtype == "int8" else pad_value
        image, apart = machine.noise(dtype, c1, h, w, c0), h * w * c0 + c0
        place = strided(image.shape, (apart, w * c0, c0, 1))
        ho = (h + pads[0] + pads[2] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
        wo = (w + pads[1] + pads[3] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
        window, columns = kh * kw * c0, c1 * kh * kw * c0
        starts = {(0, min(17, ho * wo), 0, min(columns, 3 * c0 + 1)), (ho * wo - 1, 1, columns - c0, c0)}
        starts.add((ho * wo // 2, ho * wo // 4 + 1, columns // 2 // c0 * c0, min(columns - columns // 2, 2 * c0)))
        starts.add((0, 1, window - c0, min(columns - window + c0, 2 * c0)))  # over the seam of two channel blocks
        for m_start, m, k_start, k in sorted(starts):
            m = min(m, ho * wo - m_start)
            machine.poke("l1", 64, dtype, place, image)
            machine.run(row, mods, dst=512, src=64, m=m, k=k, m_start=m_start, k_start=k_start, h=h, w=w,
                        c1_stride=apart, kh=kh, kw=kw, stride_h=stride[0], stride_w=stride[1],
                        dilation_h=dilation[0], dilation_w=dilation[1], pad_top=pads[0], pad_left=pads[1],
                        pad_bottom=pads[2], pad_right=pads[3], pad_value=pad_value)  # fmt: skip
            expected = zero_extended(_im2col(image, case, padding, m_start, m, k_start, k), up(m, 16), up(k, c0))
            assert same_bits(machine.peek("l0a", 512, dtype, l0a(*expected.shape, k, dtype)), expected)


def _to_table(memory: str) -> Check:
    def check(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
        for n in (1, 16, 77):
            values = machine.noise(dtype, n)
            machine.poke("l1", 96, dtype, np.arange(n), values)
            machine.run(row, mods, dst=64, src=96, n=n)
            assert same_bits(machine.peek(memory, 64, dtype, np.arange(n)), values)

    return check


def ldbtw(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
    for n in (1, 16, 77):
        values = machine.noise(dtype, n)
        machine.poke("l1", 96, dtype, np.arange(n), values)
        machine.run(row, mods, dst=64, src=96, n=n)
        assert same_bits(machine.peek("bt", 64, "fp32", np.arange(n)), values.astype(np.float32))


def _constant(dtype: str, value: float) -> np.ndarray:
    kind = DTYPES[dtype]
    if kind.is_float:
        return np.array(value).astype(kind.numpy)
    return np.array(min(max(int(value), np.iinfo(kind.numpy).min), np.iinfo(kind.numpy).max), kind.numpy)


def filll1(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
    rank = int(mods["rank"][0])
    shape, strides, axes = (3, 5, 7)[-rank:], (100, 9, 1)[-rank:], range(rank)[::-1]
    slots = {f"dst_s{a}": s for a, s in zip(axes, strides, strict=True)}
    slots |= {f"n{a}": n for a, n in zip(axes, shape, strict=True)}
    machine.run(row, mods, dst=96, **slots, value=-129.5)
    expected = np.full(shape, _constant(dtype, -129.5))
    assert same_bits(machine.peek("l1", 96, dtype, strided(shape, strides)), expected)


def _fill(memory: str) -> Check:
    def check(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
        machine.run(row, mods, dst=512, n=777, value=3.25)
        assert same_bits(machine.peek(memory, 512, dtype, np.arange(777)), np.full(777, _constant(dtype, 3.25)))

    return check


CHECKS: dict[str, Check] = {
    "ld": _strided_copy("", ""),
    "ldpad": ldpad,
    "ldnz": _to_nz(False),
    "ldnzt": _to_nz(True),
    "pld": _strided_copy("ddr", ""),
    "pldnz": _to_nz(False),
    "pldnzt": _to_nz(True),
    "ldc1": ldc1,
    "ldgather": ldgather,
    "ldrep": ldrep,
    "ldl0a": _to_l0a(False),
    "ldl0at": _to_l0a(True),
    "ldl0b": _to_l0b(False),
    "ldl0bt": _to_l0b(True),
    "img2col": img2col,
    "ldbt": _to_table("bt"),
    "ldbtw": ldbtw,
    "ldfb": _to_table("fb"),
    "filll1": filll1,
    "filll0a": _fill("l0a"),
    "filll0b": _fill("l0b"),
    "l1ub": _strided_copy("l1", "ub"),
}
NO_PATH = {("llb", "llb")}


@pytest.mark.parametrize(("row", "mods"), forms(ROWS), ids=form_name)
def test_against_the_oracle(row: Row, mods: Mods) -> None:
    if (mods.get("source"), mods.get("target")) in NO_PATH:
        return
    CHECKS[row.mnemonic](Machine(row.opcode), row, mods, mods["dtype"])


WINDOW = {
    "dst": 0, "src": 0, "m": 4, "k": 16, "m_start": 0, "k_start": 0, "h": 8, "w": 8, "c1_stride": 1024,
    "kh": 3, "kw": 3, "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1,
    "pad_top": 0, "pad_left": 0, "pad_bottom": 0, "pad_right": 0, "pad_value": 0,
}  # fmt: skip
NZ = {"dst": 0, "src": 0, "rows": 8, "cols": 40, "src_stride": 40, "dst_pitch": 8}
GATHER = {"dst": 0, "src": 0, "index": 4096, "rows": 4, "cols": 8, "dst_stride": 8, "table_rows": 9, "table_stride": 8}
DST_ZERO_STRIDE = {"dst": 0, "dst_s0": 0, "src": 0, "src_s0": 1, "n0": 2}
REFUSED: list[tuple[str, str, dict[str, float], dict[str, float], str]] = [
    # row, modifiers, legal operands, what makes them illegal, the rule
    ("ld", "ddr.ub.fp16.1d", DST_ZERO_STRIDE | {"dst_s0": 1}, {"dst_s0": 0}, "destination_strides_differ"),
    ("l1ub", "fp16.1d", DST_ZERO_STRIDE | {"dst_s0": 1}, {"dst_s0": 0}, "destination_strides_differ"),
    ("filll1", "fp16.1d", {"dst": 0, "dst_s0": 1, "n0": 2, "value": 0}, {"dst_s0": 0}, "destination_strides_differ"),
    ("ldpad", "ddr.ub.fp16", {"dst": 0, "src": 0, "rows": 2, "cols": 4, "src_stride": 4, "dst_stride": 8, "left": 2,
     "right": 2, "pad": 0}, {"dst_stride": 7}, "destination_strides_differ"),
    ("ldnz", "ddr.fp16", NZ, {"dst_pitch": 7}, "pitch_covers_rows"),
    ("ldnzt", "ddr.fp16", NZ, {"dst_pitch": 7}, "pitch_covers_rows"),
    ("pld", "llb.fp16.1d", DST_ZERO_STRIDE | {"dst_s0": 1}, {"dst_s0": 0}, "destination_strides_differ"),
    ("pldnz", "fp16", NZ, {"dst_pitch": 7}, "pitch_covers_rows"),
    ("pldnzt", "fp16", NZ, {"dst_pitch": 7}, "pitch_covers_rows"),
    ("ldc1", "ddr.fp16", {"dst": 0, "src": 0, "src_s2": 9, "src_s1": 3, "src_s0": 1, "c": 20, "h": 3, "w": 3,
     "c1_stride": 144}, {"c1_stride": 143}, "destination_strides_differ"),
    ("ldgather", "ddr.fp16", GATHER, {"dst_stride": 7}, "destination_strides_differ"),
    ("ldgather", "ddr.fp16", GATHER, {"index": 48}, "sources_overlap_wholly_or_not"),
    ("ldrep", "ddr.fp16", {"dst": 0, "src": 0, "rows": 2, "cols": 8, "dst_stride": 8}, {"dst_stride": 7},
     "destination_strides_differ"),
    ("ldl0a", "fp16", {"dst": 0, "src": 0, "m": 8, "k": 17, "src_pitch": 8}, {"src_pitch": 7}, "pitch_covers_rows"),
    ("ldl0at", "fp16", {"dst": 0, "src": 0, "m": 17, "k": 8, "src_pitch": 8}, {"src_pitch": 7}, "pitch_covers_rows"),
    ("ldl0b", "fp16", {"dst": 0, "src": 0, "k": 8, "n": 17, "src_pitch": 8}, {"src_pitch": 7}, "pitch_covers_rows"),
    ("ldl0bt", "fp16", {"dst": 0, "src": 0, "k": 17, "n": 8, "src_pitch": 8}, {"src_pitch": 7}, "pitch_covers_rows"),
    ("img2col", "fp16", WINDOW, {"kh": 9}, "windows_exist"),
    ("img2col", "fp16", WINDOW, {"m_start": 33}, "windows_exist"),
    ("img2col", "fp16", WINDOW, {"k_start": 8}, "starts_at_block"),
]  # fmt: skip


@pytest.mark.parametrize(("mnemonic", "mods", "legal", "change", "rule"), REFUSED)
def test_a_rule_refuses(mnemonic: str, mods: str, legal: dict[str, float], change: dict[str, float], rule: str) -> None:
    row = BY_NAME[mnemonic]
    chosen = dict(zip((m.name for m in row.modifiers), mods.split("."), strict=True))
    assert refused(bound(row, chosen, legal)) == []
    assert refused(bound(row, chosen, legal | change)) == [rule]


def test_a_path_must_exist() -> None:
    mods = {"source": "llb", "target": "llb", "dtype": "fp16", "rank": "1d"}
    slots = {"dst": 0, "dst_s0": 1, "src": 0, "src_s0": 1, "n0": 2}
    assert refused(bound(BY_NAME["ld"], mods, slots)) == ["path_exists"]
    table = {"dst": 0, "src": 0, "n": 4}
    assert refused(bound(BY_NAME["ldbt"], {"dtype": "fp32"}, table)) == []
    assert refused(bound(BY_NAME["ldbt"], {"dtype": "fp32"}, table, TW1)) == ["path_exists"]


def test_a_fill_needs_the_path_of_its_memory() -> None:
    without = TW2.from_dict(TW2.to_dict() | {"path": {k: v for k, v in TW2.to_dict()["path"].items() if k != "l1_l0b"}})
    args = bound(BY_NAME["filll0b"], {"dtype": "fp16"}, {"dst": 0, "n": 4, "value": 0}, without)
    assert refused(args) == ["fill_path_exists"]


def test_every_rule_is_seen_to_refuse() -> None:
    tested = {(name, rule) for name, *_, rule in REFUSED}
    for row in ROWS:
        for rule in row.rules:
            assert rule.__name__ in ("path_exists", "fill_path_exists") or (row.mnemonic, rule.__name__) in tested


def test_operands_out_of_range_do_not_stop_the_binding() -> None:
    args = bound(BY_NAME["img2col"], {"dtype": "fp16"}, dict.fromkeys(WINDOW, 0))
    assert len(args.views) == 2


def test_img2col_reads_only_the_rows_and_channels_of_its_windows() -> None:
    slots = WINDOW | {"src": 64, "m": 6, "m_start": 12, "k": 48, "k_start": 9 * 16 + 16 * 3}
    view = bound(BY_NAME["img2col"], {"dtype": "fp16"}, slots).view("src")
    assert (view.address, view.shape) == (
        64 + 2 * (1024 + 3 * 8 * 16),
        (1, 1, 8, 16),
    )  # c1 = 1, output row 2, kernel row 1
    many = bound(BY_NAME["img2col"], {"dtype": "fp16"}, slots | {"k_start": 0, "k": 160, "m": 7}).view("src")
    assert (many.address, many.shape) == (64 + 2 * 2 * 8 * 16, (2, 4, 8, 16))


def _cycles(mnemonic: str, mods: str, slots: dict[str, float]) -> tuple[int, int]:
    row = BY_NAME[mnemonic]
    args = bound(row, dict(zip((m.name for m in row.modifiers), mods.split("."), strict=True)), slots)
    assert row.timing is not None
    timing = row.timing(args)
    return timing.cycles, timing.line_bytes


def test_a_ragged_fractal_load_runs_at_the_lower_rate() -> None:
    whole = _cycles("ldnz", "ddr.fp16", NZ | {"cols": 64, "src_stride": 64})[1]
    assert whole == 8 * 128
    assert (
        _cycles("ldnz", "ddr.fp16", NZ | {"cols": 63, "src_stride": 64})[1]
        == whole * 100 // TW2.transfer.ragged_nz_percent
    )


def test_a_gathered_row_moves_its_own_lines() -> None:
    assert _cycles("ldgather", "ddr.fp16", GATHER)[1] == 4 * 128


def test_repeated_elements_take_their_time_to_be_written() -> None:
    cycles, lines = _cycles("ldrep", "ddr.fp16", {"dst": 0, "src": 0, "rows": 64, "cols": 512, "dst_stride": 512})
    assert lines == 1024
    assert cycles == -(-64 * 1024 // TW2.path["ddr_ub"].bytes_per_cycle)


def test_img2col_costs_what_it_writes() -> None:
    assert (
        _cycles("img2col", "fp16", WINDOW | {"m": 16, "k": 144})[0]
        == 16 * 144 * 2 // TW2.path["l1_l0a"].bytes_per_cycle
    )
