"""The scalar unit as the last resort: the nest as it is, one element at a time, where the unit has the arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compiler.emission import calls
from compiler.emission.candidates import Candidate, Found, Rejection, recogniser
from compiler.emission.nest import Nest
from compiler.emission.terms import Term
from compiler.isa.dtypes import DTYPES, FLOATS
from compiler.target import Chip

_COMPARISONS = frozenset({"eq", "ne", "lt", "le"})
_LOGIC = frozenset({"and", "or", "not", "where", "cast"})
_FLOAT = frozenset({"add", "sub", "mul", "div", "min", "max", "neg", "sqrt", "abs"})
_INTEGER = frozenset(
    {"add", "sub", "mul", "div", "fmod", "floordiv", "mod", "min", "max", "neg", "xor", "shl", "shr", "abs"}
)
_LEAVES = frozenset({"const", "scalar", "index"})


@recogniser
def element_by_element(nest: Nest, chip: Chip) -> Iterator[Found]:
    """Loops of the scalar unit around one store."""
    if nest.target.memory not in ("ub", "ddr"):
        return
    steps = 0
    stack = [nest.value]
    while stack:
        term = stack.pop()
        steps += 1
        reason = _missing(term)
        if reason:
            yield Rejection("scalar", reason)
            return
        stack.extend(term.args)
    cycles = steps + _access_cycles(nest.target.memory, chip)
    cycles += sum(_access_cycles(source.memory, chip) for source in nest.sources)
    yield Candidate(
        "scalar",
        cycles,
        nest.iterations,
        lambda: _built(nest),
        "scalar",
        "element by element",
        chip.scalar.branch_taken_cycles,
    )


def _missing(term: Term) -> str:
    """What the scalar unit lacks for this operation; empty if nothing."""
    if term.dtype not in DTYPES:
        return f"there are no numbers of {term.dtype}"
    if term.op == "load":
        memory = term.value.memory
        return "" if memory in ("ub", "ddr") else f"the scalar unit does not reach {memory}"
    if term.op in _LEAVES or term.op in _LOGIC or term.op in _COMPARISONS:
        return ""
    known = _FLOAT if term.dtype in FLOATS else _INTEGER
    return "" if term.op in known else f"the scalar unit has no {term.op} of {term.dtype}"


def _access_cycles(memory: str, chip: Chip) -> int:
    return chip.scalar.memory_cycles if memory == "ub" else chip.scalar.memory_far_cycles


def _built(nest: Nest) -> Any:
    return calls.around(nest.loops, nest.store)
