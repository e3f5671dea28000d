"""THE instruction table: every row, from the class files beside this one, by opcode and by mnemonic.

One class of instructions per file; a file is a list called ``ROWS``. Opcodes are written in the rows, never
derived, so that a program encoded today decodes tomorrow. Each file owns the opcode range named beside it.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import import_module

from compiler.isa.model import Row

# file -> first opcode it owns; the range ends where the next one begins (1024 at the end).
CLASSES: dict[str, int] = {
    "scalar": 0,  # integer and float arithmetic of the scalar unit
    "control": 128,  # branches, loops, tiling data, system registers, scalar memory access
    "sync": 192,  # flags, barriers, cross-core flags
    "load": 224,  # DDR / LLB -> on-chip, and L1 -> L0 / BT / FB
    "store": 288,  # UB -> L1 / LLB / DDR
    "cube": 320,  # matrix products
    "fixpipe": 352,  # L0C -> everywhere
    "vector_unary": 384,
    "vector_binary": 448,
    "vector_scalar": 512,
    "vector_fused": 576,
    "vector_compare": 608,
    "vector_reduce": 640,
    "vector_scan": 704,
    "vector_cast": 736,
    "vector_move": 768,  # broadcast, transpose, interleave, flip, fill
    "vector_gather": 832,  # gather, scatter, masks to indices
    "vector_sort": 896,
    "vector_pool": 928,
    "vector_random": 960,
}


class TableError(Exception):
    """The table contradicts itself: a bug in tilewright."""


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """All rows, in opcode order."""
    found: list[Row] = []
    limits = [*list(CLASSES.values())[1:], 1024]
    for (name, first), end in zip(CLASSES.items(), limits, strict=True):
        for row in import_module(f"{__name__}.{name}").ROWS:
            if not first <= row.opcode < end:
                raise TableError(f"{row.mnemonic}: opcode {row.opcode} is outside {name}'s range {first}..{end - 1}")
            object.__setattr__(row, "category", name)
            found.append(row)
    for key in ("opcode", "mnemonic"):
        values = [getattr(row, key) for row in found]
        if len(set(values)) != len(values):
            raise TableError(f"{key} used twice: {sorted(v for v in set(values) if values.count(v) > 1)}")
    return tuple(sorted(found, key=lambda row: row.opcode))


@lru_cache(maxsize=1)
def by_opcode() -> dict[int, Row]:
    return {row.opcode: row for row in rows()}


@lru_cache(maxsize=1)
def by_mnemonic() -> dict[str, Row]:
    return {row.mnemonic: row for row in rows()}


@lru_cache(maxsize=1)
def table_hash() -> str:
    """sha256 over all that a stored program relies on: opcodes, modifiers, slots and their ranges, rules and docs."""
    digest = hashlib.sha256()
    for row in rows():
        operands = [
            (type(o).__name__, *(getattr(o, f, None) for f in ("name", "role", "memory", "dtype", "lo", "hi", "lacks")))
            for o in row.operands
        ]
        rules = [rule.__doc__ for rule in row.rules]
        digest.update(
            repr((row.opcode, row.mnemonic, str(row.queue), row.modifiers, operands, rules, row.doc)).encode()
        )
    return digest.hexdigest()
