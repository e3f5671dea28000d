"""Operators of ONNX's domain for classical models, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.errors import InvalidError, UnsupportedError
from compiler.frontend import import_model
from compiler.report.comparison import Tolerance, compare
from models import checks
from tests.frontend.cpu import run

pytestmark = pytest.mark.usefixtures("as_planned")

DOMAIN = "ai.onnx.ml"
RNG = np.random.default_rng(7)
Array = np.ndarray[Any, Any]
X = RNG.standard_normal((19, 6)).astype(np.float32)
INTEGERS = RNG.integers(0, 5, (19, 6))


def numbers(*shape: int) -> list[float]:
    return list(RNG.standard_normal(shape).astype(np.float32).ravel().tolist())


def model(
    operator: str, outputs: dict[str, int], given: dict[str, Array], opset: int = 3, **attributes: Any
) -> onnx.ModelProto:
    """One node; ``outputs`` are named with their element types."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    node = helper.make_node(operator, list(given), list(outputs), "node", domain=DOMAIN, **attributes)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, opset)]
    return helper.make_model(helper.make_graph([node], "g", inputs, results), opset_imports=opsets, ir_version=9)


def check(operator: str, x: Array, kind: int = TensorProto.FLOAT, opset: int = 3, **attributes: Any) -> None:
    agree(model(operator, {"y": kind}, {"x": x}, opset, **attributes), {"x": x})


def check_classes(operator: str, x: Array, off: float = 0.0, **attributes: Any) -> None:
    outputs = {"label": TensorProto.INT64, "scores": TensorProto.FLOAT}
    agree(model(operator, outputs, {"x": x}, **attributes), {"x": x}, off)


def agree(proto: onnx.ModelProto, feeds: dict[str, Array], off: float = 0.0) -> None:
    """``off``: by how much a number may differ."""
    imported = import_model(proto.SerializeToString())
    for found, wanted in zip(run(imported, feeds), checks.run(proto, feeds).values(), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-5, atol=1e-5 + off)


# ---- features ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [X, INTEGERS], ids=["floats", "integers"])
@pytest.mark.parametrize("count", [1, 6])
def test_scales_features(x: Array, count: int) -> None:
    check("Scaler", x, offset=numbers(count), scale=numbers(count))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_norms_rows_and_leaves_zeros(norm: str) -> None:
    x = X.copy()
    x[3], x[4] = 0, -np.abs(x[4])
    check("Normalizer", x, norm=norm)


def test_fills_in_what_is_missing() -> None:
    holes = np.where(X > 1, np.float32(np.nan), X)
    check("Imputer", holes, imputed_value_floats=numbers(6), replaced_value_float=float("nan"))
    check("Imputer", X.round(), imputed_value_floats=[0.5], replaced_value_float=1.0)
    check("Imputer", INTEGERS, TensorProto.INT64, imputed_value_int64s=[9], replaced_value_int64=3)


def test_encodes_numbers() -> None:
    check("Binarizer", X, threshold=0.25)
    check("OneHotEncoder", INTEGERS, cats_int64s=[0, 2, 4, 9])
    check("LabelEncoder", INTEGERS, TensorProto.INT64, 2, keys_int64s=[0, 2], values_int64s=[7, 8], default_int64=-3)
    check("LabelEncoder", INTEGERS, opset=2, keys_int64s=[0, 2], values_floats=[0.5, 1.5], default_float=9.0)
    keys = [0.0, 1.0, float("nan")]
    holes = np.where(X > 1, np.float32(np.nan), X.round())
    for opset in (2, 4):  # only of the second of these NaN is a key
        check("LabelEncoder", holes, opset=opset, keys_floats=keys, values_floats=[3.0, 4.0, 5.0], default_float=-1.0)


def test_joins_and_picks_columns() -> None:
    given = {"a": X[:, :2], "b": X[:, 1:4]}
    agree(model("FeatureVectorizer", {"y": TensorProto.FLOAT}, given, inputdimensions=[2, 3]), given)
    which = np.array([[4, 1]])
    agree(model("ArrayFeatureExtractor", {"y": TensorProto.FLOAT}, {"x": X, "i": which}), {"x": X, "i": which})


# ---- linear models and support vectors ---------------------------------------------------------------------------


def test_linear_regression() -> None:
    check("LinearRegressor", X, coefficients=numbers(3, 6), intercepts=numbers(3), targets=3)
    parameters = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
    check("SVMRegressor", X, coefficients=numbers(6), rho=[0.2], **parameters)


