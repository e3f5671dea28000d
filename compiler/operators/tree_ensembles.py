"""Ensembles of trees of ONNX's domain for classical models: forests, and what gradient boosting makes.

Small trees ask all of their questions at once. Which leaf is reached is a product with the known ways to each:

    answers[tree, row, asked] @ turns[tree, asked, leaf] == how many of the leaf's answers are yes

since a wrong no lacks one and a wrong yes takes one away. Large trees, whose ways would be more than all that they
save, are gone through level by level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.classes import (
    check_transform,
    class_labels,
    one_of_two,
    scores_of_two,
    top_class,
    transformed,
)
from compiler.operators.features import as_results, as_rows, in_fp32, number
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition
from compiler.operators.trees import (
    AT_MOST,
    EQUAL,
    LESS,
    Nodes,
    Paths,
    asked_as_known,
    check_features,
    check_lengths,
    forest_of,
    paths_of,
)

Array = np.ndarray[Any, Any]

MOST_LEAVES = 128  # of a tree that asks all questions at once
# Of as many rows the features that all nodes ask are picked by a product with ones, if there are not more of these.
MANY_ROWS = 8
MOST_FEATURES = 256
_LARGEST = float(np.finfo(np.float32).max)
_COMPARE = {AT_MOST: "LessOrEqual", LESS: "Less", EQUAL: "Equal"}
_REDUCE = {"SUM": "ReduceSum", "AVERAGE": "ReduceMean", "MIN": "ReduceMin", "MAX": "ReduceMax"}
_NEUTRAL = {"MIN": np.finfo(np.float32).max, "MAX": np.finfo(np.float32).min}
_NUMBERED_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_NUMBERED_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_NUMBERED_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC")


@dataclass(frozen=True)
class Ensemble:
    """``weights`` is [nodes, results], of leaves; ``voted`` says which of these the model has."""

    nodes: Nodes
    roots: Array
    weights: Array
    voted: Array

    @staticmethod
    def of(
        nodes: Nodes, roots: Array, voters: Sequence[int], targets: Sequence[int], weights: Array, count: int
    ) -> Ensemble:
        found, voted = np.zeros((len(nodes.yes), count), np.float32), np.zeros((len(nodes.yes), count), bool)
        if not len(voters) == len(targets) == len(weights) or any(not 0 <= each < count for each in targets):
            raise refusals.wrong_value(f"must be a number below {count} for each weight", "targets", tuple(targets))
        np.add.at(found, (list(voters), list(targets)), weights)
        voted[list(voters), list(targets)] = True
        return Ensemble(nodes, roots, found, voted)

    def results(self, graph: Graph, x: Value, aggregate: str) -> Any:
        """[rows, results]: the sum, mean, least or largest of the trees."""
        if aggregate not in _REDUCE:
            raise refusals.wrong_value(f"must be one of {', '.join(_REDUCE)}", "aggregate_function", aggregate)
        rows = as_rows(graph, as_dtype(graph, x, "float32"))
        features = shape_of(rows)[1]
        if np.max(self.nodes.feature, initial=0) >= features:
            raise refusals.wrong_shape(f"trees ask feature {np.max(self.nodes.feature)}", x=x)
        weights = np.where(self.voted, self.weights, _NEUTRAL.get(aggregate, 0)).astype(np.float32)
        paths = paths_of(self.nodes, self.roots)
        if paths.leaves.shape[1] <= MOST_LEAVES:
            each = _at_once(graph, rows, self.nodes, paths, weights)
            axis = 0
        else:
            each = _by_levels(graph, rows, self.nodes, self.roots, weights)
            axis = 1
        call = in_fp32(graph)
        total = call(_REDUCE[aggregate], each, np.array([axis]), keepdims=False)
        if aggregate in _NEUTRAL and not (have := self.voted.any(axis=0)).all():
            total = call("Where", have, total, number(0))
        return total


def _at_once(graph: Graph, rows: Value, nodes: Nodes, paths: Paths, weights: Array) -> Any:
    """[trees, rows, results]."""
    call = in_fp32(graph)
    which = np.where(paths.asked < 0, 0, paths.asked)
    picked, is_missing = (_by_products if _has_products(rows, nodes) else _one_by_one)(graph, rows, nodes, which)
    answers = _answers(graph, picked, is_missing, nodes, which[:, None])
    hits = call("MatMul", as_dtype(graph, answers, "float16"), paths.turns.astype(np.float16))
    needed = np.where(paths.leaves < 0, which.shape[1] + 1, (paths.turns > 0).sum(axis=1))
    reached = call("Equal", hits, needed[:, None].astype(np.float16))
    of_leaves = np.where(paths.leaves[..., None] < 0, 0, weights[paths.leaves]).astype(np.float32)
    return call("MatMul", as_dtype(graph, reached, "float32"), of_leaves)


def _has_products(rows: Value, nodes: Nodes) -> bool:
    """Whether features are picked by a product with ones, which needs numbers: limits are none at the ends of these."""
    count, features = shape_of(rows)
    return count >= MANY_ROWS and features <= MOST_FEATURES and bool((np.abs(nodes.value) < _LARGEST).all())


def _by_products(graph: Graph, rows: Value, nodes: Nodes, which: Array) -> tuple[Any, Any]:
    """[trees, rows, asked]: the features that nodes ask, and where NaN makes the answer a yes.

    NaN is the largest number there, which is neither at most nor less than a limit, nor one.
    """
    call = in_fp32(graph)
    is_nan = call("IsNaN", rows)
    numbers = call("Where", is_nan, number(_LARGEST), call("Clip", rows, number(-_LARGEST), number(_LARGEST)))
    features = np.arange(shape_of(rows)[1])[:, None]
    ones = nodes.feature[which][:, None] == features
    picked = call("MatMul", call("Unsqueeze", numbers, np.array([0])), ones.astype(np.float32))
    if not nodes.missing.any():
        return picked, None
    given = call("Unsqueeze", as_dtype(graph, is_nan, "float16"), np.array([0]))
    found = call("MatMul", given, (ones & nodes.missing[which][:, None]).astype(np.float16))
    return picked, call("Greater", found, np.zeros((), np.float16))


def _one_by_one(graph: Graph, rows: Value, nodes: Nodes, which: Array) -> tuple[Any, Any]:
    """As `_by_products`."""
    picked = graph.call("Gather", rows, nodes.feature[which].reshape(-1), axis=1)
    apart = graph.call("Reshape", picked, np.array([shape_of(rows)[0], *which.shape]))
    turned = graph.call("Transpose", apart, perm=(1, 0, 2))
    return turned, _missing(graph, turned, nodes, which[:, None])


def _by_levels(graph: Graph, rows: Value, nodes: Nodes, roots: Array, weights: Array) -> Any:
    """[rows, trees, results]. Who has reached a leaf stays there."""
    call = in_fp32(graph)
    node: Any = graph.constant(np.tile(roots.astype(np.int32), (shape_of(rows)[0], 1)))
    for _ in range(_depth(nodes, roots)):
        picked = call("GatherElements", rows, _looked_up(graph, nodes.feature.astype(np.int32), node), axis=1)
        answers = _answers(graph, picked, _missing(graph, picked, nodes, node), nodes, node)
        yes, no = (_looked_up(graph, each.astype(np.int32), node) for each in (nodes.yes, nodes.no))
        node = call("Where", answers, yes, no)
    return call("Gather", weights, node)


def _depth(nodes: Nodes, roots: Array) -> int:
    depth, level = 0, roots
    while not (leaves := nodes.is_leaf[level]).all():
        depth, level = depth + 1, np.unique(np.concatenate([nodes.yes[level[~leaves]], nodes.no[level[~leaves]]]))
        if depth > len(nodes.yes):
            raise refusals.unsupported("nodes that are reached in two ways")
    return depth


def _looked_up(graph: Graph, table: Array, node: Any) -> Any:
    """What stands in a table of the nodes: now, where the nodes are known."""
    return table[node] if isinstance(node, np.ndarray) else graph.wide(in_fp32(graph)("Gather", table, node))


def _missing(graph: Graph, picked: Value, nodes: Nodes, node: Any) -> Any:
    """Where NaN makes the answer a yes; None where it does so nowhere."""
    if not nodes.missing.any():
        return None
    return graph.call("And", graph.call("IsNaN", picked), _looked_up(graph, nodes.missing, node))


def _answers(graph: Graph, picked: Value, is_missing: Any, nodes: Nodes, node: Any) -> Any:
    """Whether the answer to the question of each node is yes for the feature that was picked for it."""
    call = in_fp32(graph)
    limit = _looked_up(graph, nodes.value.astype(np.float32), node)
    asked = sorted(set(nodes.question[~nodes.is_leaf].tolist())) or [AT_MOST]
    found = is_missing
    for question in asked:
        answer = call(_COMPARE[question], picked, limit)
        if len(asked) > 1:
            answer = call("And", answer, _looked_up(graph, nodes.question == question, node))
        found = answer if found is None else call("Or", found, answer)
    return found


def _numbers(floats: tuple[float, ...], tensor: Array | None) -> Array:
    return np.array(floats, np.float32) if tensor is None else tensor.reshape(-1).astype(np.float32)


@composition("ai.onnx.ml::TreeEnsembleRegressor")
def tree_ensemble_regressor(
    graph: Graph,
    x: Value,
    *,
    nodes_treeids: tuple[int, ...],
    nodes_nodeids: tuple[int, ...],
    nodes_featureids: tuple[int, ...],
    nodes_modes: tuple[str, ...],
    nodes_truenodeids: tuple[int, ...],
    nodes_falsenodeids: tuple[int, ...],
    target_treeids: tuple[int, ...],
    target_nodeids: tuple[int, ...],
    target_ids: tuple[int, ...],
    n_targets: int = 1,
    nodes_values: tuple[float, ...] = (),
    nodes_values_as_tensor: Array | None = None,
    nodes_hitrates: tuple[float, ...] = (),
    nodes_hitrates_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: tuple[int, ...] = (),
    target_weights: tuple[float, ...] = (),
    target_weights_as_tensor: Array | None = None,
    base_values: tuple[float, ...] = (),
    base_values_as_tensor: Array | None = None,
    aggregate_function: str = "SUM",
    post_transform: str = "NONE",
) -> Any:
    """What the leaves that a row reaches add up to, and base values."""
    values = _numbers(nodes_values, nodes_values_as_tensor)
    ends, missing = (nodes_truenodeids, nodes_falsenodeids), nodes_missing_value_tracks_true
    forest = forest_of(nodes_treeids, nodes_nodeids, nodes_featureids, values, nodes_modes, *ends, missing)
    voters = forest.voters(target_treeids, target_nodeids)
    weights = _numbers(target_weights, target_weights_as_tensor)
    found = Ensemble.of(forest.nodes, forest.roots, voters, target_ids, weights, n_targets)
    found = found.results(graph, x, aggregate_function)
    base = _numbers(base_values, base_values_as_tensor)
    if base.size not in (0, n_targets):
        raise refusals.wrong_shape("there must be a base value for each target", base_values=base)
    if base.size:
        found = in_fp32(graph)("Add", found, base)
    return as_results(graph, transformed(graph, found, post_transform))


@composition("ai.onnx.ml::TreeEnsembleClassifier")
def tree_ensemble_classifier(
    graph: Graph,
    x: Value,
    *,
    nodes_treeids: tuple[int, ...],
    nodes_nodeids: tuple[int, ...],
    nodes_featureids: tuple[int, ...],
    nodes_modes: tuple[str, ...],
    nodes_truenodeids: tuple[int, ...],
    nodes_falsenodeids: tuple[int, ...],
    class_treeids: tuple[int, ...],
    class_nodeids: tuple[int, ...],
    class_ids: tuple[int, ...],
    classlabels_int64s: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
    nodes_values: tuple[float, ...] = (),
    nodes_values_as_tensor: Array | None = None,
    nodes_hitrates: tuple[float, ...] = (),
    nodes_hitrates_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: tuple[int, ...] = (),
    class_weights: tuple[float, ...] = (),
    class_weights_as_tensor: Array | None = None,
    base_values: tuple[float, ...] = (),
    base_values_as_tensor: Array | None = None,
    post_transform: str = "NONE",
) -> tuple[Any, Any]:
    """The label with most votes, and the scores.

    Of two classes all votes may be for one. As onnxruntime has it, votes that are all positive are probabilities: the
    second class needs more than a half of them, and the first has the rest; others decide by their sign.
    """
    labels = class_labels(classlabels_int64s, classlabels_strings)
    values = _numbers(nodes_values, nodes_values_as_tensor)
    ends, missing = (nodes_truenodeids, nodes_falsenodeids), nodes_missing_value_tracks_true
    forest = forest_of(nodes_treeids, nodes_nodeids, nodes_featureids, values, nodes_modes, *ends, missing)
    voters = forest.voters(class_treeids, class_nodeids)
    weights = _numbers(class_weights, class_weights_as_tensor)
    base = _numbers(base_values, base_values_as_tensor)
    is_single = len(labels) == 2 and set(class_ids) == {0}
    if base.size not in ((0, 1) if is_single else (0, len(labels))):
        raise refusals.wrong_shape("there must be a base value for each class that has votes", base_values=base)
    count = 1 if is_single else len(labels)
    trees = Ensemble.of(forest.nodes, forest.roots, voters, class_ids, weights, count)
    scores = trees.results(graph, x, "SUM")
    if base.size:
        scores = in_fp32(graph)("Add", scores, base)
    if not is_single:
        label, found = top_class(graph, scores, labels), transformed(graph, scores, post_transform)
        return label, as_results(graph, found)
    is_positive = bool((weights >= 0).all())
    both = scores_of_two(graph, scores, post_transform, opposite=not is_positive)
    return one_of_two(graph, scores, labels, 0.5 if is_positive else 0.0), as_results(graph, both)


@composition("ai.onnx.ml::TreeEnsemble")
def tree_ensemble(
    graph: Graph,
    x: Value,
    *,
    nodes_featureids: tuple[int, ...],
    nodes_modes: Array,
    nodes_splits: Array,
    nodes_truenodeids: tuple[int, ...],
    nodes_trueleafs: tuple[int, ...],
    nodes_falsenodeids: tuple[int, ...],
    nodes_falseleafs: tuple[int, ...],
    tree_roots: tuple[int, ...],
    leaf_targetids: tuple[int, ...],
    leaf_weights: Array,
    n_targets: int = 1,
    nodes_hitrates: Array | None = None,
    nodes_missing_value_tracks_true: tuple[int, ...] = (),
    membership_values: Array | None = None,
    aggregate_function: int = 1,
    post_transform: int = 0,
) -> Any:
    """Of the domain's fifth operator set: leaves are counted apart from nodes, and have one weight each."""
    modes = nodes_modes.reshape(-1).tolist()
    if any(not 0 <= mode < len(_NUMBERED_MODES) for mode in modes):
        raise refusals.unsupported("nodes that ask whether a feature is one of a set")
    inner, leaves = len(modes), len(leaf_targetids)
    missing, splits = nodes_missing_value_tracks_true or [0] * inner, nodes_splits.reshape(-1)
    given = {
        "nodes_modes": modes, "nodes_featureids": nodes_featureids, "nodes_splits": splits,
        "nodes_truenodeids": nodes_truenodeids, "nodes_trueleafs": nodes_trueleafs,
        "nodes_falsenodeids": nodes_falsenodeids, "nodes_falseleafs": nodes_falseleafs,
        "nodes_missing_value_tracks_true": missing,
    }  # fmt: skip
    check_lengths(given, inner)
    check_features(nodes_featureids)
    for ids, are_leaves in ((nodes_truenodeids, nodes_trueleafs), (nodes_falsenodeids, nodes_falseleafs)):
        for end, is_leaf in zip(ids, are_leaves, strict=True):
            if not 0 <= end < (leaves if is_leaf else inner):
                raise refusals.wrong_value("must be nodes, or leaves, that there are", "nodes_truenodeids", end)
    if any(not 0 <= root < inner for root in tree_roots):
        raise refusals.wrong_value(f"must be nodes below {inner}", "tree_roots", tree_roots)
    if not 0 <= aggregate_function < len(_NUMBERED_AGGREGATES):
        raise refusals.wrong_value("must be 0, 1, 2 or 3", "aggregate_function", aggregate_function)
    ends = np.arange(inner, inner + leaves)
    yes, no = (
        np.concatenate([np.array(ids) + inner * np.array(are_leaves), ends])
        for ids, are_leaves in ((nodes_truenodeids, nodes_trueleafs), (nodes_falsenodeids, nodes_falseleafs))
    )
    nodes = asked_as_known(
        np.array([*nodes_featureids, *[0] * leaves]),
        np.concatenate([splits, np.zeros(leaves)]).astype(np.float32),
        [*(_NUMBERED_MODES[mode] for mode in modes), *["BRANCH_LEQ"] * leaves],
        yes,
        no,
        np.array([*missing, *[0] * leaves], bool),
    )
    weights = leaf_weights.reshape(-1).astype(np.float32)
    trees = Ensemble.of(nodes, np.array(tree_roots), ends.tolist(), leaf_targetids, weights, n_targets)
    found = trees.results(graph, x, _NUMBERED_AGGREGATES[aggregate_function])
    if not 0 <= post_transform < len(_NUMBERED_TRANSFORMS):
        check_transform(str(post_transform), [str(at) for at in range(len(_NUMBERED_TRANSFORMS))])
    return as_results(graph, transformed(graph, found, _NUMBERED_TRANSFORMS[post_transform]))
