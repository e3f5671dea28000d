"""Linear models and support vector machines of ONNX's domain for classical models."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import result_dtype, shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.classes import (
    check_transform,
    class_labels,
    one_of_two,
    scores_of_two,
    top_class,
    transformed,
)
from compiler.operators.features import as_floats, as_results, as_rows, in_fp32, number
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition

Array = np.ndarray[Any, Any]

_LEAST_PROBABILITY = 1e-7


def _linear(graph: Graph, x: Value, coefficients: tuple[float, ...], intercepts: tuple[float, ...], count: int) -> Any:
    """Of [rows, features]: ``count`` weighted sums of each row."""
    rows = as_rows(graph, as_floats(graph, x))
    features, dtype = shape_of(rows)[1], result_dtype(rows)
    if len(coefficients) != count * features or len(intercepts) not in (0, count):
        rule = f"there must be {features} coefficients and one intercept, or none, for each of {count} results"
        raise refusals.wrong_shape(rule, coefficients=np.array(coefficients), intercepts=np.array(intercepts))
    weights = np.array(coefficients, np.float32).reshape(count, features).astype(dtype)
    bias = np.array(intercepts, np.float32).astype(dtype) if intercepts else None
    return in_fp32(graph)("Gemm", rows, weights, bias, transB=True)


@composition("ai.onnx.ml::LinearRegressor")
def linear_regressor(
    graph: Graph,
    x: Value,
    *,
    coefficients: tuple[float, ...],
    intercepts: tuple[float, ...] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Any:
    return as_results(graph, transformed(graph, _linear(graph, x, coefficients, intercepts, targets), post_transform))


@composition("ai.onnx.ml::LinearClassifier")
def linear_classifier(
    graph: Graph,
    x: Value,
    *,
    coefficients: tuple[float, ...],
    classlabels_ints: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
    intercepts: tuple[float, ...] = (),
    multi_class: bool = False,
    post_transform: str = "NONE",
) -> tuple[Any, Any]:
    """Of two classes there may be one score, which is that of the second one. ``multi_class`` says nothing more."""
    labels = class_labels(classlabels_ints, classlabels_strings)
    count = len(coefficients) // shape_of(x)[-1]
    scores = _linear(graph, x, coefficients, intercepts, count)
    if count == 1 and len(labels) == 2:
        both = scores_of_two(graph, scores, post_transform, opposite=False)
        return one_of_two(graph, scores, labels), as_results(graph, both)
    if count != len(labels):
        raise refusals.wrong_shape(f"there must be a label for each of {count} scores", labels=labels)
    return top_class(graph, scores, labels), as_results(graph, transformed(graph, scores, post_transform))


@composition("ai.onnx.ml::SVMRegressor")
def svm_regressor(
    graph: Graph,
    x: Value,
    *,
    coefficients: tuple[float, ...],
    kernel_params: tuple[float, ...] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: bool = False,
    post_transform: str = "NONE",
    rho: tuple[float, ...] = (0.0,),
    support_vectors: tuple[float, ...] = (),
) -> Any:
    """A weighted sum of how near each row is to the support vectors; of ``one_class``, whether it is positive."""
    check_transform(post_transform, ("NONE",))
    call = in_fp32(graph)
    if n_supports:
        if len(coefficients) != n_supports or not rho:
            rule = f"there must be {n_supports} coefficients and a rho"
            raise refusals.wrong_shape(rule, coefficients=np.array(coefficients), rho=np.array(rho))
        near = _nearness(graph, x, support_vectors, n_supports, kernel_type, kernel_params)
        weights = np.array(coefficients, np.float32).reshape(n_supports, 1)
        result = call("Gemm", near, weights, np.array(rho[:1], np.float32))
    else:
        result = _linear(graph, x, coefficients, rho[:1], 1)
    if one_class:
        dtype = result_dtype(result)
        is_inside = call("Greater", result, number(0, dtype))
        result = call("Where", is_inside, number(1, dtype), number(-1, dtype))
    return as_results(graph, result)


@composition("ai.onnx.ml::SVMClassifier")
def svm_classifier(
    graph: Graph,
    x: Value,
    *,
    coefficients: tuple[float, ...],
    rho: tuple[float, ...],
    classlabels_ints: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
    kernel_params: tuple[float, ...] = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: tuple[float, ...] = (),
    prob_b: tuple[float, ...] = (),
    support_vectors: tuple[float, ...] = (),
    vectors_per_class: tuple[int, ...] = (),
) -> tuple[Any, Any]:
    """A score for each pair of classes, of which the winner has a vote; the label is the one with most votes.

    Two classes have two scores, or probabilities; more of these are found step by step, which is refused.
    """
    labels = class_labels(classlabels_ints, classlabels_strings)
    if len(vectors_per_class) != len(labels):
        raise refusals.unsupported("a classifier without support vectors of each class", "LinearClassifier is one")
    if prob_a and len(labels) > 2:
        raise refusals.unsupported("probabilities of more than two classes", "convert the model without them")
    if min(vectors_per_class) < 0:
        raise refusals.wrong_value("must be 0 or more of each class", "vectors_per_class", vectors_per_class)
    pairs, count = list(combinations(range(len(labels)), 2)), sum(vectors_per_class)
    if len(coefficients) < (len(labels) - 1) * count or len(rho) < len(pairs) or len(prob_a) != len(prob_b):
        least = f"{(len(labels) - 1) * count} coefficients and {len(pairs)} of rho"
        rule = f"there must be {least}, and as many prob_a as prob_b"
        raise refusals.wrong_shape(rule, coefficients=np.array(coefficients), rho=np.array(rho))
    near = _nearness(graph, x, support_vectors, count, kernel_type, kernel_params)
    weights = _pair_weights(coefficients, vectors_per_class, pairs)
    scores = in_fp32(graph)("Gemm", near, weights, np.array(rho[: len(pairs)], np.float32))
    label = top_class(graph, _votes(graph, scores, pairs, len(labels)), labels)
    if len(labels) > 2:
        return label, as_results(graph, transformed(graph, scores, post_transform))
    if prob_a:
        both = transformed(graph, _probabilities(graph, scores, prob_a[0], prob_b[0]), post_transform)
    else:
        both = scores_of_two(graph, scores, post_transform, opposite=post_transform == "NONE")
    return label, as_results(graph, both)


def _nearness(
    graph: Graph, x: Value, vectors: tuple[float, ...], count: int, kernel: str, parameters: tuple[float, ...]
) -> Any:
    """[rows, vectors], in fp32: differences of squares are small beside these."""
    call = in_fp32(graph)
    rows = as_rows(graph, as_dtype(graph, x, "float32"))
    if count < 1 or len(vectors) != count * shape_of(rows)[1]:
        rule = f"there must be {count} support vectors of the features of x"
        raise refusals.wrong_shape(rule, x=x, support_vectors=np.array(vectors))
    if len(parameters) not in (0, 3):
        raise refusals.wrong_value("must be gamma, coef0 and degree", "kernel_params", parameters)
    support = np.array(vectors, np.float32).reshape(count, -1)
    gamma, offset, degree = parameters or (0.0, 0.0, 0.0)
    dot = call("MatMul", rows, np.ascontiguousarray(support.T))
    if kernel == "LINEAR":
        return dot
    if kernel == "RBF":
        lengths = call("ReduceSumSquare", rows, np.array([1]))
        both = call("Add", lengths, np.square(support).sum(axis=1))
        apart = call("Sub", both, call("Mul", dot, number(2)))
        apart = call("Max", apart, number(0))
        return call("Exp", call("Mul", apart, number(-gamma)))
    scaled = call("Add", call("Mul", dot, number(gamma)), number(offset))
    if kernel == "SIGMOID":
        return call("Tanh", scaled)
    if kernel == "POLY":
        return call("Pow", scaled, number(int(degree)))
    raise refusals.wrong_value("must be one of LINEAR, RBF, SIGMOID, POLY", "kernel_type", kernel)


def _pair_weights(coefficients: tuple[float, ...], counts: tuple[int, ...], pairs: list[tuple[int, int]]) -> Array:
    """[vectors, pairs]: of the vectors of each class there is a row of coefficients for each other class."""
    total, ends = sum(counts), np.cumsum((0, *counts))
    given = np.array(coefficients, np.float32)[: (len(counts) - 1) * total].reshape(-1, total)
    weights = np.zeros((total, len(pairs)), np.float32)
    for at, (first, second) in enumerate(pairs):
        of_first, of_second = slice(ends[first], ends[first + 1]), slice(ends[second], ends[second + 1])
        weights[of_first, at] = given[second - 1, of_first]
        weights[of_second, at] = given[first, of_second]
    return weights


def _votes(graph: Graph, scores: Value, pairs: list[tuple[int, int]], classes: int) -> Any:
    """How many pairs each class wins; a score that is not positive is a vote for the second of its pair."""
    call = in_fp32(graph)
    of_first, of_second = np.zeros((2, len(pairs), classes), np.float32)
    for at, (first, second) in enumerate(pairs):
        of_first[at, first] = of_second[at, second] = 1
    is_first = as_dtype(graph, call("Greater", scores, number(0)), "float32")
    return call("Gemm", is_first, of_first - of_second, of_second.sum(axis=0))


def _probabilities(graph: Graph, score: Value, slope: float, offset: float) -> Any:
    call = in_fp32(graph)
    line = call("Add", call("Mul", score, number(slope)), number(offset))
    first = call("Sigmoid", call("Neg", line))
    first = call("Clip", first, number(_LEAST_PROBABILITY), number(1 - _LEAST_PROBABILITY))
    return call("Concat", first, call("Sub", number(1), first), axis=1)
