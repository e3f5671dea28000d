"""From an instruction back to the model: the statement it came from, the kernel, the ONNX nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from compiler.errors import HazardError, Problem
from compiler.runtime.kernel_cycles import kernel_of, plain_name
from compiler.runtime.model import CompiledModel, ProgramSegment

_INSTRUCTION = re.compile(r"\(instruction (\d+)")
MAX_NODES = 4


def statement_of(segment: ProgramSegment, index: int) -> str:
    """What an instruction of a compiled program was before it was one; empty where nobody knows."""
    line = segment.program.lines[index] if index < len(segment.program.lines) else 0
    return segment.listing[line - 1] if 0 < line <= len(segment.listing) else ""


def nodes_of(model: CompiledModel, segment: ProgramSegment, index: int) -> tuple[str, ...]:
    """The ONNX nodes that the instruction's kernel does."""
    return dict(model.kernels).get(plain_name(kernel_of(segment.program, index)), ())


def traced(error: HazardError, model: CompiledModel, segment: ProgramSegment) -> HazardError:
    """The error with the statement and the nodes of every instruction that it names."""
    return HazardError([_traced(problem, model, segment) for problem in error.problems])


def _traced(problem: Problem, model: CompiledModel, segment: ProgramSegment) -> Problem:
    named = dict.fromkeys(int(number) for number in _INSTRUCTION.findall(problem.message))
    return replace(problem, hint="; ".join([problem.hint, *_sources(named, model, segment)]).removeprefix("; "))


def _sources(named: Iterable[int], model: CompiledModel, segment: ProgramSegment) -> list[str]:
    found = []
    for index in named:
        statement, nodes = statement_of(segment, index), nodes_of(model, segment, index)
        if statement or nodes:
            of = f" of {', '.join(nodes[:MAX_NODES])}" if nodes else ""
            found.append(f"instruction {index} is {statement or 'code'}{of}")
    return found
