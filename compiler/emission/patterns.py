"""The ``computes`` texts of the instruction table as trees, and their matching against what a store computes.

A pattern's names are operands of the row. A tensor operand matches a term that is, or will be, data in memory; a
scalar operand matches a constant (an integer one also a number that outer loops give). Matching fixes the row's
modifiers: the types of the data decide ``@dtype``, ``@src`` and ``@to``.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from compiler.emission.terms import COMMUTATIVE, Term, saturated
from compiler.isa.dtypes import DTYPES, FLOATS, INTS
from compiler.isa.model import Float, Int, Modifier, Row, Shape, Tensor
from compiler.isa.table import rows

FOLDS = {
    f"{op}_{axis}": (term_op, axis)
    for op, term_op in (("sum", "add"), ("prod", "mul"), ("max", "max"), ("min", "min"), ("any", "or"), ("all", "and"))
    for axis in ("n0", "n1", "blocks")
}

_OPERATORS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Mod: "mod",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.And: "and",
    ast.Or: "or",
    ast.USub: "neg",
    ast.Invert: "not",
    ast.Not: "not",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
}
_FLIPPED: dict[type, str] = {ast.Gt: "lt", ast.GtE: "le"}
_CONSTANTS = {"inf": math.inf, "pi": math.pi}
_FOLDED: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "sqrt": math.sqrt,
}


@dataclass(frozen=True, slots=True)
class Pattern:
    """``op`` on ``args``, an operand's ``name``, or a constant ``value``."""

    op: str  # an operation of terms, "tensor", "float", "int", "const", "fold" or "saturate"
    args: tuple[Pattern, ...] = ()
    name: str = ""
    value: Any = None

    @property
    def size(self) -> int:
        return 1 + sum(arg.size for arg in self.args)


@dataclass(frozen=True, eq=False)
class Spelling:
    """One of the ways to write what a row computes."""

    row: Row
    text: str
    pattern: Pattern
    condition: str

    @property
    def fold(self) -> tuple[str, str] | None:
        """(operation, dimension) if the row reduces: "n0", "n1" or "blocks"."""
        return self.pattern.value if self.pattern.op == "fold" else None


# ---- reading texts --------------------------------------------------------------------------------------------


def parse(row: Row, text: str) -> Spelling:
    """A spelling from its text; raises ``SyntaxError`` on what the language does not have."""
    expression, _, condition = text.partition(" if ")
    kinds = {operand.name: operand for operand in row.operands if not isinstance(operand, Shape)}
    return Spelling(row, text, _read(ast.parse(expression, mode="eval").body, kinds), condition)


def _read(node: ast.expr, operands: dict[str, Any]) -> Pattern:
    if isinstance(node, ast.Constant):
        return Pattern("const", value=node.value)
    if isinstance(node, ast.Name):
        return _leaf(node.id, operands)
    if isinstance(node, ast.BinOp):
        return _made(_OPERATORS[type(node.op)], _read(node.left, operands), _read(node.right, operands))
    if isinstance(node, ast.UnaryOp):
        return _made(_OPERATORS[type(node.op)], _read(node.operand, operands))
    if isinstance(node, ast.BoolOp):
        first, *others = (_read(value, operands) for value in node.values)
        for other in others:
            first = Pattern(_OPERATORS[type(node.op)], (first, other))
        return first
    if isinstance(node, ast.Compare):
        return _compared(node, operands)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        args = tuple(_read(arg, operands) for arg in node.args)
        if node.func.id in FOLDS:
            return Pattern("fold", args, value=FOLDS[node.func.id])
        return _made(node.func.id, *args)
    raise SyntaxError(f"not part of the pattern language: {ast.unparse(node)}")


def _leaf(name: str, operands: dict[str, Any]) -> Pattern:
    if name in _CONSTANTS:
        return Pattern("const", value=_CONSTANTS[name])
    operand = operands.get(name)
    if isinstance(operand, Tensor):
        return Pattern("tensor", name=name)
    if isinstance(operand, Float):
        return Pattern("float", name=name)
    if isinstance(operand, Int):
        return Pattern("int", name=name)
    return Pattern("dimension", name=name)


def _made(op: str, *args: Pattern) -> Pattern:
    """An operation; on constants alone its value."""
    if op in _FOLDED and all(arg.op == "const" for arg in args):
        return Pattern("const", value=_FOLDED[op](*(arg.value for arg in args)))
    return Pattern(op, args)


def _compared(node: ast.Compare, operands: dict[str, Any]) -> Pattern:
    terms = [_read(side, operands) for side in (node.left, *node.comparators)]
    parts = []
    for operator, left, right in zip(node.ops, terms, terms[1:], strict=False):
        if type(operator) in _FLIPPED:
            parts.append(Pattern(_FLIPPED[type(operator)], (right, left)))
        else:
            parts.append(Pattern(_OPERATORS[type(operator)], (left, right)))
    return parts[0] if len(parts) == 1 else Pattern("and", tuple(parts))


@cache
def spellings() -> tuple[Spelling, ...]:
    """Every spelling of every row, in the table's order."""
    return tuple(parse(row, text) for row in rows() for text in row.spellings)


