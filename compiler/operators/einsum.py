"""Einsum: pair by pair, as products of matrices with the labels sorted into batch, rows, depth and columns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te

from compiler.operators import refusals
from compiler.operators.broadcast import shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator


@dataclass(frozen=True)
class Labelled:
    """A value whose axes have the labels ``labels``, each once."""

    value: Value
    labels: tuple[str, ...]

    def extent(self, label: str) -> int:
        return shape_of(self.value)[self.labels.index(label)]


@composition("Einsum")
def einsum(graph: Graph, *values: Value, equation: str) -> Any:
    terms, output = parse(equation, [len(shape_of(value)) for value in values])
    operands = [_without_diagonals(graph, value, labels) for value, labels in zip(values, terms, strict=True)]
    extents = _extents(equation, operands)
    missing = [label for label in output if label not in extents]
    if missing:
        raise refusals.wrong_value(f"no input has the label {missing[0]!r} of the output", "equation", equation)
    operands = [_without_broadcast(graph, operand, extents) for operand in operands]
    while len(operands) > 1:
        first, second, *rest = operands
        needed = {*output, *(label for operand in rest for label in operand.labels)}
        operands = [_pair(graph, _summed(graph, first, {*needed, *second.labels}), second, needed), *rest]
    result = _summed(graph, operands[0], set(output))
    return _in_order(graph, result, [label for label in output if label in result.labels]).value


def parse(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """The labels of every input and of the output; an ellipsis stands for labels "0", "1" ... from the right."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    written = left.split(",")
    if len(written) != len(ranks):
        raise refusals.wrong_value(f"must have a term for each of {len(ranks)} inputs", "equation", equation)
    hidden = [
        rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(written, ranks, strict=True)
    ]
    terms = [_labels(equation, term, count) for term, count in zip(written, hidden, strict=True)]
    for term, rank in zip(terms, ranks, strict=True):
        if len(term) != rank:
            raise refusals.wrong_value(f"a term must have a label for each of {rank} axes", "equation", equation)
    if arrow:
        return terms, _labels(equation, right, max(hidden))
    counts: dict[str, int] = {}
    for label in left:
        counts[label] = counts.get(label, 0) + 1
    once = sorted(label for label, count in counts.items() if label.isalpha() and count == 1)
    return terms, [*_labels(equation, "..." if "..." in left else "", max(hidden)), *once]


def _labels(equation: str, term: str, hidden: int) -> list[str]:
    before, dots, after = term.partition("...")
    if hidden < 0 or not all(label.isascii() and label.isalpha() for label in before + after):
        raise refusals.wrong_value("labels must be letters, one for each axis", "equation", equation)
    return [*before, *(str(hidden - 1 - place) for place in range(hidden) if dots), *after]


def _without_diagonals(graph: Graph, value: Value, labels: list[str]) -> Labelled:
    """A label that stands twice in a term takes the diagonal."""
    for label in [label for label in dict.fromkeys(labels) if labels.count(label) > 1]:
        axes = tuple(axis for axis, other in enumerate(labels) if other == label)
        value = graph.call("tilewright::Diagonal", value, axes=axes)
        labels = [other for axis, other in enumerate(labels) if axis not in axes[1:]]
    return Labelled(value, tuple(labels))


@operator("tilewright::Diagonal", schedule="movement")
def diagonal(x: te.Tensor, *, axes: tuple[int, ...]) -> te.Tensor:
    """The elements at which all ``axes`` have the same index; the first of them stays."""
    shape = shape_of(x)
    if len({shape[axis] for axis in axes}) != 1:
        raise refusals.wrong_shape(f"axes {axes} must have one extent", x=x)

    def element(*indices: Any) -> Any:
        others = iter(indices)
        place = indices[axes[0]]
        return x[tuple(next(others) if a == axes[0] or a not in axes else place for a in range(len(shape)))]

    return te.compute(tuple(n for a, n in enumerate(shape) if a not in axes[1:]), element, "diagonal")


def _extents(equation: str, operands: list[Labelled]) -> dict[str, int]:
    extents: dict[str, int] = {}
    for operand in operands:
        for label in operand.labels:
            extent = operand.extent(label)
            if extents.setdefault(label, extent) not in (1, extent) and extent != 1:
                raise refusals.wrong_shape(
                    f"label {label!r} of {equation!r} must have one extent", first=(extents[label],), second=(extent,)
                )
            extents[label] = max(extents[label], extent) if extent else 0
    return extents


def _without_broadcast(graph: Graph, operand: Labelled, extents: dict[str, int]) -> Labelled:
    """Without the labels that it has one element of and others more."""
    dropped = [label for label in operand.labels if operand.extent(label) != extents[label]]
    return _reshaped(graph, operand, [label for label in operand.labels if label not in dropped])


def _reshaped(graph: Graph, operand: Labelled, labels: list[str]) -> Labelled:
    """``labels`` are those of the operand, less some whose extent is 1."""
    if tuple(labels) == operand.labels:
        return operand
    shape = np.array([operand.extent(label) for label in labels], np.int64)
    return Labelled(graph.call("Reshape", operand.value, shape), tuple(labels))


def _summed(graph: Graph, operand: Labelled, needed: set[str]) -> Labelled:
    """The labels that nothing else needs are summed over."""
    axes = [axis for axis, label in enumerate(operand.labels) if label not in needed]
    if not axes:
        return operand
    value = graph.call("ReduceSum", operand.value, np.array(axes), keepdims=False)
    return Labelled(value, tuple(label for label in operand.labels if label in needed))


def _in_order(graph: Graph, operand: Labelled, labels: Iterable[str]) -> Labelled:
    order = tuple(labels)
    if order == operand.labels:
        return operand
    perm = tuple(operand.labels.index(label) for label in order)
    return Labelled(graph.call("Transpose", operand.value, perm=perm), order)


def _pair(graph: Graph, a: Labelled, b: Labelled, needed: set[str]) -> Labelled:
    """The product of two operands, summed over the labels of both that nothing else needs."""
    b = _summed(graph, b, {*needed, *a.labels})
    shared = [label for label in a.labels if label in b.labels]
    batch = [label for label in shared if label in needed]
    depth = [label for label in shared if label not in needed]
    rows = [label for label in a.labels if label not in shared]
    columns = [label for label in b.labels if label not in shared]
    extent = {label: operand.extent(label) for operand in (a, b) for label in operand.labels}

    def matrix(operand: Labelled, left: list[str], right: list[str]) -> Value:
        ordered = _in_order(graph, operand, [*batch, *left, *right]).value
        shape = [*(extent[label] for label in batch), *(math.prod(extent[n] for n in side) for side in (left, right))]
        value: Value = graph.call("Reshape", ordered, np.array(shape, np.int64))
        return value

    multiply = "MatMul" if depth else "Mul"  # nothing to sum: columns times rows, broadcast
    product = graph.call(multiply, matrix(a, rows, depth), matrix(b, depth, columns))
    labels = [*batch, *rows, *columns]
    shape = np.array([extent[label] for label in labels], np.int64)
    return Labelled(graph.call("Reshape", product, shape), tuple(labels))
