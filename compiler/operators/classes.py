"""What classifiers of ONNX's domain for classical models make of scores: a label for each row, and its scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import result_dtype, shape_of
from compiler.operators.features import in_fp32, no_texts, number
from compiler.operators.graph import Graph, Value

_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX")


def class_labels(numbers: tuple[int, ...], texts: tuple[str, ...]) -> np.ndarray[Any, Any]:
    no_texts("classlabels_strings", texts)
    if len(numbers) < 2:
        raise refusals.unsupported(f"a classifier of {len(numbers)} classes")
    return np.array(numbers, np.int32)


def top_class(graph: Graph, scores: Value, labels: np.ndarray[Any, Any]) -> Any:
    """The label of the first of the largest scores of each row."""
    return graph.call("Gather", labels, graph.call("ArgMax", scores, axis=1, keepdims=False))


def one_of_two(graph: Graph, score: Value, labels: np.ndarray[Any, Any], least: float = 0.0) -> Any:
    """The second label of rows whose score, of [rows, 1], is more than ``least``; the first one of others."""
    flat = graph.call("Reshape", score, np.array([shape_of(score)[0]]))
    is_more = in_fp32(graph)("Greater", flat, number(least, result_dtype(score)))
    return graph.call("Where", is_more, labels[1:2], labels[:1])


def scores_of_two(graph: Graph, score: Value, transform: str, *, opposite: bool) -> Any:
    """Both scores where a model knows that of the second class, of [rows, 1]: the other one is its ``opposite``, or
    what it lacks to one. As onnxruntime does, which takes no softmax of these.
    """
    check_transform(transform)
    negative = graph.call("Neg", score)
    if transform == "LOGISTIC":
        return graph.call("Sigmoid", graph.call("Concat", negative, score, axis=1))
    if not opposite:
        negative = in_fp32(graph)("Add", negative, np.ones((), result_dtype(score)))
    return graph.call("Concat", negative, score, axis=1)


def transformed(graph: Graph, scores: Value, transform: str) -> Any:
    """Scores of [rows, classes], as ``post_transform`` says."""
    check_transform(transform)
    if transform == "LOGISTIC":
        return graph.call("Sigmoid", scores)
    return graph.call("Softmax", scores, axis=-1) if transform == "SOFTMAX" else scores


def check_transform(transform: str, known: Sequence[str] = _TRANSFORMS) -> None:
    if transform not in known:
        raise refusals.wrong_value(f"must be {' or '.join(known)}", "post_transform", transform)
