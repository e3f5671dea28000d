"""Tensors of a model: checked by what they claim and what they hold, then turned into arrays."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from compiler.errors import InputError, InvalidError, LimitError, Problem
from compiler.frontend.external_data import ExternalFiles, Location
from compiler.frontend.limits import Limits

_BITS: dict[int, int] = {
    TensorProto.FLOAT: 32,
    TensorProto.UINT8: 8,
    TensorProto.INT8: 8,
    TensorProto.UINT16: 16,
    TensorProto.INT16: 16,
    TensorProto.INT32: 32,
    TensorProto.INT64: 64,
    TensorProto.BOOL: 8,
    TensorProto.FLOAT16: 16,
    TensorProto.DOUBLE: 64,
    TensorProto.UINT32: 32,
    TensorProto.UINT64: 64,
    TensorProto.COMPLEX64: 64,
    TensorProto.COMPLEX128: 128,
    TensorProto.BFLOAT16: 16,
    TensorProto.FLOAT8E4M3FN: 8,
    TensorProto.FLOAT8E4M3FNUZ: 8,
    TensorProto.FLOAT8E5M2: 8,
    TensorProto.FLOAT8E5M2FNUZ: 8,
    TensorProto.FLOAT8E8M0: 8,
    TensorProto.UINT4: 4,
    TensorProto.INT4: 4,
    TensorProto.FLOAT4E2M1: 4,
    TensorProto.UINT2: 2,
    TensorProto.INT2: 2,
}
_DATA_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_FIELD_OF: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.COMPLEX128: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
    TensorProto.STRING: "string_data",
}
# What int32_data may hold: other values would be cut silently.
_INT32_RANGE: dict[int, tuple[int, int]] = {
    TensorProto.BOOL: (0, 1),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT8: (0, 255),
    TensorProto.INT16: (-(1 << 15), (1 << 15) - 1),
    TensorProto.UINT16: (0, (1 << 16) - 1),
    TensorProto.FLOAT16: (0, (1 << 16) - 1),
    TensorProto.BFLOAT16: (0, (1 << 16) - 1),
}


def type_name(element_type: int) -> str:
    """ONNX's name of an element type, or its number where it has none."""
    names = TensorProto.DataType
    return names.Name(element_type).lower() if element_type in names.values() else f"type {element_type}"


def check_dims(dims: Sequence[int], limits: Limits) -> str:
    """What is wrong with a shape; nothing when it is within the limits."""
    if len(dims) > limits.rank:
        return f"rank {len(dims)} is more than the limit of {limits.rank}"
    if any(extent < 0 for extent in dims):
        return f"shape {list(dims)} has a negative extent"
    # A zero must not hide extents that no index can reach.
    if math.prod(extent or 1 for extent in dims) > limits.elements:
        return f"shape {list(dims)} has more elements than the limit of {limits.elements}"
    return ""


def check_tensor(tensor: TensorProto, what: str, limits: Limits) -> int:
    """The bytes that ``tensor`` takes as an array; raises unless it holds what it claims to hold."""
    if text := check_dims(tensor.dims, limits):
        kind = LimitError if "limit" in text else InvalidError
        raise kind(Problem("TW2006", f"{what}: {text}"))
    kind_of = tensor.data_type
    if kind_of not in _BITS and kind_of != TensorProto.STRING:
        raise InvalidError(Problem("TW2007", f"{what}: unknown element type {kind_of}"))
    if tensor.HasField("segment"):
        raise InvalidError(Problem("TW2007", f"{what}: segmented tensors do not exist in ONNX files"))
    count = math.prod(tensor.dims)
    size_bytes = (count * _BITS.get(kind_of, 8) + 7) // 8
    if size_bytes > limits.tensor_bytes:
        raise LimitError(Problem("TW2006", f"{what}: {size_bytes} bytes, limit {limits.tensor_bytes}"))
    if text := _wrong_data(tensor, count, size_bytes):
        raise InvalidError(Problem("TW2007", f"{what}: {text}"))
    return size_bytes


def _wrong_data(tensor: TensorProto, count: int, size_bytes: int) -> str:
    kind = tensor.data_type
    used = [name for name in _DATA_FIELDS if len(getattr(tensor, name))]
    if tensor.HasField("raw_data"):
        used.append("raw_data")
    if tensor.data_location == TensorProto.EXTERNAL:
        if used:
            return f"its data is external, but {used[0]} is there too"
        return "strings cannot be external data" if kind == TensorProto.STRING else ""
    if tensor.external_data:
        return "it names external data, but does not say that its data is external"
    if not used:
        return "" if count == 0 else f"{count} elements are announced, none is there"
    if len(used) > 1:
        return f"its data is given twice, as {used[0]} and {used[1]}"
    if used == ["raw_data"]:
        if kind == TensorProto.STRING:
            return "strings cannot be raw data"
        given = len(tensor.raw_data)
        return "" if given == size_bytes else f"{size_bytes} bytes are announced, {given} are there"
    return _wrong_field(tensor, used[0], count)


