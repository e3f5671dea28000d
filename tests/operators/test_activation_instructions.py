"""Activations take the instruction that is made for them, however they are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler import api
from models import checks
from tests.frontend.models import model, node

KNOWN = {"a": np.float32(0.1), "s": np.linspace(-1, 1, 96).astype(np.float32)}
ACTIVATIONS: dict[str, tuple[list[Any], list[str]]] = {
    "leaky": ([node("LeakyRelu", "x", "y", alpha=0.2)], ["vlrelu"]),
    "leaky, as a maximum": ([node("Mul", "x a", "m"), node("Max", "x m", "y")], ["vlrelu"]),
    "of channels": ([node("PRelu", "x s", "y")], ["vprelu"]),
    "elu": ([node("Elu", "x", "y", alpha=0.7)], ["velu"]),
    "elu of one": ([node("Elu", "x", "y")], ["velu"]),
}


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_one_instruction(name: str, precision: str) -> None:
    nodes, expected = ACTIVATIONS[name]
    used = {read for each in nodes for read in each.input}
    source = model(nodes, {"x": (40, 96)}, ["y"], {key: value for key, value in KNOWN.items() if key in used})
    compiled = api.compile(source, "tw2", precision=precision, cache=False)
    (segment,) = compiled.model.segments
    names = [instr.row.mnemonic for instr in segment.program.instrs]
    assert [each for each in names if each.startswith("v")] == expected
    x = np.random.default_rng(1).standard_normal((40, 96)).astype(np.float32)
    x[0, :4] = 0, -0.0, np.inf, -np.inf
    (wanted,) = checks.run(source, {"x": x}).values()
    near = 2e-3 if precision == "fp16" else 1e-6
    np.testing.assert_allclose(compiled.run({"x": x})["y"], wanted, rtol=near, atol=near)
