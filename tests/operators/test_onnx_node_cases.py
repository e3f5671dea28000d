"""ONNX's own test cases of single nodes, on every operator that is declared."""

from __future__ import annotations

import warnings
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.operators import Declared, find
from tests.operators.evaluate import Known, demoted, run

pytestmark = pytest.mark.slow

# Patterns of cases' names, and why they cannot pass.
EXPECTED_FAILURES: dict[str, str] = {
    "test_ai_onnx_ml_tree_ensemble_set_membership": "trees whose nodes ask whether a feature is one of a set",
    "test_bernoulli*": "a program gives the same output for the same input every time",
    "test_bitcast_*64*": "the machine has no 64-bit data",
    "test_compress_*": "the shape of the output depends on the data",
    "test_nonzero_*": "the shape of the output depends on the data",
    "test_unique_*": "the shape of the output depends on the data",
    "test_nonmaxsuppression_identical_boxes": "whoever runs the program cuts the rows behind the count",
    "test_nonmaxsuppression_suppress_by_IOU_and_scores": "whoever runs the program cuts the rows behind the count",
    "test_training_dropout": "training",
    "test_training_dropout_mask": "training",
    "test_training_dropout_default*": "training",
}
_MACHINE_DTYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "bool")


@cache
def node_cases() -> dict[str, Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node") if _declared(case) is not None}


def _declared(case: Any) -> Declared | None:
    """The operator of a case with a single node, all of whose tensors the machine's types can hold."""
    if case.model is None or len(case.model.graph.node) != 1 or not case.data_sets:
        return None
    arrays = [_array(value) for values in case.data_sets[0] for value in values]
    if not all(array is not None and demoted(array).dtype.name in _MACHINE_DTYPES for array in arrays):
        return None
    node = case.model.graph.node[0]
    return find(node.domain, node.op_type)


def check(name: str) -> None:
    case = node_cases()[name]
    node = case.model.graph.node[0]
    declared = _declared(case)
    assert declared is not None
    opset = {entry.domain: entry.version for entry in case.model.opset_import}.get(node.domain)
    inputs, expected = ([_array(value) for value in values] for values in case.data_sets[0])
    by_name = dict(zip([value.name for value in case.model.graph.input], inputs, strict=True))
    values = []
    for position, input_name in enumerate(node.input):
        parameter = declared.signature.input_at(position)
        is_constant = parameter is not None and parameter.kind == "constant"
        values.append(Known(_given(by_name[input_name], is_constant), is_constant) if input_name else None)
    attributes = {attribute.name: _attribute(attribute) for attribute in node.attribute}
    if node.op_type == "Split" and "split" not in attributes and len(node.input) == 1:
        attributes["num_outputs"] = len(node.output)  # as the importer says it, before opset 18
    results = run(declared, values, attributes, opset, len(node.output))
    wanted = [output for output, output_name in enumerate(node.output) if output_name]
    assert len(wanted) == len(expected)
    for output, array in zip(wanted, expected, strict=True):
        result = results[output].array
        assert result.shape == array.shape
        assert result.dtype == demoted(array).dtype
        rtol = {"float16": 5e-3, "bfloat16": 2e-2}.get(result.dtype.name, case.rtol)
        kind = np.float64 if result.dtype.name in ("float16", "bfloat16", "float32") else result.dtype
        np.testing.assert_allclose(result.astype(kind), array.astype(kind), rtol, max(case.atol, rtol / 10))


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    """The cases hold arrays, numbers and TensorProtos; None for sequences and the like."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None


def _given(array: np.ndarray[Any, Any], is_constant: bool) -> np.ndarray[Any, Any]:
    return array if is_constant else demoted(array)


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [element.decode() if isinstance(element, bytes) else element for element in value]
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case_name" in metafunc.fixturenames:
        deselected = "not slow" in (metafunc.config.getoption("-m") or "")
        metafunc.parametrize("case_name", [] if deselected else sorted(node_cases()))


def test_node_case(case_name: str, request: pytest.FixtureRequest) -> None:
    for pattern, reason in EXPECTED_FAILURES.items():
        if fnmatchcase(case_name, pattern):
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    check(case_name)