def _wrong_field(tensor: TensorProto, name: str, count: int) -> str:
    kind = tensor.data_type
    if name != _FIELD_OF.get(kind, "int32_data"):
        return f"{type_name(kind)} elements cannot be in {name}"
    per_field = 2 if kind in (TensorProto.COMPLEX64, TensorProto.COMPLEX128) else 1
    packed = 8 // _BITS[kind] if kind in _BITS and _BITS[kind] < 8 else 1
    expected = -(-count * per_field // packed)
    given = len(getattr(tensor, name))
    if given != expected:
        return f"{expected} elements are announced, {given} are there"
    if kind in _INT32_RANGE and given:
        low, high = _INT32_RANGE[kind]
        values = np.asarray(tensor.int32_data, np.int64)
        if values.min() < low or values.max() > high:
            return f"an element of int32_data does not fit {type_name(kind)}"
    if kind == TensorProto.UINT32 and given and max(tensor.uint64_data) > (1 << 32) - 1:
        return "an element of uint64_data does not fit uint32"
    return ""


def to_array(tensor: TensorProto, what: str, limits: Limits, files: ExternalFiles | None) -> np.ndarray:
    """The elements, read-only; external ones through ``files``, which is None where none may be read."""
    size_bytes = check_tensor(tensor, what, limits)
    shape, kind = tuple(tensor.dims), tensor.data_type
    raw: bytes | np.ndarray | None = None
    if tensor.data_location == TensorProto.EXTERNAL:
        raw = _external(tensor, size_bytes, what, files)
    elif tensor.HasField("raw_data"):
        raw = tensor.raw_data
    if kind == TensorProto.STRING:
        array = np.array([bytes(text) for text in tensor.string_data], dtype=object).reshape(shape)
    elif math.prod(shape) == 0:
        array = np.empty(shape, helper.tensor_dtype_to_np_dtype(kind))
    elif raw is None:
        array = numpy_helper.to_array(tensor)
    elif _BITS[kind] < 8:
        packed = TensorProto(dims=shape, data_type=kind, raw_data=bytes(raw))
        array = numpy_helper.to_array(packed)
    else:
        array = _from_bytes(raw, np.dtype(helper.tensor_dtype_to_np_dtype(kind))).reshape(shape)
    array.flags.writeable = False
    return array


def sparse_to_array(tensor: SparseTensorProto, what: str, limits: Limits) -> np.ndarray:
    """All elements: those that are given, by their places or by their numbers, and zeros."""
    shape = tuple(tensor.dims)
    values, places = (to_array(each, what, limits, None) for each in (tensor.values, tensor.indices))
    if text := check_dims(shape, limits):
        raise (LimitError if "limit" in text else InvalidError)(Problem("TW2006", f"{what}: {text}"))
    size_bytes = math.prod(shape) * values.itemsize
    if size_bytes > limits.folded_bytes:
        raise LimitError(Problem("TW2006", f"{what}: {size_bytes} bytes, limit {limits.folded_bytes}"))
    count = (values.size, len(shape)) if places.ndim == 2 else (values.size,)
    extents = np.array(shape if places.ndim == 2 else [math.prod(shape)])
    if values.ndim != 1 or places.dtype != np.int64 or places.shape != count or values.dtype == object:
        raise InvalidError(Problem("TW2007", f"{what}: its indices must be int64, a place or a number for each value"))
    if ((places < 0) | (places >= extents)).any():
        raise InvalidError(Problem("TW2007", f"{what}: an index is outside of its shape {list(shape)}"))
    array = np.zeros(shape, values.dtype)
    if places.ndim == 2:
        array[tuple(places.T)] = values
    else:
        array.reshape(-1)[places] = values
    array.flags.writeable = False
    return array


def _from_bytes(raw: bytes | np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The elements that share the bytes: weights are not copied again."""
    if dtype == np.bool_:
        return np.frombuffer(raw, np.uint8) != 0  # any other byte would be neither true nor false
    array = np.frombuffer(raw, dtype)
    # Files are little-endian.
    return array if sys.byteorder == "little" else array.byteswap()


def _external(tensor: TensorProto, size_bytes: int, what: str, files: ExternalFiles | None) -> np.ndarray:
    try:
        location = Location.parse([(entry.key, entry.value) for entry in tensor.external_data])
    except ValueError as error:
        raise InputError(Problem("TW2011", f"{what}: external data: {error}")) from error
    if files is None:
        text = f"{what}: only initializers of the main graph, of a model given by its path, may have external data"
        raise InputError(Problem("TW2010", text, hint="save the model with this tensor inside"))
    try:
        return files.read(location, size_bytes)
    except InputError as error:
        raise InputError([Problem(p.code, f"{what}: {p.message}", p.place, p.hint) for p in error.problems]) from error
