"""Arrays for the inputs of a model, from files and at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from compiler.errors import Problem, UsageError

if TYPE_CHECKING:
    import numpy as np

    from compiler.runtime.loaded import LoadedModel
    from compiler.runtime.model import Port


def array_inputs(model: LoadedModel, files: Mapping[str, str], seed: int | None) -> dict[str, np.ndarray]:
    """An array for every input, from files and, where there is a seed, at random."""
    from compiler.artifact import arrays
    from compiler.runtime.ports import ONNX_DTYPES, listed
    from compiler.runtime.random_inputs import random_array

    named = {port.name: port for port in model.inputs}
    found: dict[str, np.ndarray] = {}
    for name, path in files.items():
        port = named.get(name)
        if port is None:
            raise UsageError(Problem("TW1600", f"the model has no input {name}", hint=listed(model.inputs, "inputs")))
        expected = arrays.Expected(name, port.onnx_dtype, ONNX_DTYPES[port.onnx_dtype], port.shape)
        found[name] = arrays.read_expected(path, expected)
    missing = [port for port in model.inputs if port.name not in found]
    if seed is None and missing:
        hint = f"--input {missing[0].name}=FILE.npy, or --random-inputs SEED"
        raise UsageError([_missing(port, hint) for port in missing])
    return found | {port.name: random_array(port, seed or 0) for port in missing}


def _missing(port: Port, hint: str) -> Problem:
    from compiler.runtime.ports import described as port_text

    return Problem("TW1601", f"no array is given for input {port_text(port)}", hint=hint)
