"""Operators of ONNX's domain for classical models that prepare columns: scaled, filled in, encoded, joined.

Texts are no tensors of the chip: encoders take numbers to numbers, and those with texts are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import FLOATS, result_dtype, shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition

Array = np.ndarray[Any, Any]

_NAN_IS_A_KEY = 4  # operator set of the domain
_NORMS = {"L1": 1, "L2": 2}


def as_floats(graph: Graph, x: Value) -> Value:
    """Floats as they are, and all else as fp32."""
    return x if result_dtype(x) in FLOATS else as_dtype(graph, x, "float32")


def as_results(graph: Graph, x: Value) -> Value:
    """In what the model's floats of fp32 are compiled to, whatever type ``x`` was computed in."""
    return as_dtype(graph, x, graph.constant(number(0)).dtype)


def number(value: float, dtype: str = "float32") -> Array:
    """As an operand of calls."""
    return np.array(value, np.float32).astype(dtype)


def in_fp32(graph: Graph) -> Callable[..., Any]:
    """Calls as those of the graph whose known floats of fp32 stay that in models of 16 bits, too: what is compared with
    a limit, or is the difference of large numbers.
    """

    def call(name: str, *values: Any, **attributes: Any) -> Any:
        is_wide = (isinstance(each, np.ndarray) and each.dtype == np.float32 for each in values)
        known = (graph.wide(graph.constant(v)) if wide else v for v, wide in zip(values, is_wide, strict=True))
        return graph.call(name, *known, **attributes)

    return call


def as_rows(graph: Graph, x: Value) -> Value:
    """[rows, features] of what may be the features of one row."""
    rank = len(shape_of(x))
    if rank not in (1, 2):
        raise refusals.wrong_shape("x must be [rows, features], or [features]", x=x)
    result: Value = x if rank == 2 else graph.call("Reshape", x, np.array([1, -1]))
    return result


def no_texts(name: str, texts: tuple[str, ...]) -> None:
    if texts:
        raise refusals.unsupported(f"texts, as in {name!r}", "convert the model with numbers in their place")


@composition("ai.onnx.ml::Scaler")
def scaler(graph: Graph, x: Value, *, offset: tuple[float, ...] = (), scale: tuple[float, ...] = ()) -> Any:
    """``(x - offset) * scale``, each of one number or of one for each feature."""
    call = in_fp32(graph)
    result = as_floats(graph, x)
    dtype = result_dtype(result)
    if offset:
        result = call("Sub", result, np.array(offset, np.float32).astype(dtype))
    if scale:
        result = call("Mul", result, np.array(scale, np.float32).astype(dtype))
    return as_results(graph, result)


@composition("ai.onnx.ml::Normalizer")
def normalizer(graph: Graph, x: Value, *, norm: str = "MAX") -> Any:
    """By the largest element of each row, which may be negative, or by its L1 or L2 norm; zeros stay zeros."""
    call = in_fp32(graph)
    rows = as_floats(graph, x)
    if norm in _NORMS:
        return as_results(graph, call("LpNormalization", rows, axis=-1, p=_NORMS[norm]))
    if norm != "MAX":
        raise refusals.wrong_value(f"must be one of MAX, {', '.join(_NORMS)}", "norm", norm)
    dtype = result_dtype(rows)
    largest = call("ReduceMax", rows, np.array([-1]))
    is_zero = call("Equal", largest, np.zeros((), dtype))
    return as_results(graph, call("Div", rows, call("Where", is_zero, np.ones((), dtype), largest)))


@composition("ai.onnx.ml::Binarizer")
def binarizer(graph: Graph, x: Value, *, threshold: float = 0.0) -> Any:
    is_more = in_fp32(graph)("Greater", x, number(threshold, result_dtype(x)))
    return as_dtype(graph, is_more, result_dtype(x))