@pytest.mark.parametrize("x", [X, INTEGERS, X.astype(np.float64)], ids=["floats", "integers", "doubles"])
def test_linear_models(x: Array) -> None:
    weights = {"coefficients": numbers(3, 6), "intercepts": numbers(3), "classlabels_ints": [4, 2, 9]}
    for transform in ("NONE", "LOGISTIC", "SOFTMAX"):
        check_classes("LinearClassifier", x, post_transform=transform, **weights)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_models_of_one_score(transform: str) -> None:
    weights = {"coefficients": numbers(6), "intercepts": [0.1], "classlabels_ints": [4, 2]}
    check_classes("LinearClassifier", X, post_transform=transform, **weights)


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
def test_support_vectors(kernel: str) -> None:
    vectors = {"kernel_type": kernel, "kernel_params": [0.3, 0.1, 3.0], "support_vectors": numbers(9, 6)}
    check("SVMRegressor", X, n_supports=9, coefficients=numbers(9), rho=[0.2], **vectors)
    check("SVMRegressor", X, n_supports=9, coefficients=numbers(9), rho=[0.2], one_class=1, **vectors)
    given = {"vectors_per_class": [4, 2, 3], "classlabels_ints": [4, 2, 9], "coefficients": numbers(2, 9)}
    check_classes("SVMClassifier", X, rho=numbers(3), **given, **vectors)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_support_vectors_of_two_classes(transform: str) -> None:
    vectors = {"kernel_type": "RBF", "kernel_params": [0.3, 0.0, 0.0], "support_vectors": numbers(7, 6)}
    given = {"vectors_per_class": [4, 3], "classlabels_ints": [4, 2], "coefficients": numbers(7), "rho": [0.1]}
    check_classes("SVMClassifier", X, post_transform=transform, **given, **vectors)
    # onnxruntime stops at probabilities that nearly fit.
    check_classes("SVMClassifier", X, 5e-3, prob_a=[-1.5], prob_b=[0.1], **given, **vectors)


# ---- trees -------------------------------------------------------------------------------------------------------

ALL_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ")


