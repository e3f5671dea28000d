"""Running an imported module on this machine's CPU: TVM's code for it is no part of what is tested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax

from compiler.frontend import Imported
from compiler.frontend.types import numpy_dtype
from models import checks
from tests.host import for_host


def run(imported: Imported, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs in their compiled types, for inputs in the model's."""
    machine: Any = relax.VirtualMachine(for_host(imported.module), tvm.cpu())
    arrays = [np.asarray(feeds[port.name]).astype(numpy_dtype(port.dtype)) for port in imported.inputs]
    arrays += imported.constants.values()
    result = machine["main"](*(tvm.runtime.tensor(np.array(array, order="C")) for array in arrays))
    return [item.numpy() for item in ([result] if len(imported.outputs) == 1 else list(result))]


def expected(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime makes of it."""
    return list(checks.run(model, feeds).values())


def check(
    model: onnx.ModelProto, imported: Imported, feeds: Mapping[str, np.ndarray], rtol: float = 1e-4, atol: float = 1e-5
) -> None:
    for port, ours, theirs in zip(imported.outputs, run(imported, feeds), expected(model, feeds), strict=True):
        assert ours.shape == port.shape == theirs.shape
        assert ours.dtype == numpy_dtype(port.dtype)
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol, atol)