@cache
def spellings_by_root() -> dict[str, tuple[Spelling, ...]]:
    """Spellings by the operation at the root of what they match; index patterns and plain leaves are not here."""
    found: dict[str, list[Spelling]] = {}
    for spelling in spellings():
        pattern = spelling.pattern
        if spelling.fold is not None or _has_dimensions(pattern):
            continue
        roots = ("cast",) if pattern.op == "saturate" else (pattern.op,)
        for root in roots:
            found.setdefault(root, []).append(spelling)
    return {root: tuple(group) for root, group in found.items()}


@cache
def fold_spellings() -> dict[tuple[str, str], tuple[Spelling, ...]]:
    """Spellings of rows that reduce, by (operation, dimension)."""
    found: dict[tuple[str, str], list[Spelling]] = {}
    for spelling in spellings():
        if spelling.fold is not None:
            found.setdefault(spelling.fold, []).append(spelling)
    return {fold: tuple(group) for fold, group in found.items()}


def _has_dimensions(pattern: Pattern) -> bool:
    return pattern.op == "dimension" or any(_has_dimensions(arg) for arg in pattern.args)


# ---- matching -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Match:
    """A spelling that fits: its modifiers but the rank, the terms of its tensors and the values of its scalars."""

    spelling: Spelling
    mods: tuple[tuple[str, str], ...]
    tensors: tuple[tuple[str, Term], ...]
    scalars: tuple[tuple[str, Any], ...]

    @property
    def row(self) -> Row:
        return self.spelling.row

    def mods_at(self, rank: str) -> tuple[str, ...]:
        known = dict(self.mods)
        return tuple(known.get(m.name, rank) for m in self.row.modifiers)


# What stands at the root of the patterns that match a leaf.
_ROOTS = {"load": ("tensor",), "const": ("float", "int"), "scalar": ("int",)}


class _Binding:
    """What the names of a pattern stand for so far; copied where matching may have to go back."""

    __slots__ = ("mods", "names")

    def __init__(self, names: dict[str, Any], mods: dict[str, str]) -> None:
        self.names = names
        self.mods = mods

    def copy(self) -> _Binding:
        return _Binding(dict(self.names), dict(self.mods))


@lru_cache(maxsize=4096)
def matches(term: Term, to: str) -> tuple[Match, ...]:
    """Every row that computes ``term`` into a destination of type ``to``, whatever its tensors are."""
    found: list[Match] = []
    for root in _ROOTS.get(term.op, (term.op,)):
        for spelling in spellings_by_root().get(root, ()):
            found.extend(match_spelling(spelling, spelling.pattern, term, to))
    return tuple(found)


def match_spelling(spelling: Spelling, pattern: Pattern, term: Term, to: str) -> Iterator[Match]:
    """The ways in which one spelling fits (more than one where operands may be exchanged); at most two."""
    start = _Binding({}, {})
    if not _unify_type(spelling.row, _destination(spelling.row).dtype, to, start):
        return
    seen = 0
    for binding in _match(spelling, pattern, term, start, to):
        finished = _finished(spelling, binding)
        if finished is not None:
            yield finished
            seen += 1
            if seen == 2:
                return


def _destination(row: Row) -> Tensor:
    return row.tensors[0]


def _match(spelling: Spelling, pattern: Pattern, term: Term, binding: _Binding, to: str) -> Iterator[_Binding]:
    op = pattern.op
    if op == "tensor":
        yield from _bound_tensor(spelling.row, pattern.name, term, binding)
    elif op in ("float", "int"):
        yield from _bound_scalar(pattern.name, _scalar(op, term), binding)
    elif op == "const":
        if term.op == "const" and _close(float(term.value), float(pattern.value), term.dtype):
            yield binding
    elif op == "neg" and pattern.args[0].op in ("float", "int") and term.op == "const":
        yield from _bound_scalar(pattern.args[0].name, -term.value, binding)
    elif op == "saturate":
        yield from _match_saturated(spelling, pattern, term, binding, to)
    elif op == "cast":
        if term.op == "cast" and (term.dtype == to or _lossless(term.args[0].dtype, term.dtype)):
            yield from _match(spelling, pattern.args[0], term.args[0], binding, term.args[0].dtype)
    elif term.op == op and len(term.args) == len(pattern.args):
        yield from _match_all(spelling, pattern.args, term.args, binding, to)
        if op in COMMUTATIVE and not _symmetric(pattern):
            yield from _match_all(spelling, pattern.args, term.args[::-1], binding, to)


def _symmetric(pattern: Pattern) -> bool:
    """Whether exchanging the operands gives the same instruction with two sources exchanged."""
    return all(arg.op == "tensor" and arg.name != "dst" for arg in pattern.args)


def _match_all(
    spelling: Spelling, patterns: tuple[Pattern, ...], terms: tuple[Term, ...], binding: _Binding, to: str
) -> Iterator[_Binding]:
    if not patterns:
        yield binding
        return
    for first in _match(spelling, patterns[0], terms[0], binding, to):
        yield from _match_all(spelling, patterns[1:], terms[1:], first, to)


