"""The debug section: where each instruction comes from. An artifact runs the same without it."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.artifact.typed import SchemaFault, array, integer, record, shown, text
from compiler.isa.program import MAX_INSTRUCTIONS, Program

MAX_LINE = 2**31 - 1
MAX_LABELS = 1 << 20

Labels = tuple[tuple[str, int], ...]


def build(program: Program) -> dict[str, Any]:
    """The lines as runs of equal steps, since most instructions stand one line below the one before."""
    return {"line_steps": _steps(program.lines), "labels": [[name, index] for name, index in program.labels]}


def _steps(lines: tuple[int, ...]) -> list[int]:
    """``[step, count, step, count, ...]``: by how much the line grows, and for how many instructions in a row."""
    steps = np.diff(np.array(lines, np.int64), prepend=0)
    if not steps.size:
        return []
    starts = np.concatenate([[0], np.flatnonzero(np.diff(steps)) + 1])
    counts = np.diff(starts, append=steps.size)
    flat: list[int] = np.stack([steps[starts], counts], axis=1).reshape(-1).tolist()
    return flat


def read(tables: object, instructions: int) -> tuple[tuple[int, ...], Labels]:
    """(line of each instruction, labels); raises SchemaFault."""
    top = record(tables, "debug", ("line_steps", "labels"))
    labels = array(top["labels"], "debug.labels", MAX_LABELS, lambda v, w: _label(v, w, instructions))
    return _lines(top["line_steps"], instructions), labels


def _lines(value: object, instructions: int) -> tuple[int, ...]:
    where = "debug.line_steps"
    flat = array(value, where, 2 * MAX_INSTRUCTIONS, lambda v, w: integer(v, w, -MAX_LINE, MAX_LINE))
    if not flat:
        return ()
    if len(flat) % 2:
        raise SchemaFault(f"{where} has {len(flat)} items; allowed: pairs")
    steps, counts = np.array(flat[::2], np.int64), np.array(flat[1::2], np.int64)
    if counts.min() < 1 or int(counts.sum()) != instructions:
        raise SchemaFault(f"{where} gives lines to {int(counts.sum())} instructions; the program has {instructions}")
    lines = np.cumsum(np.repeat(steps, counts))
    if lines.min() < 0 or lines.max() > MAX_LINE:
        raise SchemaFault(f"{where} leads to line {int(lines.min())} to {int(lines.max())}; allowed: 0 to {MAX_LINE}")
    found: list[int] = lines.tolist()
    return tuple(found)


def _label(value: object, where: str, instructions: int) -> tuple[str, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise SchemaFault(f"{where} is {shown(value)}; allowed: a name and an instruction")
    return text(value[0], f"{where}[0]"), integer(value[1], f"{where}[1]", 0, instructions)