@composition("ai.onnx.ml::Imputer")
def imputer(
    graph: Graph,
    x: Value,
    *,
    imputed_value_floats: tuple[float, ...] = (),
    imputed_value_int64s: tuple[int, ...] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Any:
    """What is ``replaced_value`` becomes the number of its feature, or the one that there is for all."""
    call = in_fp32(graph)
    dtype = result_dtype(x)
    is_float = dtype in FLOATS
    values: Array = np.array(imputed_value_floats, np.float32) if is_float else np.array(imputed_value_int64s)
    replaced = replaced_value_float if is_float else replaced_value_int64
    if values.size not in (1, shape_of(x)[-1]):
        raise refusals.wrong_shape("there must be one imputed value, or one for each feature", values=values, x=x)
    if math.isnan(replaced):
        is_missing = call("IsNaN", x)
    else:
        is_missing = call("Equal", x, np.array(replaced).astype(dtype))
    return call("Where", is_missing, values.astype(dtype), x)


@composition("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(graph: Graph, x: Value, y: Value) -> Any:
    """The elements ``y`` of the last axis."""
    rows = x if len(shape_of(x)) > 1 else as_rows(graph, x)
    return graph.call("Gather", rows, graph.call("Reshape", y, np.array([-1])), axis=-1)


@composition("ai.onnx.ml::FeatureVectorizer")
def feature_vectorizer(graph: Graph, *columns: Value, inputdimensions: tuple[int, ...] = ()) -> Any:
    """The columns of all inputs, side by side, as floats."""
    rows = [as_rows(graph, as_results(graph, each)) for each in columns]
    if inputdimensions and tuple(shape_of(each)[1] for each in rows) != inputdimensions:
        raise refusals.wrong_value("must be how many columns each input has", "inputdimensions", inputdimensions)
    return graph.call("Concat", *rows, axis=1)


@composition("ai.onnx.ml::OneHotEncoder")
def one_hot_encoder(
    graph: Graph,
    x: Value,
    *,
    cats_int64s: tuple[int, ...] = (),
    cats_strings: tuple[str, ...] = (),
    zeros: bool = True,
) -> Any:
    """One where an element is the category, along a new last axis. An unknown one is all zeros whatever ``zeros`` says:
    a chip raises no error while it runs.
    """
    no_texts("cats_strings", cats_strings)
    found = _matches(graph, as_dtype(graph, x, "int32"), np.array(cats_int64s, np.int32))
    return as_results(graph, found)


@composition("ai.onnx.ml::LabelEncoder")
def label_encoder(
    graph: Graph,
    x: Value,
    *,
    keys_floats: tuple[float, ...] = (),
    keys_int64s: tuple[int, ...] = (),
    keys_strings: tuple[str, ...] = (),
    keys_tensor: Array | None = None,
    values_floats: tuple[float, ...] = (),
    values_int64s: tuple[int, ...] = (),
    values_strings: tuple[str, ...] = (),
    values_tensor: Array | None = None,
    classes_strings: tuple[str, ...] = (),
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Array | None = None,
    opset: int = 4,
) -> Any:
    """The value that stands beside each element among the keys, or the default; since set 4 NaN is a key as others."""
    call = in_fp32(graph)
    for name, texts in (
        ("keys_strings", keys_strings), ("values_strings", values_strings), ("classes_strings", classes_strings)
    ):  # fmt: skip
        no_texts(name, texts)
    is_float = result_dtype(x) in FLOATS
    keys = np.array(keys_floats, np.float32) if keys_floats else np.array(keys_int64s)
    keys = (keys if keys_tensor is None else keys_tensor.reshape(-1)).astype(result_dtype(x))
    values, default = _values(values_floats, values_int64s, values_tensor, default_float, default_int64, default_tensor)
    if not 0 < keys.size == values.size:
        raise refusals.wrong_shape("there must be a value for each key", keys=keys, values=values)
    found = _matches(graph, x, keys)
    if opset >= _NAN_IS_A_KEY and is_float and np.isnan(keys.astype(np.float32)).any():
        of_nan = call("And", call("Unsqueeze", call("IsNaN", x), np.array([-1])), np.isnan(keys))
        found = call("Or", found, of_nan)
    counted = as_dtype(graph, found, "int32")
    value = call("Gather", values, call("ArgMax", counted, axis=-1, keepdims=False))
    is_known = as_dtype(graph, call("ReduceMax", counted, np.array([-1]), keepdims=False), "bool")
    return call("Where", is_known, value, default)


def _values(
    floats: tuple[float, ...],
    integers: tuple[int, ...],
    tensor: Array | None,
    default_float: float,
    default_integer: int,
    default_tensor: Array | None,
) -> tuple[Array, Array]:
    """The values of an encoder and its default, in one type."""
    if tensor is None:
        values: Array = np.array(floats, np.float32) if floats else np.array(integers, np.int32)
    else:
        values = tensor.reshape(-1)
        values = values.astype(np.float32 if values.dtype.kind == "f" else np.int32)
    default: Any = default_float if values.dtype.kind == "f" else default_integer
    if default_tensor is not None:
        default = default_tensor.reshape(())
    return values, np.array(default).astype(values.dtype)


def _matches(graph: Graph, x: Value, keys: Array) -> Value:
    """Whether each element is each key, along a new last axis."""
    call = in_fp32(graph)
    result: Value = call("Equal", call("Unsqueeze", x, np.array([-1])), keys)
    return result
