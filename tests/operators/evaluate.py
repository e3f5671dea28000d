"""Runs a declared operator on arrays: its PrimFunc compiled for the CPU, a composition call by call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from compiler.operators import Declared, TensorType, find_called
from tests.host import for_host

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Known:
    """A Value with its elements; only one that was declared a constant shows them to compositions."""

    array: Array
    is_constant: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> str:
        return self.array.dtype.name

    @property
    def constant(self) -> Array | None:
        return self.array if self.is_constant else None


class Eager:
    """A Graph that computes each call at once."""

    def call(self, name: str, *values: Any, **attributes: Any) -> Any:
        results = run(
            find_called(name), [v if isinstance(v, Known | None) else self.constant(v) for v in values], attributes
        )
        return results[0] if len(results) == 1 else tuple(results)

    def constant(self, array: Array) -> Known:
        return Known(demoted(np.asarray(array)), is_constant=True)

    def wide(self, value: Known) -> Known:
        narrow = value.is_constant and value.dtype in ("float16", "bfloat16")
        return Known(value.array.astype(np.float32), is_constant=True) if narrow else value


def run(
    declared: Declared,
    values: Sequence[Known | None],
    attributes: dict[str, Any],
    opset: int | None = None,
    outputs: int | None = None,
) -> list[Known]:
    """The outputs for ``values``; constants go in as the importer gives them: arrays where the operator takes such."""
    if declared.is_composition:
        return list(declared.expand(Eager(), values, attributes, opset=opset))[:outputs]
    given: list[Any] = []
    arrays: list[Array] = []
    for position, value in enumerate(values):
        parameter = declared.signature.input_at(position)
        if value is None or parameter is None:
            given.append(value)
        elif value.is_constant and (
            parameter.kind == "constant" or (parameter.kind == "either" and parameter.takes(value.array))
        ):
            given.append(value.array)
        else:
            given.append(TensorType(value.shape, value.dtype))
            arrays.append(value.array)
    function = declared.prim_func(given, attributes, opset=opset, outputs=outputs)
    results = [
        tvm.runtime.empty([int(extent) for extent in parameter.shape], parameter.dtype)
        for parameter in function.params[len(arrays) :]
    ]
    _compiled(function)(*[tvm.runtime.tensor(np.require(a, requirements="C")) for a in arrays], *results)
    return [Known(result.numpy()) for result in results]


_COMPILED: dict[int, tuple[Any, Any]] = {}


def _compiled(function: Any) -> Any:
    """Compositions call the same function many times over."""
    key = tvm_ffi.structural_hash(function)
    if key not in _COMPILED or not tvm_ffi.structural_equal(_COMPILED[key][0], function):
        _COMPILED[key] = function, for_host(function)["main"]
    return _COMPILED[key][1]


def demoted(array: Array) -> Array:
    """In the types of the machine, as the importer gives them."""
    narrow = {"int64": np.int32, "uint64": np.uint32, "float64": np.float32}
    return array.astype(narrow.get(array.dtype.name, array.dtype))


def evaluate(
    name: str, *inputs: Any, constants: Sequence[int] = (), outputs: int | None = None, **attributes: Any
) -> Any:
    """One operator on arrays; the inputs at the positions ``constants`` are known at compile time."""
    opset = attributes.pop("opset", None)
    values = [
        None if array is None else Known(np.asarray(array), position in constants)
        for position, array in enumerate(inputs)
    ]
    results = [value.array for value in run(find_called(name), values, attributes, opset, outputs)]
    return results[0] if len(results) == 1 else results
