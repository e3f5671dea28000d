"""From a path or bytes to a model whose every name and tensor is checked, before any of ONNX's own code sees it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from compiler.artifact.files import open_regular
from compiler.errors import InputError, InvalidError, LimitError, Place, Problem, TilewrightError
from compiler.frontend.external_data import ExternalFiles
from compiler.frontend.limits import Limits
from compiler.frontend.naming import quoted
from compiler.frontend.structure import Structure, check_structure
from compiler.frontend.tensors import check_tensor, to_array
from compiler.frontend.wire import check_wire


@dataclass(frozen=True)
class Model:
    """A checked model: its graph, in an order in which it can be computed, and the arrays of its initialisers."""

    file: str
    proto: onnx.ModelProto
    structure: Structure
    initializers: Mapping[str, np.ndarray]  # of the main graph
    source_sha256: str
    limits: Limits


def load_model(source: str | os.PathLike[str] | bytes, *, limits: Limits | None = None) -> Model:
    """Read and check a model. Nothing is written, and nothing outside the model's folder is opened.

    InputError where a file cannot be read or is refused, InvalidError where its contents break a rule of ONNX,
    UnsupportedError for versions and domains nobody here knows, LimitError where it asks for more than ``limits``.
    ``source_sha256`` covers the file and what it reads from beside it.
    """
    limits = limits or Limits()
    if isinstance(source, bytes):
        return _load(source, "the model", None, limits)
    file = os.fspath(source)
    data = _read(file, limits)
    with ExternalFiles(str(Path(file).parent), limits.file_bytes) as files:
        return _load(data, file, files, limits)


def with_data_inside(model: Model) -> onnx.ModelProto:
    """The model with all its tensors in it, as whoever is given bytes needs it."""
    if all(tensor.data_location != onnx.TensorProto.EXTERNAL for tensor in model.proto.graph.initializer):
        return model.proto
    whole = onnx.ModelProto()
    whole.CopyFrom(model.proto)
    for tensor in whole.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.CopyFrom(onnx.numpy_helper.from_array(model.initializers[tensor.name], tensor.name))
    return whole


def data_files(file: str) -> list[str]:
    """The files beside a model that its initialisers lie in. None of what is no model: who loads it says why."""
    limits, place = Limits(), Place(file)
    with suppress(TilewrightError, DecodeError):
        data = _read(file, limits)
        check_wire(data, limits, place)
        tensors = onnx.ModelProto.FromString(data).graph.initializer
        named = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
        return [str(Path(file).parent / path) for path in sorted(named)]
    return []


def _read(file: str, limits: Limits) -> bytes:
    with open_regular(file, "the model") as (opened, size_bytes):
        if size_bytes <= limits.file_bytes:
            data = opened.read(limits.file_bytes + 1)  # it may grow while it is read
            if len(data) <= limits.file_bytes:
                return data
    text = f"the model has more bytes than the limit of {limits.file_bytes}"
    raise LimitError(Problem("TW2002", text, Place(file), "raise Limits.file_bytes for a model you trust"))


def _load(data: bytes, file: str, files: ExternalFiles | None, limits: Limits) -> Model:
    place = Place(file)
    if len(data) > limits.file_bytes:
        raise LimitError(Problem("TW2002", f"the model has {len(data)} bytes, limit {limits.file_bytes}", place))
    if not data:
        raise InvalidError(Problem("TW2003", "not an ONNX model: it is empty", place))
    check_wire(data, limits, place)
    digest = hashlib.sha256(data)
    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise InvalidError(Problem("TW2003", "not an ONNX model: protobuf cannot parse it", place)) from error
    del data
    _open(proto.graph)
    structure = check_structure(proto, limits, place)
    initializers = _arrays(proto.graph, place, files, limits, digest)
    return Model(file, proto, structure, initializers, digest.hexdigest(), limits)


def _open(graph: onnx.GraphProto) -> None:
    """Some exporters write -1 where an extent is not known."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            if dim.dim_value == -1:
                dim.ClearField("dim_value")


def _arrays(
    graph: onnx.GraphProto, place: Place, files: ExternalFiles | None, limits: Limits, digest: hashlib._Hash
) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    problems: list[Problem] = []
    kind: type[TilewrightError] = InvalidError
    total = 0
    for tensor in graph.initializer:
        what = f"initializer {quoted(tensor.name)}"
        try:
            total += check_tensor(tensor, what, limits)
            if total > limits.constant_bytes:
                text = f"the initializers have more bytes together than the limit of {limits.constant_bytes}"
                raise LimitError(Problem("TW2006", text, place, "raise Limits.constant_bytes for a model you trust"))
            arrays[tensor.name] = array = to_array(tensor, what, limits, files)
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                digest.update(array.reshape(-1).view(np.uint8).data)
        except LimitError:
            raise
        except (InputError, InvalidError) as error:
            kind = InputError if isinstance(error, InputError) else kind
            problems += error.problems
    if problems:
        raise kind([p if p.place else Problem(p.code, p.message, place, p.hint) for p in problems])
    return arrays
