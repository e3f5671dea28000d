"""The errors that operators raise: one constructor and one stable code for each kind of refusal.

The messages do not name the operator: whoever calls it puts its name in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.errors import InvalidError, LimitError, Problem, TilewrightError, UnsupportedError


def unknown_attribute(name: str, known: list[str]) -> TilewrightError:
    hint = f"known: {', '.join(known)}" if known else "it has no attributes"
    return InvalidError(Problem("TW2101", f"unknown attribute {name!r}", hint=hint))


def wrong_attribute(name: str, expected: str, value: Any) -> TilewrightError:
    return InvalidError(Problem("TW2102", f"attribute {name!r} must be {expected}, not {value!r}"))


def missing_attribute(name: str) -> TilewrightError:
    return InvalidError(Problem("TW2103", f"attribute {name!r} is required"))


def missing_input(name: str, position: int) -> TilewrightError:
    return InvalidError(Problem("TW2104", f"input {position} ({name}) is required"))


def too_many_inputs(given: int, most: int) -> TilewrightError:
    return InvalidError(Problem("TW2105", f"{given} inputs, but it takes at most {most}"))


def not_constant(name: str) -> TilewrightError:
    hint = "give it as an initializer, or the value of an input: --value NAME=..., values= in Python"
    return UnsupportedError(Problem("TW2106", f"input {name!r} must be known at compile time", hint=hint))


def not_a_tensor(name: str) -> TilewrightError:
    return InvalidError(Problem("TW2107", f"input {name!r} must be a tensor; it was given as a constant"))


def wrong_shape(rule: str, **shapes: Any) -> TilewrightError:
    """``rule`` says what should hold; ``shapes`` are the tensors or shapes that break it, by name."""
    return InvalidError(Problem("TW2108", f"{rule}; given: {_shapes(shapes)}"))


def wrong_dtype(rule: str, **tensors: Any) -> TilewrightError:
    """``rule`` says which element types are allowed; ``tensors`` are those given, by name."""
    given = ", ".join(f"{name} {getattr(tensor, 'dtype', tensor)}" for name, tensor in tensors.items())
    return UnsupportedError(Problem("TW2109", f"{rule}; given: {given}"))


def wrong_axis(axis: int, rank: int) -> TilewrightError:
    return InvalidError(Problem("TW2110", f"axis {axis} does not exist in a tensor of rank {rank}"))


def wrong_value(rule: str, name: str, value: Any) -> TilewrightError:
    """A value of the right type that breaks a rule of the operator."""
    return InvalidError(Problem("TW2111", f"{rule}; given: {name}={value}"))


def too_many(what: str, count: int, limit: int) -> TilewrightError:
    return LimitError(Problem("TW2113", f"{count} {what}, limit {limit}"))


def unsupported(what: str, hint: str = "") -> TilewrightError:
    return UnsupportedError(Problem("TW2112", what, hint=hint))


def missing_outputs(wanted: int, made: int) -> TilewrightError:
    plural = "" if made == 1 else "s"
    return InvalidError(Problem("TW2114", f"{wanted} outputs are asked for, but it has {made} result{plural}"))


def wrong_result(what: str, hint: str = "") -> TilewrightError:
    """What the function of an operator returned is nothing that can be compiled."""
    return InvalidError(Problem("TW2115", what, hint=hint))


def stage_dtype(stage: str, dtype: str, known: Sequence[str]) -> TilewrightError:
    text = f"stage {stage!r} has elements of {dtype}, which the chips do not have"
    return UnsupportedError(Problem("TW2116", text, hint=f"use {', '.join(known)}"))


def calls_outside(stage: str, name: str) -> TilewrightError:
    text = f"stage {stage!r} calls a function that is not of TE ({name})"
    return UnsupportedError(Problem("TW2117", text, hint="spell what it computes in te and tirx"))


def several_reduced(stage: str) -> TilewrightError:
    text = f"stage {stage!r} reduces several values at once, which need each other"
    return UnsupportedError(Problem("TW2118", text, hint="reduce one after another, or return a PrimFunc with loops"))


def reduced_under_condition(stage: str) -> TilewrightError:
    text = f"stage {stage!r} reduces under a condition (where=)"
    hint = "reduce tirx.if_then_else(condition, value, identity), the identity being 0 of a sum"
    return UnsupportedError(Problem("TW2119", text, hint=hint))


def reduced_from(stage: str) -> TilewrightError:
    text = f"stage {stage!r} begins its reduction with a value of its own (init=)"
    return UnsupportedError(Problem("TW2119", text, hint="leave it out, and add the value in a stage behind it"))


def unknown_extent(stage: str, axis: str) -> TilewrightError:
    text = f"stage {stage!r} has axis {axis!r} of a length that is not one number"
    hint = "give it the greatest length, and choose by tirx.if_then_else what counts: te.sum(if_then_else(k < n, x, 0))"
    return UnsupportedError(Problem("TW2119", text, hint=hint))


def scanned(stage: str) -> TilewrightError:
    hint = "sum over what came before: te.sum(tirx.if_then_else(k <= i, x[k], 0)); or return a PrimFunc with loops"
    return UnsupportedError(Problem("TW2130", f"stage {stage!r} is a te.scan, of which TVM makes no loops", hint=hint))


def reads_outside(stage: str, tensor: str, index: int, axis: int, extent: int) -> TilewrightError:
    text = f"stage {stage!r} reads {tensor!r} at {index} of axis {axis}, which has {extent} elements"
    return InvalidError(Problem("TW2129", text, hint="read what is there: tirx.if_then_else(condition, read, other)"))


def declared_badly(where: str, rule: str, hint: str = "") -> TilewrightError:
    return InvalidError(Problem("TW2120", f"{where}: {rule}", hint=hint))


def declared_twice(name: str, first: str, second: str) -> TilewrightError:
    return InvalidError(Problem("TW2121", f"operator {name!r} is declared in {first} and again in {second}"))


def swept_badly(name: str, rule: str, hint: str = "") -> TilewrightError:
    hint = hint or 'say it in the declaration: @operator(..., sweep={"x": "[n, c]", "axis": [0, 1]})'
    return InvalidError(Problem("TW2127", f"{name}: its shapes to try: {rule}", hint=hint))


def unknown_operator(name: str) -> TilewrightError:
    return UnsupportedError(Problem("TW2122", f"no operator {name!r} is declared"))


def _shapes(tensors: dict[str, Any]) -> str:
    return ", ".join(f"{name} {[int(n) for n in getattr(tensor, 'shape', tensor)]}" for name, tensor in tensors.items())
