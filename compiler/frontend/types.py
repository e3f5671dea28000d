"""From ONNX's element types to those of the chip, and what a changed precision changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from compiler.errors import Problem, UnsupportedError, UsageError
from compiler.frontend.tensors import type_name

PRECISIONS: dict[str, str] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

_COMPILED: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.INT8: "int8",
    TensorProto.UINT8: "uint8",
    TensorProto.INT16: "int16",
    TensorProto.UINT16: "int32",
    TensorProto.INT32: "int32",
    TensorProto.UINT32: "int32",
    TensorProto.INT64: "int32",
    TensorProto.UINT64: "int32",
    TensorProto.BOOL: "bool",
    TensorProto.INT4: "int8",
    TensorProto.UINT4: "uint8",
    TensorProto.INT2: "int8",
    TensorProto.UINT2: "uint8",
}
_ONNX: dict[str, int] = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
}
COMPILED = tuple(_ONNX)  # the element types that tensors of a compiled model have
_NUMPY: dict[str, np.dtype[Any]] = {name: np.dtype(getattr(ml_dtypes, name, None) or name) for name in _ONNX}
_WIDE = (TensorProto.FLOAT, TensorProto.DOUBLE)
_PACKED = (TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2)
_WRITTEN: dict[int, str] = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}


def onnx_type_of(array: np.ndarray) -> int:
    return TensorProto.STRING if array.dtype == object else int(helper.np_dtype_to_tensor_dtype(array.dtype))


def numpy_dtype(compiled: str) -> np.dtype[Any]:
    return _NUMPY[compiled]


def is_compiled(dtype: str) -> bool:
    """Whether tensors of a compiled model can have an element type, by its name in TIR."""
    return dtype in _ONNX


def onnx_type(compiled: str) -> int:
    """The ONNX element type that is the same as a compiled one."""
    return _ONNX[compiled]


def largest_float(precision: str | None) -> float | None:
    """The largest number that the floats of a precision are; None where a model keeps its own."""
    finfo: Any = ml_dtypes.finfo
    return None if precision is None else float(finfo(_NUMPY[PRECISIONS[precision]]).max)


def kind_of(element_type: int) -> str:
    """What an element type counts in: "float", "integer" or "bool"; "" where there is nothing like it on a chip."""
    compiled = _COMPILED.get(element_type, "")
    return "float" if "float" in compiled else "integer" if "int" in compiled else compiled


@dataclass
class Types:
    """The mapping of one import: ``wide`` is what its float32 and float64 become."""

    wide: str | None = None
    # What became something else, by (from, to): how many values, and the name of one.
    changed: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    saturated: list[str] = field(default_factory=list)
    saturated_floats: list[str] = field(default_factory=list)
    wrapped: list[str] = field(default_factory=list)

    @staticmethod
    def of(precision: str | None) -> Types:
        if precision is None:
            return Types()
        if precision not in PRECISIONS:
            text = f"precision {precision!r} does not exist"
            raise UsageError(Problem("TW2046", text, hint=f"one of {', '.join(PRECISIONS)}"))
        return Types(PRECISIONS[precision])

    def compiled(self, element_type: int, name: str = "") -> str:
        """The chip's type for an ONNX one; UnsupportedError where there is none. ``name`` is what has the type."""
        if element_type not in _COMPILED:
            shown = type_name(element_type)
            raise UnsupportedError(Problem("TW2031", f"{shown} tensors are not supported", hint=HINT))
        compiled = _COMPILED[element_type]
        if element_type in _WIDE and self.wide is not None:
            compiled = self.wide
        if name:
            shown = _WRITTEN.get(element_type, type_name(element_type))
            if shown != compiled:
                count, first = self.changed.get((shown, compiled), (0, name))
                self.changed[shown, compiled] = (count + 1, first)
        return compiled

    def computed(self, element_type: int, name: str) -> str:
        """As `compiled`, for what is computed at run time: its values must be those that ONNX's type has."""
        if element_type in _PACKED:
            text = f"{type_name(element_type)} results are not supported: nothing rounds to so few bits"
            raise UnsupportedError(Problem("TW2031", text, hint=HINT))
        return self.compiled(element_type, name)

    def convert(self, array: np.ndarray, compiled: str, name: str) -> np.ndarray:
        """A constant in its compiled type: floats are rounded to nearest, and what is finite stays it; integers
        saturate. (Masks are often the largest number that there is, and zero times infinity is none.)
        """
        target = _NUMPY[compiled]
        if array.dtype == target:
            return array
        if target.kind in "iu" and array.dtype.kind in "iu":
            before, after = np.iinfo(array.dtype), np.iinfo(target)
            clipped = np.clip(array, max(before.min, after.min), min(before.max, after.max))
            if not np.array_equal(clipped, array):
                self.saturated.append(name)
            return clipped.astype(target)
        with np.errstate(all="ignore"):
            found = array.astype(target)
            if array.dtype.kind not in "fV" or (finite := np.isfinite(found)).all():
                return found
            limits: Any = ml_dtypes.finfo
            largest = limits(target).max
            beyond = ~finite & np.isfinite(array)
            if beyond.any():
                self.saturated_floats.append(name)
            return np.where(beyond, np.where(array > 0, largest, -largest).astype(target), found)

    def convert_guard(self, array: np.ndarray, compiled: str, name: str) -> np.ndarray:
        """As `convert`, for what may keep a divisor from being zero: what is not zero stays it, as the number nearest
        to zero. (Epsilons of 1e-12 would be zero in float16, and zero by zero is no number.)
        """
        found = self.convert(array, compiled, name)
        vanished = (found == 0) & (array != 0)
        if found.dtype.kind in "iub" or not vanished.any():
            return found
        limits: Any = ml_dtypes.finfo
        least = limits(found.dtype).smallest_subnormal
        return np.where(vanished, np.where(array > 0, least, -least).astype(found.dtype), found)

    def notes(self) -> list[str]:
        """What was changed, for the person whose model it is."""
        lines = []
        for (before, after), (count, name) in sorted(self.changed.items()):
            lines.append(f"{before} became {after} in {count} value{'s' * (count > 1)} (first: {name})")
        if self.saturated:
            lines.append(f"integers outside int32 became its nearest in {_first(self.saturated)}")
        if self.wrapped:
            lines.append(f"integers outside int32 count modulo 2 ** 32 in {_first(self.wrapped)}")
        if self.saturated_floats:
            lines.append(f"numbers beyond the largest of their new type became that in {_first(self.saturated_floats)}")
        return lines


def _first(names: list[str]) -> str:
    found = sorted(set(names))
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


HINT = "the chip computes in float32, float16, bfloat16, int8, uint8, int16, int32 and bool"
