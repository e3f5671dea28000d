"""The models of the regression zoo: which architecture, at which size, fed with what, expected to do what.

A name is ``<architecture>-<size>``. Another configuration is another line of `models.families`: sizes and batches are
in the inputs, the rest in the options of the architecture.
"""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import numpy as np
import onnx

from compiler.errors import Problem, UsageError
from models.families import (
    classification,
    detection,
    diffusion,
    image_to_image,
    language,
    mixers,
    quantised,
    recommendation,
    recurrent,
    segmentation,
    speech,
    vision_transformers,
)
from models.graph import Graph
from models.manifest import Model
from models.quantisation import calibrated
from models.quantisation import quantised as quantised_variant

FAMILIES = (
    recommendation,
    classification,
    segmentation,
    language,
    vision_transformers,
    recurrent,
    detection,
    speech,
    image_to_image,
    diffusion,
    mixers,
    quantised,
)
MODELS: tuple[Model, ...] = tuple(model for family in FAMILIES for model in family.MODELS)

_BY_NAME = {model.name: model for model in MODELS}


def names() -> tuple[str, ...]:
    return tuple(_BY_NAME)


def measured() -> tuple[str, ...]:
    """The models by which `make performance` states how good compiled programs are."""
    return tuple(model.name for model in MODELS if model.measured)


def manifest(name: str) -> Model:
    """The manifest entry of the model ``name``."""
    if name not in _BY_NAME:
        raise UsageError(Problem("TW0002", f"no model is named {name!r}", hint="`python -m models list` shows them"))
    return _BY_NAME[name]


def batched(name: str, times: int) -> Model:
    """The model ``name`` fed with so many times its batch: the first axis of every input."""
    model = manifest(name)
    return replace(model, inputs=tuple(replace(i, shape=(i.shape[0] * times, *i.shape[1:])) for i in model.inputs))


def build(which: str | Model, seed: int = 0) -> onnx.ModelProto:
    """The model as ONNX; the same name, inputs and seed give the same bytes."""
    model = manifest(which) if isinstance(which, str) else which
    graph = Graph(model.name, seed=seed, opset=model.opset)
    values = [graph.input(each.name, each.draw.dtype, each.declared) for each in model.inputs]
    built = graph.finish(model.architecture(graph, *values, **model.options))
    if not model.quantised:
        return built
    return quantised_variant(built, calibrated(built, inputs(model, seed)), signed=model.quantised == "int8")


def inputs(which: str | Model, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of a model by name, drawn as its manifest says."""
    found = {}
    for each in (manifest(which) if isinstance(which, str) else which).inputs:
        rng = np.random.default_rng([seed, crc32(each.name.encode())])
        found[each.name] = each.draw(rng, each.shape)
    return found