def _match_saturated(
    spelling: Spelling, pattern: Pattern, term: Term, binding: _Binding, to: str
) -> Iterator[_Binding]:
    inner = saturated(term)
    if inner is not None:
        yield from _match(spelling, pattern.args[0], inner, binding, to)


def _bound_tensor(row: Row, name: str, term: Term, binding: _Binding) -> Iterator[_Binding]:
    """A number alone is no tensor: it would have to be written to memory first."""
    if term.op in ("const", "scalar"):
        return
    bound = binding.names.get(name)
    if bound is not None:
        if bound == term:
            yield binding
        return
    binding = binding.copy()
    if _unify_type(row, row.tensors[row.tensor_index[name]].dtype, term.dtype, binding):
        binding.names[name] = term
        yield binding


def _bound_scalar(name: str, value: Any, binding: _Binding) -> Iterator[_Binding]:
    if value is None:
        return
    bound = binding.names.get(name)
    if bound is None:
        binding = binding.copy()
        binding.names[name] = value
        yield binding
    elif bound == value:
        yield binding


def _scalar(kind: str, term: Term) -> Any:
    """The value a scalar operand would have: a number, or for integers a structural key of TIR; None if it cannot."""
    if term.op == "const":
        if kind == "float":
            return float(term.value)
        return int(term.value) if float(term.value).is_integer() else None
    if term.op == "scalar" and kind == "int" and term.dtype not in FLOATS:
        return term.value
    return None


def _close(a: float, b: float, dtype: str) -> bool:
    if a == b:
        return True
    tolerance = {"fp16": 1e-3, "bf16": 8e-3}.get(dtype, 1e-6)
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= tolerance * abs(b)


def _lossless(source: str, target: str) -> bool:
    """Whether the vector unit, which computes in fp32, sees the same value whether or not it is converted first."""
    if source == "bool" or target == "fp32":
        return True
    if source in FLOATS:
        return False
    if target in FLOATS:
        return DTYPES[source].itemsize < DTYPES[target].itemsize
    return not _wraps(source, target)


def _wraps(source: str, target: str) -> bool:
    """Whether an integer type has values that another one has not."""
    if source not in INTS or target not in INTS:
        return False
    a, b = np.iinfo(DTYPES[source].numpy), np.iinfo(DTYPES[target].numpy)
    return bool(a.min < b.min or a.max > b.max)


def _unify_type(row: Row, reference: str, dtype: str, binding: _Binding) -> bool:
    if not reference.startswith("@"):
        return reference == dtype
    name = reference[1:]
    if name in binding.mods:
        return binding.mods[name] == dtype
    modifier = next((m for m in row.modifiers if m.name == name), None)
    if modifier is None or dtype not in modifier.choices:
        return False
    binding.mods[name] = dtype
    return True


# ---- conditions -----------------------------------------------------------------------------------------------


def _finished(spelling: Spelling, binding: _Binding) -> Match | None:
    """The match, if its condition holds and every operand and modifier but the rank has a value."""
    row = spelling.row
    for part in spelling.condition.split(" and ") if spelling.condition else ():
        if not _holds(part.strip(), row, binding):
            return None
    tensors = tuple((t.name, binding.names[t.name]) for t in row.tensors if t.name in binding.names)
    needed = [t.name for t in row.tensors if "r" in t.role and t.name not in binding.names]
    scalars = [o.name for o in row.operands if isinstance(o, Float | Int)]
    if needed or any(name not in binding.names for name in scalars):
        return None
    if any(m.name not in binding.mods and m.name != "rank" for m in row.modifiers):
        return None
    return Match(spelling, tuple(binding.mods.items()), tensors, tuple((name, binding.names[name]) for name in scalars))


def _holds(condition: str, row: Row, binding: _Binding) -> bool:
    """Whether a condition is true; an equation of a name that has no value yet gives it one."""
    if condition.startswith("not "):
        return not _holds(condition[4:], row, binding)
    if condition in _TYPE_CONDITIONS:
        return _TYPE_CONDITIONS[condition](binding.mods)
    left, sign, right = condition.split(" ")
    modifier: Modifier | None = next((m for m in row.modifiers if m.name == left), None)
    if modifier is not None:
        return binding.mods.setdefault(left, right) == right
    value = binding.names[right] if right in binding.names else float(right)
    if sign == "==":
        return bool(binding.names.setdefault(left, int(value)) == value)
    known = binding.names[left]
    return isinstance(known, int | float) and isinstance(value, int | float) and known <= value


_TYPE_CONDITIONS: dict[str, Callable[[dict[str, str]], bool]] = {
    "floats": lambda mods: mods["dtype"] in FLOATS,
    "widens": lambda mods: DTYPES[mods["to"]].itemsize > DTYPES[mods["src"]].itemsize,
    "rounds": lambda mods: mods["src"] in FLOATS and mods["to"] in INTS,
    "wraps": lambda mods: _wraps(mods["src"], mods["to"]),
}
