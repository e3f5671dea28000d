"""Which shapes an operator is tried with: sizes for the letters in its declaration, small, odd, and large.

    sweep={"x": "[n, 8*c]", "bias": "float32[8*c]", "rows": lambda n: np.arange(n), "mode": ["none", "tanh"]}

says of every input its shape (and its element type, where that is fixed) in letters and products of them, or a function
of the letters that gives its elements; of an attribute the values that it takes in turn. Without it all inputs have one
shape of two axes, and a product's are those of two matrices.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.registry import Declared, TensorType
from compiler.operators.signature import Input

Array = np.ndarray[Any, Any]
SWEPT_DTYPES = ("float32", "float16")
_SHAPE = re.compile(r"\s*(?:([a-z]\w*)\s*)?\[([^\[\]]*)\]\s*")
_FACTOR = re.compile(r"[A-Za-z]\w*|[1-9]\d*")

# Sizes of the letters, in the order in which the inputs name them; one list per number of letters.
_SIZES: dict[str, tuple[tuple[int, ...], ...]] = {
    "one element": ((1,), (1, 1), (1, 1, 1), (1, 1, 1, 1)),
    "primes": ((1021,), (37, 53), (5, 37, 29), (3, 5, 17, 13)),
    "tails": ((4097,), (33, 65), (3, 33, 17), (2, 3, 17, 9)),
    "round": ((4096,), (64, 128), (4, 32, 64), (2, 8, 16, 16)),
    "long rows": ((9973,), (3, 4099), (2, 3, 2053), (2, 3, 2, 1031)),
}
_LARGE = "larger than a core's memory"
QUICK = ("one element", "primes")
_MORE_DTYPES = ("primes", "tails")  # also with the other element types


@dataclass(frozen=True)
class Case:
    """One call to try; an input is a type, an array that the compiler knows, or `Given`."""

    name: str
    inputs: Mapping[str, TensorType | Array | Given]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Given:
    """A tensor at run time whose elements cannot be any: indices, counts."""

    array: Array


def cases(declared: Declared, core_bytes: int, *, quick: bool = False) -> Iterator[Case]:
    """``core_bytes`` is what a core's buffer holds: one case has a tensor that is larger."""
    spec = _spec(declared)
    texts = {name: _shape(declared, name, text) for name, text in spec.items() if isinstance(text, str)}
    letters = list(
        dict.fromkeys(letter for _, dims in texts.values() for dim in dims for letter in dim if not _is_number(letter))
    )
    varied = [dict(zip(declared.signature.attributes, values, strict=True)) for values in _attributes(declared, spec)]
    fixed = all(dtype for dtype, _ in texts.values())
    number = 0
    for name in QUICK if quick else (*_SIZES, _LARGE):
        for dtype in SWEPT_DTYPES if name in _MORE_DTYPES and not fixed else SWEPT_DTYPES[:1]:
            sizes = _large(texts, letters, dtype, core_bytes) if name == _LARGE else _sizes(name, letters)
            yield Case(name, _inputs(declared, spec, texts, sizes, dtype), varied[number % len(varied)])
            number += 1


def _spec(declared: Declared) -> dict[str, Any]:
    """What the declaration says of each input and attribute, or what is usual where it says nothing."""
    given = dict(declared.sweep or {})
    known = [*(one.name for one in declared.signature.inputs), *declared.signature.attributes]
    for name in given:
        if name not in known:
            raise refusals.swept_badly(declared.full_name, f"there is no {name!r}", f"known: {', '.join(known)}")
    if not given:
        tensors = [one.name for one in declared.signature.inputs if one.kind != "constant" and not one.optional]
        is_product = declared.schedule == "matmul" and len(tensors) > 1
        shapes = ["[m, k]", "[k, n]"] + ["[m, n]"] * len(tensors) if is_product else ["[n, c]"] * len(tensors)
        given = dict(zip(tensors, shapes, strict=False))
    for one in declared.signature.inputs:
        if one.name not in given and not one.optional and not one.variadic:
            raise refusals.swept_badly(declared.full_name, f"nothing is said of input {one.name!r}")
    return given


