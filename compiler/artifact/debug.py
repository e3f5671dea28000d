"""The debug section: where each instruction of each program comes from. An artifact runs the same without it.

An instruction has a line. In a program that was compiled, the line is one of its listing, which says what the statement
was, and the label before the instruction is the use of a kernel, whose ONNX nodes the manifest names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compiler.artifact.typed import MAX_TEXT_CHARS, SchemaFault, array, integer, record, shown, text
from compiler.isa.program import MAX_INSTRUCTIONS, Program
from compiler.runtime.model import ProgramSegment

MAX_LINE = 2**31 - 1
MAX_LABELS = MAX_LISTING = 1 << 20


def build(segments: Sequence[ProgramSegment]) -> list[dict[str, Any]]:
    """The lines as runs of equal steps, since most instructions stand one line below the one before."""
    return [
        {
            "line_steps": _steps(segment.program.lines),
            "labels": [[name, index] for name, index in segment.program.labels],
            "listing": [line[:MAX_TEXT_CHARS] for line in segment.listing],
        }
        for segment in segments
    ]


def is_empty(tables: Sequence[dict[str, Any]]) -> bool:
    return not any(content for table in tables for content in table.values())


def _steps(lines: tuple[int, ...]) -> list[int]:
    """``[step, count, step, count, ...]``: by how much the line grows, and for how many instructions in a row."""
    steps = np.diff(np.array(lines, np.int64), prepend=0)
    if not steps.size:
        return []
    starts = np.concatenate([[0], np.flatnonzero(np.diff(steps)) + 1])
    counts = np.diff(starts, append=steps.size)
    flat: list[int] = np.stack([steps[starts], counts], axis=1).reshape(-1).tolist()
    return flat


def read(tables: object, programs: Sequence[Program]) -> tuple[ProgramSegment, ...]:
    """The programs with what is known of their instructions; raises SchemaFault."""
    found = array(tables, "debug", len(programs), lambda v, w: record(v, w, ("line_steps", "labels", "listing")))
    if len(found) != len(programs):
        raise SchemaFault(f"debug has {len(found)} items; the artifact has {len(programs)} programs")
    return tuple(_segment(table, f"debug[{i}]", programs[i]) for i, table in enumerate(found))


def _segment(table: dict[str, Any], where: str, program: Program) -> ProgramSegment:
    count = len(program.instrs)
    labels = array(table["labels"], f"{where}.labels", MAX_LABELS, lambda v, w: _label(v, w, count))
    listing = array(table["listing"], f"{where}.listing", MAX_LISTING, text)
    lines = _lines(table["line_steps"], f"{where}.line_steps", count)
    if listing and lines and max(lines) > len(listing):
        raise SchemaFault(f"{where}.line_steps leads to line {max(lines)}; the listing has {len(listing)}")
    return ProgramSegment(replace(program, lines=lines, labels=labels), listing)


def _lines(value: object, where: str, instructions: int) -> tuple[int, ...]:
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
