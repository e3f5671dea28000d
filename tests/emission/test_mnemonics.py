"""Every row that says what it computes is found for some expression that a TE operator may have."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import ir, tirx

from compiler.emission.candidates import Candidate, recognise
from compiler.emission.expressions import operation
from compiler.emission.nest import Nest, Surroundings, make_nest
from compiler.emission.patterns import Pattern, Spelling, spellings
from compiler.emission.reductions import overwriting
from compiler.emission.terms import Term
from compiler.isa.dtypes import DTYPES, FLOATS, INTS
from compiler.isa.model import Float, Int, Row
from compiler.isa.table import rows
from compiler.target import load_chip
from compiler.tir.scopes import TIR_DTYPE

CHIP = load_chip("tw2")
ROWS = {row.mnemonic: row for row in rows() if row.computes}
EXTENTS = (6, 32)


def _int(value: int) -> Any:
    return tirx.IntImm("int32", value)


class _Case:
    """A nest that stores what a spelling says, on one choice of types."""

    def __init__(self, spelling: Spelling, mods: dict[str, str]) -> None:
        self.row, self.spelling, self.mods = spelling.row, spelling, mods
        self.loops = [(ir.Var(name, ir.PrimType("int32")), n) for name, n in zip("ij", EXTENTS, strict=True)]
        self.buffers: dict[str, Any] = {}
        self.to = self._type(self.row.tensors[0].dtype)

    def _type(self, reference: str) -> str:
        return self.mods[reference[1:]] if reference.startswith("@") else reference

    def _buffer(self, name: str) -> Any:
        if name not in self.buffers:
            tensor = self.row.tensors[self.row.tensor_index[name]]
            self.buffers[name] = tirx.decl_buffer(EXTENTS, TIR_DTYPE[self._type(tensor.dtype)], name, scope="local.ub")
        return self.buffers[name]

    def nest(self) -> Nest:
        (i, _), (j, _) = self.loops
        fold = self.spelling.fold
        pattern = self.spelling.pattern.args[0] if fold else self.spelling.pattern
        value, _ = self.expression(pattern, self.to)
        buffer = self._buffer("dst")
        place = [i, j]
        if fold:
            shape = (EXTENTS[0],) if fold[1] != "n1" else (EXTENTS[1],)
            place = [i] if fold[1] != "n1" else [j]
            buffer = tirx.decl_buffer(shape, TIR_DTYPE[self.to], "dst", scope="local.ub")
            value = operation(Term(fold[0], self.to), [tirx.BufferLoad(buffer, place), value])
        store = tirx.BufferStore(buffer, value, place)
        return make_nest([(v, _int(n)) for v, n in self.loops], store, Surroundings())

    def expression(self, pattern: Pattern, dtype: str) -> tuple[Any, str]:
        """(TIR of a pattern, its type); ``dtype`` is what constants take."""
        if pattern.op == "tensor":
            load = tirx.BufferLoad(self._buffer(pattern.name), [v for v, _ in self.loops])
            return load, str(self._type(self.row.tensors[self.row.tensor_index[pattern.name]].dtype))
        if pattern.op == "dimension":
            return ({"n0": self.loops[1][0], "n1": self.loops[0][0]}.get(pattern.name, _int(0))), "int32"
        if pattern.op in ("float", "int", "const"):
            return self._number(pattern, dtype), dtype
        if pattern.op == "cast":
            value, _ = self.expression(pattern.args[0], self._operand_type(pattern.args[0]))
            to = dtype if dtype in FLOATS or pattern is self.spelling.pattern else self.to
            return tirx.Cast(TIR_DTYPE[to], value), to
        if pattern.op == "saturate":
            inner, kind = self.expression(pattern.args[0], self.mods.get("src", "fp32"))
            limits = tvm_limits(self.to)
            low, high = (tirx.const(float(x), TIR_DTYPE[kind]) for x in limits)
            return tirx.Cast(TIR_DTYPE[self.to], tirx.Min(tirx.Max(inner, low), high)), self.to
        kind = self._operand_type(pattern, dtype)
        if pattern.op == "where":
            condition, _ = self.expression(pattern.args[0], "bool")
            branches = [self.expression(arg, kind)[0] for arg in pattern.args[1:]]
            return tirx.Select(condition, *branches), kind
        args = [self.expression(arg, kind)[0] for arg in pattern.args]
        result = "bool" if pattern.op in ("eq", "ne", "lt", "le", "isnan") else kind
        return operation(Term(pattern.op, result), args), result

    def _operand_type(self, pattern: Pattern, default: str = "fp32") -> str:
        found = [
            self._type(self.row.tensors[self.row.tensor_index[leaf.name]].dtype)
            for leaf in _leaves(pattern)
            if leaf.op == "tensor" and leaf.name not in ("mask", "zero_point")
        ]
        if _has_cast(pattern):
            return self.to if self.to in FLOATS else "fp32"
        return found[0] if found else default

    def _number(self, pattern: Pattern, dtype: str) -> Any:
        values = {"low": 1, "high": 3, "scalar": 2, "scale": 4, "offset": 3, "zero_point": 5, "bias": 1, "other": 7}
        value = pattern.value if pattern.op == "const" else values.get(pattern.name, 2)
        if dtype in FLOATS:
            return tirx.FloatImm(TIR_DTYPE[dtype], float(value) + (0.25 if pattern.op == "float" else 0))
        return tirx.IntImm(TIR_DTYPE[dtype], int(value))


def tvm_limits(dtype: str) -> tuple[int, int]:
    import numpy as np

    limits = np.iinfo(DTYPES[dtype].numpy)
    return int(limits.min), int(limits.max)


def _leaves(pattern: Pattern) -> list[Pattern]:
    return [leaf for arg in pattern.args for leaf in _leaves(arg)] if pattern.args else [pattern]


def _has_cast(pattern: Pattern) -> bool:
    return pattern.op == "cast" or any(_has_cast(arg) for arg in pattern.args)


def _choices(row: Row) -> list[dict[str, str]]:
    """A choice of types: the first that exists, and integers where floats are not."""
    found: list[dict[str, str]] = [{}]
    for modifier in row.modifiers:
        if modifier.name == "rank":
            continue
        found = [{**chosen, modifier.name: choice} for chosen in found for choice in modifier.choices]
    return found


def _names(nest: Nest) -> set[str]:
    found = [*recognise(nest, CHIP), *overwriting(nest, CHIP)]
    listed = [one.instruction for one in found if isinstance(one, Candidate)]
    return {part.partition(".")[0] for name in listed for part in name.split(" + ")}


@pytest.mark.parametrize("mnemonic", sorted(ROWS))
def test_row_is_found(mnemonic: str) -> None:
    row = ROWS[mnemonic]
    tried = []
    for spelling in (one for one in spellings() if one.row is row):
        for mods in _choices(row):
            try:
                nest = _Case(spelling, mods).nest()
            except (TypeError, ValueError, RuntimeError, AttributeError):
                continue  # TIR has no such operation on this type
            names = _names(nest)
            if mnemonic in names:
                return
            tried.append((str(nest), sorted(names)))
    raise AssertionError(f"{mnemonic} is no candidate for any of {tried[:3]}")


def test_scalars_and_types_are_known() -> None:
    kinds = {type(operand) for row in ROWS.values() for operand in row.operands}
    assert {Float, Int} <= kinds
    assert set(INTS) < set(DTYPES)
