"""The trees of an ensemble, as ONNX's attributes describe them: nodes that ask one feature, and leaves with weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.operators import refusals

Array = np.ndarray[Any, Any]

# What a node asks, and the question whose answer is the opposite, if that is what is asked here instead.
AT_MOST, LESS, EQUAL = 0, 1, 2
_MODES = {
    "BRANCH_LEQ": (AT_MOST, False), "BRANCH_LT": (LESS, False), "BRANCH_EQ": (EQUAL, False),
    "BRANCH_GT": (AT_MOST, True), "BRANCH_GTE": (LESS, True), "BRANCH_NEQ": (EQUAL, True),
}  # fmt: skip
LEAF = "LEAF"


@dataclass(frozen=True)
class Nodes:
    """Arrays by node. ``yes`` and ``no`` are the nodes behind each answer, of a leaf the leaf itself.

    ``missing`` says whether NaN, which is no number, goes where the answer is yes.
    """

    feature: Array
    value: Array
    question: Array
    missing: Array
    yes: Array
    no: Array

    @property
    def is_leaf(self) -> Array:
        leaves: Array = self.yes == np.arange(len(self.yes))
        return leaves


@dataclass(frozen=True)
class Paths:
    """The way to each leaf, by tree: ``asked`` are its inner nodes, ``leaves`` its leaves, both filled up with -1.

    ``turns`` is [trees, asked, leaves]: 1 where the leaf is behind a yes, -1 behind a no, 0 where it is elsewhere.
    """

    asked: Array
    leaves: Array
    turns: Array


@dataclass(frozen=True)
class Forest:
    """Nodes, the root of each tree, and which node a pair of a tree and a number is."""

    nodes: Nodes
    roots: Array
    places: Mapping[tuple[int, int], int]

    def voters(self, trees: Sequence[int], numbers: Sequence[int]) -> list[int]:
        """The nodes that weights are given for."""
        check_lengths({"trees of weights": trees, "their nodes": numbers}, len(trees))
        wrong = next((key for key in zip(trees, numbers, strict=True) if key not in self.places), None)
        if wrong is not None:
            raise refusals.wrong_value("must be nodes of the trees", "nodes of weights", wrong)
        return [self.places[key] for key in zip(trees, numbers, strict=True)]


def check_lengths(attributes: Mapping[str, Sequence[Any] | Array], count: int) -> None:
    """Attributes that say something of each node, or weight, are as many as there are of these."""
    for name, values in attributes.items():
        if not count or len(values) != count:
            rule = f"there must be one for each of {count}" if count else "there must be one or more"
            raise refusals.wrong_shape(rule, **{name: np.array(list(values))})


def check_features(features: Sequence[int]) -> None:
    if min(features, default=0) < 0:
        raise refusals.wrong_value("must be 0 or more", "nodes_featureids", min(features))


def forest_of(
    trees: Sequence[int],
    numbers: Sequence[int],
    features: Sequence[int],
    values: Array,
    modes: Sequence[str],
    yes_numbers: Sequence[int],
    no_numbers: Sequence[int],
    missing: Sequence[int],
) -> Forest:
    count = len(modes)
    given: dict[str, Sequence[Any] | Array] = {
        "nodes_modes": modes, "nodes_treeids": trees, "nodes_nodeids": numbers, "nodes_featureids": features,
        "nodes_values": values, "nodes_truenodeids": yes_numbers,
        "nodes_falsenodeids": no_numbers, "nodes_missing_value_tracks_true": missing or [0] * count,
    }  # fmt: skip
    check_lengths(given, count)
    check_features(features)
    keys, children = list(zip(trees, numbers, strict=True)), list(zip(yes_numbers, no_numbers, strict=True))
    places = {key: at for at, key in enumerate(keys)}
    ends: list[tuple[int, int]] = []
    for at, ((tree, _), mode, pair) in enumerate(zip(keys, modes, children, strict=True)):
        if mode == LEAF:
            ends.append((at, at))
        elif mode not in _MODES:
            raise refusals.wrong_value(f"must be one of {LEAF}, {', '.join(_MODES)}", "nodes_modes", mode)
        elif any(places.get((tree, each), at) == at for each in pair):
            raise refusals.wrong_value("must be other nodes of the same tree", "nodes_truenodeids", pair)
        else:
            ends.append((places[tree, pair[0]], places[tree, pair[1]]))
    yes, no = np.array(ends).T
    found = asked_as_known(np.array(features), values, modes, yes, no, np.array(missing or [0] * count, bool))
    inner = ~found.is_leaf
    behind = set(yes[inner].tolist()) | set(no[inner].tolist())
    return Forest(found, np.array([at for at in range(count) if at not in behind], int), places)


def asked_as_known(
    features: Array, values: Array, modes: Sequence[str], yes: Array, no: Array, missing: Array
) -> Nodes:
    """Nodes that ask three questions only: of the others yes and no change places.

    NaN is neither less nor equal, so that it goes where the answer is no, if it is not ``missing``; of a question
    whose places have changed that is where the answer now is yes.
    """
    question = np.array([_MODES.get(mode, (AT_MOST, False))[0] for mode in modes])
    turned = np.array([_MODES.get(mode, (AT_MOST, False))[1] for mode in modes])
    differs = np.array([mode == "BRANCH_NEQ" for mode in modes])
    missing = np.where(differs, False, missing ^ turned)
    return Nodes(features, values, question, missing, np.where(turned, no, yes), np.where(turned, yes, no))


def paths_of(nodes: Nodes, roots: Array) -> Paths:
    """The paths of all trees from their roots."""
    if not len(roots):
        raise refusals.unsupported("trees without roots")
    found = [_paths_from(nodes, int(root)) for root in roots]
    most_asked = max(1, *(len(asked) for asked, _ in found))
    most_leaves = max(len(ways) for _, ways in found)
    asked, leaves = np.full((len(found), most_asked), -1), np.full((len(found), most_leaves), -1)
    turns = np.zeros((len(found), most_asked, most_leaves), np.float32)
    for tree, (inner, ways) in enumerate(found):
        asked[tree, : len(inner)] = inner
        for at, (leaf, way) in enumerate(ways.items()):
            leaves[tree, at] = leaf
            for place, turn in way:
                turns[tree, place, at] = turn
    return Paths(asked, leaves, turns)


Way = tuple[tuple[int, int], ...]


def _paths_from(nodes: Nodes, root: int) -> tuple[list[int], Mapping[int, Way]]:
    """The inner nodes of a tree, and for each leaf the places of those above it, with the turn that is taken there."""
    inner: list[int] = []
    ways: dict[int, Way] = {}
    waiting: list[tuple[int, Way]] = [(root, ())]
    while waiting:
        node, way = waiting.pop()
        if node in ways or len(inner) > len(nodes.yes):
            raise refusals.unsupported("nodes that are reached in two ways")
        if nodes.yes[node] == node:
            ways[node] = way
            continue
        place = len(inner)
        inner.append(node)
        waiting.append((int(nodes.no[node]), (*way, (place, -1))))
        waiting.append((int(nodes.yes[node]), (*way, (place, 1))))
    return inner, ways
