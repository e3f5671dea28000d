"""The frontend as its callers see it: a model and what they say about it in, a Relax module and its signature out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from compiler.errors import InvalidError, Place, Problem, TilewrightError
from compiler.frontend.graph import Recipe, Value
from compiler.frontend.known_inputs import known_values
from compiler.frontend.limits import Limits
from compiler.frontend.load import Model, load_model
from compiler.frontend.shapes import resolve_shapes
from compiler.frontend.tensors import type_name
from compiler.frontend.types import Types


@dataclass(frozen=True)
class Port:
    """An input or output: the caller's arrays have ``onnx_dtype``, the compiled model's ``dtype``; same ``shape``."""

    name: str
    onnx_dtype: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Imported:
    """A model as a Relax module.

    ``module["main"]`` takes the inputs (its attribute ``num_input`` says how many), then ``constants`` in their order,
    and is one dataflow block of `R.call_tir`. Constants are parameters, so that no pass hashes, prints or copies
    weights; ``constants`` holds them by the parameter's name. ``nodes`` says for each Relax variable which ONNX nodes
    it comes from, an inner one as ``outer/inner``.
    """

    module: Any
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    constants: Mapping[str, np.ndarray]
    nodes: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]
    source_sha256: str
    recipes: Mapping[str, Recipe] = field(default_factory=dict)  # of functions of the module, by their names


def import_model(
    source: Model | str | os.PathLike[str] | bytes,
    *,
    precision: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    scales_columns: bool = False,
) -> Imported:
    """Load a model and import it.

    ``precision`` ("fp32", "fp16", "bf16") is what its float32 and float64 become; ``shapes`` by input and ``dims`` by
    name make symbolic dimensions static. ``values`` are inputs that are known now: they decide shapes, are compiled
    in, and are no longer inputs of the result. ``scales_columns`` says that the chip it is for does so with sums of
    integers where they leave its matrix unit. Raises what `load_model` raises, UsageError for shapes that are missing
    or do not fit, and UnsupportedError and InvalidError with the problems of all nodes.
    """
    from compiler.frontend.group_norms import fuse_group_norms
    from compiler.frontend.importer import Importer
    from compiler.frontend.joined_products import join_products
    from compiler.frontend.module import emit_module
    from compiler.frontend.orders_of_axes import keep_orders
    from compiler.frontend.pointwise_products import as_products
    from compiler.frontend.signed_bytes import as_signed_bytes
    from compiler.frontend.spelled_norms import fuse_norms
    from compiler.frontend.turned_norms import leave_axes

    model = source if isinstance(source, Model) else load_model(source, limits=limits)
    graph = model.proto.graph
    types = Types.of(precision)
    importer = Importer(model, types)
    importer.graph.scales_columns = scales_columns
    fixed = known_values(model, values or {})
    inputs, made = importer.run(_signature(model, fixed, shapes or {}, dims or {}), fixed)
    # One that is named twice is one output: they go by their names.
    named = {info.name: (info, value) for info, value in zip(graph.output, made, strict=True)}
    outputs = [value for _, value in named.values()]
    importer.graph.calls = as_signed_bytes(importer.graph, outputs)
    importer.graph.calls = fuse_norms(importer.graph, outputs)
    importer.graph.calls = leave_axes(importer.graph, outputs)
    importer.graph.calls = fuse_group_norms(importer.graph, outputs)
    importer.graph.calls = keep_orders(importer.graph, outputs)
    importer.graph.calls = as_products(importer.graph, outputs)
    importer.graph.calls = join_products(importer.graph, outputs)
    emitted = emit_module(importer.graph, inputs, outputs)
    return Imported(
        emitted.module,
        tuple(_port(value.name, value) for value in inputs),
        tuple(_port(name, value, info) for name, (info, value) in named.items()),
        emitted.constants,
        emitted.nodes,
        (*model.structure.notes, *types.notes()),
        model.source_sha256,
        emitted.recipes,
    )


def setup_inputs(
    source: Model | str | os.PathLike[str] | bytes,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> tuple[str, ...]:
    """The inputs whose values `import_model` will ask for, beside ``values``: those that decide shapes.

    More may follow once these are known: what depends on a missing one cannot be looked at.
    """
    from compiler.frontend.importer import Importer

    model = source if isinstance(source, Model) else load_model(source, limits=limits)
    importer = Importer(model, Types())
    fixed = known_values(model, values or {})
    with suppress(TilewrightError):
        importer.run(_signature(model, fixed, shapes or {}, dims or {}), fixed)
    return tuple(sorted(importer.graph.wanted_inputs))


def _signature(
    model: Model, fixed: Mapping[str, np.ndarray], shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]
) -> dict[str, tuple[tuple[int, ...], int]]:
    """Shape and element type of each input that is one at run time."""
    place = Place(model.file)
    if not model.proto.graph.output:
        raise InvalidError(Problem("TW2029", "the model has no outputs", place))
    given = [info for info in model.proto.graph.input if info.name not in {*model.initializers, *fixed}]
    static = resolve_shapes(given, shapes, dims, model.limits)
    return {info.name: (static[info.name], _element_type(info, place)) for info in given}


def _element_type(info: onnx.ValueInfoProto, place: Place) -> int:
    element_type = info.type.tensor_type.elem_type
    if not element_type:
        raise InvalidError(Problem("TW2029", f"input {info.name!r} has no element type", place))
    return element_type


def _port(name: str, value: Value, info: onnx.ValueInfoProto | None = None) -> Port:
    declared = info.type.tensor_type.elem_type if info is not None else 0
    element_type = declared or value.element_type
    return Port(name, _NUMPY_NAMES.get(type_name(element_type), type_name(element_type)), value.dtype, value.shape)


_NUMPY_NAMES = {"float": "float32", "double": "float64"}