def _shape(declared: Declared, name: str, text: str) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """(element type or "", factors of every dimension)"""
    found = _SHAPE.fullmatch(text)
    dims = [dim.strip() for dim in found[2].split(",")] if found and found[2].strip() else []
    factors = [tuple(factor.strip() for factor in dim.split("*")) for dim in dims]
    if found is None or not all(_FACTOR.fullmatch(factor) for dim in factors for factor in dim):
        hint = 'write "[n, 8*c]" or "int32[n]": letters and products of them'
        raise refusals.swept_badly(declared.full_name, f"{text!r} is no shape of {name!r}", hint)
    return found[1] or "", tuple(factors)


def _attributes(declared: Declared, spec: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Values of all attributes, case after case: those that are swept take theirs in turn."""
    swept = {name: list(spec[name]) for name in declared.signature.attributes if name in spec}
    for name, one in declared.signature.attributes.items():
        if one.required and name not in swept:
            raise refusals.swept_badly(declared.full_name, f"nothing is said of attribute {name!r}")
    count = max([1, *(len(values) for values in swept.values())])
    return [
        tuple(
            swept[name][at % len(swept[name])] if name in swept else one.default
            for name, one in declared.signature.attributes.items()
        )
        for at in range(count)
    ]


def _inputs(
    declared: Declared, spec: Mapping[str, Any], texts: Mapping[str, Any], sizes: Mapping[str, int], dtype: str
) -> dict[str, TensorType | Array | Given]:
    made: dict[str, TensorType | Array | Given] = {}
    for one in declared.signature.inputs:
        if one.name in texts:
            fixed, dims = texts[one.name]
            made[one.name] = TensorType(tuple(_extent(dim, sizes) for dim in dims), fixed or dtype)
        elif one.name in spec:
            made[one.name] = _elements(declared, one, spec[one.name], sizes)
    return made


def _elements(declared: Declared, one: Input, function: Any, sizes: Mapping[str, int]) -> Array | Given:
    if not callable(function):
        raise refusals.swept_badly(declared.full_name, f"input {one.name!r} needs a shape or a function")
    wanted = inspect.signature(function).parameters
    missing = [name for name in wanted if name not in sizes]
    if missing:
        raise refusals.swept_badly(
            declared.full_name, f"the function of {one.name!r} takes {missing[0]!r}, which no shape names"
        )
    array = np.asarray(function(**{name: sizes[name] for name in wanted}))
    return array if one.kind == "constant" else Given(array)


def _sizes(name: str, letters: Sequence[str]) -> dict[str, int]:
    table = _SIZES[name]
    if len(letters) <= len(table):
        return dict(zip(letters, table[len(letters) - 1], strict=True)) if letters else {}
    few = table[-1]
    return {letter: few[at % len(few)] if at < len(few) else 1 + at % 3 for at, letter in enumerate(letters)}


def _large(texts: Mapping[str, Any], letters: Sequence[str], dtype: str, core_bytes: int) -> dict[str, int]:
    """Letters grow in turn until some tensor is larger than a core's buffer."""
    sizes = _sizes("primes", letters)

    def largest() -> int:
        return max(
            prod(_extent(dim, sizes) for dim in dims)
            * np.dtype(fixed if fixed and fixed != "bfloat16" else dtype).itemsize
            for fixed, dims in texts.values()
        )

    at = 0
    while letters and texts and largest() <= core_bytes:
        sizes[letters[at % len(letters)]] = sizes[letters[at % len(letters)]] * 2 + 1
        at += 1
    return sizes


def _extent(dim: Sequence[str], sizes: Mapping[str, int]) -> int:
    return prod(int(factor) if _is_number(factor) else sizes[factor] for factor in dim)


def _is_number(factor: str) -> bool:
    return factor[0].isdigit()
