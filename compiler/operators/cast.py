"""Changing the element type. ONNX's 64-bit types are the machine's 32-bit ones."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import element_dtype, literal, result_dtype, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator

# ONNX's numbers of the element types (TensorProto.DataType) that the machine has, or has narrower.
ONNX_DTYPES: dict[int, str] = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int32",
    9: "bool",
    10: "float16",
    11: "float32",
    12: "uint32",
    13: "uint32",
    16: "bfloat16",
}


def onnx_dtype(number: int) -> str:
    if number not in ONNX_DTYPES:
        raise refusals.unsupported(f"element type {number} of ONNX does not exist on the machine")
    return ONNX_DTYPES[number]


@operator("Cast", schedule="elementwise")
def cast(x: te.Tensor, *, to: int, saturate: bool = True, round_mode: str = "up") -> te.Tensor:
    """Floats truncate to integers. ``saturate`` and ``round_mode`` are for 8-bit floats, which do not exist here."""
    return converted(x, onnx_dtype(to))


@composition("CastLike")
def cast_like(graph: Graph, x: Value, like: Value, *, saturate: bool = True, round_mode: str = "up") -> Any:
    return graph.call("Cast", x, to=onnx_number(result_dtype(like)))


def onnx_number(dtype: str) -> int:
    return next(number for number, name in ONNX_DTYPES.items() if name == dtype)


def as_dtype(graph: Graph, value: Value, dtype: str) -> Value:
    """``value``, cast where it has another type."""
    if result_dtype(value) == dtype:
        return value
    result: Value = graph.call("Cast", value, to=onnx_number(dtype))
    return result


def converted(x: te.Tensor, dtype: str) -> te.Tensor:
    return te.compute(shape_of(x), lambda *i: converted_element(x[i], dtype), "cast")


def converted_element(value: Any, dtype: str) -> Any:
    """A number is true where it is not zero."""
    source = element_dtype(value)
    if dtype == "bool" and source != "bool":
        return tirx.NE(value, literal(0, source))
    return value.astype(dtype)