def trees(
    count: int, depth: int, features: int, modes: Sequence[str] = ("BRANCH_LEQ",), missing: bool = False
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """The attributes of the nodes of random trees, and their leaves."""
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    rows: list[tuple[Any, ...]] = []
    leaves = []
    for tree in range(count):
        waiting, end = [(0, 0)], 1
        while waiting:
            node, level = waiting.pop(0)
            if level < depth and (level == 0 or RNG.random() < 0.9):
                feature, value = int(RNG.integers(features)), float(round(RNG.standard_normal()))
                rows.append((tree, node, feature, value, str(RNG.choice(list(modes))), end, end + 1))
                waiting += [(end, level + 1), (end + 1, level + 1)]
                end += 2
            else:
                rows.append((tree, node, 0, 0.0, "LEAF", 0, 0))
                leaves.append((tree, node))
    found: dict[str, Any] = {
        f"nodes_{n}": list(column) for n, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    if missing:
        found["nodes_missing_value_tracks_true"] = RNG.integers(0, 2, len(rows)).tolist()
    return found, leaves


def votes(
    kind: str, leaves: Sequence[tuple[int, int]], ids: Sequence[int], *, positive: bool = False
) -> dict[str, Any]:
    """A weight of each leaf for each of ``ids``."""
    each = [(tree, node, one) for tree, node in leaves for one in ids]
    weights = np.abs(numbers(len(each))) / 9 if positive else np.array(numbers(len(each)))
    columns = dict(zip(("treeids", "nodeids", "ids"), map(list, zip(*each, strict=True)), strict=True))
    return {f"{kind}_{name}": column for name, column in columns.items()} | {f"{kind}_weights": weights.tolist()}


ROUND = np.where(np.abs(X) > 2, np.float32(np.nan), X.round())


@pytest.mark.parametrize("rows", [1, 19])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("depth", [4, 9])
def test_forests_ask_anything(rows: int, missing: bool, depth: int) -> None:
    """Whatever is asked, missing or not, at the limit or beside it; trees of many leaves level by level."""
    nodes, leaves = trees(5, depth, 6, ALL_MODES, missing)
    weights = votes("target", leaves, (0, 2))
    check("TreeEnsembleRegressor", ROUND[:rows], n_targets=3, **nodes, **weights)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_forests_add_up(aggregate: str) -> None:
    nodes, leaves = trees(7, 3, 6)
    base = {"base_values": numbers(2)} if aggregate == "SUM" else {}
    weights = votes("target", leaves, (0, 1))
    check("TreeEnsembleRegressor", X, n_targets=2, aggregate_function=aggregate, **base, **nodes, **weights)


def test_infinities_are_numbers_and_limits() -> None:
    nodes, leaves = trees(3, 3, 6)
    x = np.where(X > 1, np.float32(np.inf), np.where(X < -1, np.float32(-np.inf), X))
    weights = votes("target", leaves, (0,))
    check("TreeEnsembleRegressor", x, n_targets=1, **nodes, **weights)
    nodes["nodes_values"][0] = float("inf")
    check("TreeEnsembleRegressor", x, n_targets=1, **nodes, **weights)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("base", [[], [0.2]])
def test_forests_of_two_classes(transform: str, positive: bool, base: list[float]) -> None:
    nodes, leaves = trees(7, 3, 6)
    given = {"classlabels_int64s": [4, 2], "post_transform": transform} | ({"base_values": base} if base else {})
    check_classes("TreeEnsembleClassifier", X, **given, **nodes, **votes("class", leaves, (0,), positive=positive))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("base", [[], [0.2, 0.1, -0.3]])
def test_forests_of_more_classes(transform: str, base: list[float]) -> None:
    nodes, leaves = trees(7, 3, 6)
    given = {"classlabels_int64s": [4, 2, 9], "post_transform": transform} | ({"base_values": base} if base else {})
    check_classes("TreeEnsembleClassifier", X, **given, **nodes, **votes("class", leaves, (0, 1, 2)))


def test_trees_whose_leaves_are_counted_apart() -> None:
    x = X[:, :2]
    attributes = {
        "nodes_featureids": [0, 1, 0], "nodes_truenodeids": [1, 0, 2], "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 3], "nodes_falseleafs": [0, 1, 1], "tree_roots": [0],
        "leaf_targetids": [0, 1, 0, 0], "n_targets": 2, "aggregate_function": 1, "post_transform": 0,
        "nodes_modes": numpy_helper.from_array(np.array([0, 1, 3], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array([0.1, -0.2, 0.3], np.float32)),
        "leaf_weights": numpy_helper.from_array(np.array([1.5, -2, 3, 4], np.float32)),
    }  # fmt: skip
    check("TreeEnsemble", x, opset=5, **attributes)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_pipeline_runs_on_the_chip(precision: str) -> None:
    nodes, leaves = trees(9, 4, 6)
    scaled = helper.make_node("Scaler", ["x"], ["s"], domain=DOMAIN, offset=numbers(6), scale=[1.0] * 6)
    forest = votes("class", leaves, (0, 1, 2)) | nodes | {"classlabels_int64s": [4, 2, 9]}
    found = helper.make_node("TreeEnsembleClassifier", ["s"], ["label", "scores"], domain=DOMAIN, **forest)
    x = helper.make_tensor_value_info("x", TensorProto.INT64, INTEGERS.shape)
    label = helper.make_tensor_value_info("label", TensorProto.INT64, [19])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [19, 3])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 3)]
    graph = helper.make_graph([scaled, found], "g", [x], [label, scores])
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    results = compiler.compile(proto, chip="tiny", precision=precision).run({"x": INTEGERS}, hazards=True)
    expected = checks.run(proto, {"x": INTEGERS})
    np.testing.assert_array_equal(results["label"], expected["label"])
    assert not compare("scores", expected["scores"], results["scores"], Tolerance(1e-3, 1e-2)).fault


@pytest.mark.parametrize(
    ("operator", "attributes", "message"),
    [
        ("LinearClassifier", {"coefficients": numbers(12), "classlabels_strings": ["a", "b"]}, "texts"),
        ("LinearClassifier", {"coefficients": numbers(6), "classlabels_ints": [1]}, "a classifier of 1 classes"),
        ("ZipMap", {"classlabels_int64s": [1, 2, 3, 4, 5, 6]}, "zipmap"),
    ],
)
def test_refuses_what_is_no_tensor(operator: str, attributes: dict[str, Any], message: str) -> None:
    outputs = {"label": TensorProto.INT64, "scores": TensorProto.FLOAT}
    if operator == "ZipMap":
        outputs = {"scores": TensorProto.FLOAT}
    with pytest.raises(UnsupportedError) as raised:
        import_model(model(operator, outputs, {"x": X}, **attributes).SerializeToString())
    problem = raised.value.problems[0]
    assert message in problem.message + problem.hint


