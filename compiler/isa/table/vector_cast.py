"""Conversions between element types.

Float to integer rounds as the modifier says, saturates, and turns NaN into zero; a wider integer saturates into a
narrower one; a float from a wider type or an integer rounds to nearest even. Anything but zero is true as a bool,
and a bool counts as zero or one.
"""

from __future__ import annotations

from typing import Any

from compiler.isa.dtypes import DTYPES, FLOATS, Queue
from compiler.isa.model import RANK, Args, Modifier, Row, Shape, Tensor, dtype_modifier
from compiler.isa.table import vector_costs as cost
from compiler.isa.table import vector_numerics as numerics
from compiler.isa.table.rules import VECTOR_RULES, conversion_exists, destination_is_narrower, rounding_has_a_use
from compiler.isa.table.vector_operands import MOVABLE
from compiler.isa.timing import vector_timing


def _converted(args: Args, a: Any) -> Any:
    if args.src == "bool":
        return numerics.truth(a)
    if args.to == "bool":
        return a != 0
    if args.src in FLOATS:
        return a if args.to in FLOATS else numerics.float_to_int(numerics.ROUNDINGS[args.round](a), _numpy(args))
    if args.to in FLOATS:
        return numerics.int_to_float(a, args.to)
    return numerics.saturated(a, _numpy(args))


def _numpy(args: Args) -> Any:
    return DTYPES[args.to].numpy


_OPERANDS = (Tensor("dst", "w", dtype="@to"), Tensor("a", "r", dtype="@src"), Shape())

ROWS = [
    Row(
        736,
        "vconv",
        Queue.V,
        "dst = a in another type, saturated",
        operands=_OPERANDS,
        modifiers=(
            dtype_modifier(*MOVABLE, name="src"),
            dtype_modifier(*MOVABLE, name="to"),
            Modifier("round", tuple(numerics.ROUNDINGS)),
            RANK,
        ),
        rules=(*VECTOR_RULES, conversion_exists, rounding_has_a_use),
        semantics=_converted,
        timing=lambda args: vector_timing(args, cost.CONVERT),
        computes=(
            "cast(a) if round == rne and not rounds and not wraps",
            "cast(a) if round == trunc and rounds",
            "cast(trunc(a)) if round == trunc and rounds",
            "cast(round(a)) if round == rne and rounds",
            "cast(floor(a)) if round == floor and rounds",
            "cast(ceil(a)) if round == ceil and rounds",
        ),
    ),
    Row(
        737,
        "vnarrow",
        Queue.V,
        "dst = low bits of a in a narrower integer type",
        operands=_OPERANDS,
        modifiers=(
            dtype_modifier("int64", "int32", "int16", name="src"),
            dtype_modifier("int32", "int16", "int8", "uint8", name="to"),
            RANK,
        ),
        rules=(*VECTOR_RULES, destination_is_narrower),
        semantics=lambda args, a: a.astype(_numpy(args)),
        timing=lambda args: vector_timing(args, cost.CONVERT),
        computes="cast(a)",
    ),
]
