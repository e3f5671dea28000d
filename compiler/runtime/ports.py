"""The arrays of a caller and those of the chip: checked, and converted from the ones to the others.

ONNX has types that the chip has not. A wider integer becomes the chip's if its values fit; a float is rounded to
nearest; bool is a byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from compiler.arguments import expect
from compiler.errors import InvalidError, Problem, UsageError
from compiler.isa.dtypes import DTYPES
from compiler.isa.program import Buffer
from compiler.runtime.model import Port

MAX_LISTED = 8

ONNX_DTYPES: dict[str, np.dtype[Any]] = {
    **{name: np.dtype(name) for name in ("float16", "float32", "float64", "bool")},
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "int2", "uint2", "int4", "uint4")},
}
_OF_ISA = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def onnx_name(isa_name: str) -> str:
    """The ONNX type that is the same as one of the chip's."""
    return _OF_ISA.get(isa_name, isa_name)


def port_of(buffer: Buffer) -> Port:
    """A buffer of a program as a port of its own type."""
    return Port(buffer.name, buffer.name, onnx_name(buffer.dtype), buffer.dtype, buffer.shape)


def convertible(onnx_dtype: str, dtype: str) -> bool:
    """Floats become floats, integers become integers, and bool stays bool."""
    return _family(onnx_dtype) == _family(onnx_name(dtype))


def _family(onnx_dtype: str) -> str:
    if onnx_dtype == "bool":
        return "bool"
    return "integer" if onnx_dtype.lstrip("u").startswith("int") else "float"


# ---- in -----------------------------------------------------------------------------------------------------------


def to_buffers(ports: Sequence[Port], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The contents of the input buffers, by buffer; raises with all that is wrong with the inputs."""
    expect("inputs", inputs, (Mapping,), "arrays by name")
    named = {port.name: port for port in ports}
    problems = [_unknown(name, ports) for name in inputs if name not in named]
    missing = [_missing(port) for port in ports if port.name not in inputs]
    if problems or missing:
        raise UsageError([*problems, *missing])
    arrays = {name: _array(name, given) for name, given in inputs.items()}
    problems = [fault for name, array in arrays.items() for fault in _faults(named[name], array)]
    if problems:
        raise InvalidError(problems)
    return {named[name].buffer: to_chip(named[name], array) for name, array in arrays.items()}


def described(port: Port) -> str:
    return f"{port.name}: {port.onnx_dtype} {list(port.shape)}"


def listed(ports: Sequence[Port], what: str) -> str:
    """For a hint: the names that would have been right."""
    more = f" and {len(ports) - MAX_LISTED} more" if len(ports) > MAX_LISTED else ""
    return f"{what}: {', '.join(described(port) for port in ports[:MAX_LISTED])}{more}" if ports else f"{what}: none"


def _unknown(name: str, ports: Sequence[Port]) -> Problem:
    return Problem("TW1600", f"the model has no input {name}", hint=listed(ports, "inputs"))


def _missing(port: Port) -> Problem:
    return Problem("TW1601", f"no array is given for input {described(port)}")


def _array(name: str, given: Any) -> np.ndarray:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise InvalidError(Problem("TW1603", f"input {name} is no array: its rows differ in length")) from error


def _faults(port: Port, array: np.ndarray) -> list[Problem]:
    problems = []
    wanted = ONNX_DTYPES[port.onnx_dtype]
    raw = port.onnx_dtype == "bfloat16" and array.dtype in (np.dtype("V2"), np.dtype("<u2"))
    if array.dtype != wanted and not raw:
        text = f"input {port.name} has type {port.onnx_dtype}; the array has {array.dtype}"
        problems.append(Problem("TW1602", text))
    if array.shape != port.shape:
        text = f"input {port.name} has shape {list(port.shape)}; the array has {list(array.shape)}"
        problems.append(Problem("TW1603", text))
    return problems


def to_chip(port: Port, array: np.ndarray) -> np.ndarray:
    """An array of the port's ONNX type in the type of its buffer."""
    target = DTYPES[port.dtype].numpy
    if port.onnx_dtype == "bfloat16" and array.dtype != ONNX_DTYPES["bfloat16"]:
        array = array.view(ONNX_DTYPES["bfloat16"])  # .npy files cannot name it: its bits stand for it
    if array.dtype == target:
        return array
    if array.dtype == np.bool_:
        return array.view(target)
    if _family(port.onnx_dtype) == "integer":
        _check_range(port, array, target)
    with np.errstate(all="ignore"):
        return array.astype(target)


def _check_range(port: Port, array: np.ndarray, target: np.dtype[Any]) -> None:
    low, high = np.iinfo(target).min, np.iinfo(target).max
    wide = array if array.dtype.kind in "iu" else array.astype(np.int32)  # int4 and its like are no numpy types
    if not wide.size or (int(wide.min()) >= low and int(wide.max()) <= high):
        return
    index = tuple(int(i) for i in np.argwhere((wide < low) | (wide > high))[0])
    text = f"input {port.name} has {wide[index]} at {list(index)}; the model computes it in {port.dtype}"
    raise InvalidError(Problem("TW1604", text, hint=f"values from {low} to {high} are allowed"))


# ---- out ----------------------------------------------------------------------------------------------------------


def from_chip(port: Port, array: np.ndarray) -> np.ndarray:
    """A buffer's contents as the caller knows them."""
    target, shaped = ONNX_DTYPES[port.onnx_dtype], array.reshape(port.shape)
    if shaped.dtype == target:
        return shaped
    if port.onnx_dtype == "bool":
        return shaped.astype(np.bool_)
    with np.errstate(all="ignore"):
        return shaped.astype(target)