def test_refuses_nodes_that_are_reached_twice() -> None:
    nodes, leaves = trees(1, 2, 6)
    nodes["nodes_falsenodeids"][0] = nodes["nodes_truenodeids"][0]
    with pytest.raises(UnsupportedError, match="reached in two ways"):
        proto = model("TreeEnsembleRegressor", {"y": 1}, {"x": X}, **nodes, **votes("target", leaves, (0,)))
        import_model(proto.SerializeToString())


TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.5, 0.0, 0.0], "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
}  # fmt: skip
APART: dict[str, Any] = {
    "nodes_featureids": [0], "nodes_modes": numpy_helper.from_array(np.zeros(1, np.uint8)),
    "nodes_splits": numpy_helper.from_array(np.ones(1, np.float32)), "nodes_truenodeids": [0], "nodes_trueleafs": [1],
    "nodes_falsenodeids": [1], "nodes_falseleafs": [1], "tree_roots": [0], "leaf_targetids": [0, 0],
    "leaf_weights": numpy_helper.from_array(np.ones(2, np.float32)),
}  # fmt: skip
VECTORS: dict[str, Any] = {
    "coefficients": [1.0, 2.0], "n_supports": 2, "support_vectors": [1.0] * 12, "kernel_type": "RBF",
    "kernel_params": [0.1, 0.0, 3.0],
}  # fmt: skip
CLASSES: dict[str, Any] = {
    "coefficients": [1.0, 2.0], "vectors_per_class": [1, 1], "support_vectors": [1.0] * 12, "rho": [0.1],
    "classlabels_ints": [0, 1],
}  # fmt: skip


@pytest.mark.parametrize(
    "operator, known, changed, said",
    [
        ("TreeEnsembleRegressor", TREE, {"nodes_nodeids": [0, 1]}, "one for each of 3.*nodes_nodeids"),
        ("TreeEnsembleRegressor", TREE, {"nodes_missing_value_tracks_true": [1]}, "one for each of 3"),
        ("TreeEnsembleRegressor", TREE, {"target_nodeids": [1, 7]}, "nodes of the trees"),
        ("TreeEnsembleRegressor", TREE, {"target_treeids": [0]}, "one for each of 1"),
        ("TreeEnsembleRegressor", TREE, {"nodes_featureids": [-1, 0, 0]}, "0 or more"),
        ("TreeEnsembleRegressor", TREE, {"nodes_truenodeids": [0, 0, 0]}, "other nodes of the same tree"),
        ("TreeEnsembleRegressor", TREE, {"base_values": [1.0, 2.0]}, "base value for each target"),
        ("TreeEnsemble", APART, {"aggregate_function": -1}, "0, 1, 2 or 3"),
        ("TreeEnsemble", APART, {"tree_roots": [5]}, "nodes below 1"),
        ("TreeEnsemble", APART, {"nodes_truenodeids": [-1]}, "that there are"),
        ("TreeEnsemble", APART, {"nodes_featureids": [0, 1]}, "one for each of 1.*nodes_featureids"),
        ("SVMRegressor", VECTORS, {"kernel_params": [0.1, 0.2]}, "gamma, coef0 and degree"),
        ("SVMRegressor", VECTORS, {"support_vectors": [1.0] * 11}, "2 support vectors"),
        ("SVMRegressor", VECTORS, {"coefficients": [1.0]}, "2 coefficients"),
        ("SVMClassifier", CLASSES, {"coefficients": [1.0]}, "2 coefficients"),
        ("SVMClassifier", CLASSES, {"vectors_per_class": [-1, 3]}, "0 or more of each class"),
        ("SVMClassifier", CLASSES, {"prob_a": [1.0]}, "as many prob_a as prob_b"),
    ],
)
def test_attributes_that_do_not_go_together_are_refused(
    operator: str, known: dict[str, Any], changed: dict[str, Any], said: str
) -> None:
    """As what is wrong with the model, not as an error of the operator's."""
    outputs = (
        {"y": TensorProto.INT64, "z": TensorProto.FLOAT} if operator == "SVMClassifier" else {"y": TensorProto.FLOAT}
    )
    opset = 5 if operator == "TreeEnsemble" else 3
    import_model(model(operator, outputs, {"x": X}, opset, **known).SerializeToString())
    source = model(operator, outputs, {"x": X}, opset, **known | changed).SerializeToString()
    with pytest.raises(InvalidError, match=f"TW21(08|11)(?s:.*){said}"):
        import_model(source)
