"""Is a model of the zoo fit to test a compiler with: valid, finite, telling inputs apart, and sane in fp16?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from compiler.report.reference import exact_session
from models import zoo
from models.comparison import compare
from models.half import rounded

MIN_DEVIATION = 0.05  # of an output: below, an absolute tolerance would hide errors
MAX_CORRELATION = 0.95  # of an output with that of other inputs: above, it hardly depends on the input


@dataclass(frozen=True)
class Findings:
    nodes: int
    weight_bytes: int
    outputs: str  # name, shape and standard deviation of each
    faults: tuple[str, ...]


def run(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name, computed by onnxruntime as the graph is written."""
    session = exact_session(model)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def check(name: str, seed: int = 0) -> Findings:
    """Build the model and try it on two sets of inputs."""
    model = zoo.build(name, seed)
    onnx.checker.check_model(model, full_check=True)
    first, second = (run(model, zoo.inputs(name, each)) for each in (seed, seed + 1))
    half = run(rounded(model), zoo.inputs(name, seed))
    matches = compare(first, half, zoo.manifest(name).tolerance, "fp16")
    faults = [f"{match.output} in fp16: {match.fault}" for match in matches if match.fault]
    return Findings(
        nodes=len(model.graph.node),
        weight_bytes=sum(len(weight.raw_data) for weight in model.graph.initializer),
        outputs=", ".join(f"{key}{list(value.shape)} ±{value.std():.2f}" for key, value in first.items()),
        faults=(*_degenerate(first, second), *faults),
    )


def _degenerate(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> Iterator[str]:
    for name, values in first.items():
        if values.dtype.kind != "f":
            if not values.size:
                yield f"{name} is empty"
            continue
        if not np.isfinite(values).all():
            yield f"{name} is not finite"
            continue
        if values.std() < MIN_DEVIATION:
            yield f"{name} varies by {values.std():.3g} only"
        correlation = np.corrcoef(values.ravel(), second[name].ravel())[0, 1]
        if correlation > MAX_CORRELATION:
            yield f"{name} depends little on the input: other inputs give the same at correlation {correlation:.3f}"
