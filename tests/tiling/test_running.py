"""Running sums and products of rows, as done for every chip, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler import api
from compiler.kernels import Kernel, compile_kernel
from compiler.operators import TensorType, find_called
from compiler.operators.scanning import LONGEST
from compiler.pipeline import Observer
from compiler.sim.simulator import simulate
from compiler.target import load_chip
from compiler.timing import alone
from tests.frontend.models import model, node

pytestmark = pytest.mark.usefixtures("as_planned")

RNG = np.random.default_rng(11)


def kernel(chip: str, shape: tuple[int, int], dtype: str, attributes: dict[str, Any]) -> Kernel:
    func = find_called("tilewright::Running").prim_func([TensorType(shape, dtype)], attributes)
    return compile_kernel(func, "running", load_chip(chip), Observer(), "running")


def scanned(x: np.ndarray, what: str, exclusive: bool, reverse: bool) -> np.ndarray:
    turned = np.flip(x, 1) if reverse else x
    neutral = np.full((len(x), 1), 0 if what == "Sum" else 1, x.dtype)
    if exclusive:
        turned = np.hstack([neutral, turned[:, :-1]])
    found = turned.cumsum(1) if what == "Sum" else turned.cumprod(1)
    return np.flip(found, 1) if reverse else found


@pytest.mark.parametrize("chip", ["tw1", "tw2", "tiny"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", [(1, 40), (50, 37), (3, 300)])
def test_rows(chip: str, dtype: str, shape: tuple[int, int], exclusive: bool, reverse: bool) -> None:
    for what, least, most in (("Sum", -3, 4), ("Prod", 1, 2)):
        x = RNG.integers(least, most, shape)
        made = kernel(chip, shape, dtype, {"what": what, "exclusive": exclusive, "reverse": reverse})
        assert "at once" in made.tile
        run = simulate(alone(made.code, load_chip(chip)), load_chip(chip), {"p0": x.astype(dtype)}, hazards=True)
        assert not run.hazards
        np.testing.assert_array_equal(run.outputs["p1"], scanned(x, what, exclusive, reverse).astype(dtype))


@pytest.mark.parametrize("what", ["Sum", "Prod"])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_long_rows_are_pieces(what: str, exclusive: int, reverse: int) -> None:
    shape = (2, 2 * LONGEST + 5)
    nodes = [node(f"Cum{what}", "x a", "y", exclusive=exclusive, reverse=reverse)]
    source = model(nodes, {"x": list(shape)}, ["y"], {"a": np.array(1)}, opset=11 if what == "Sum" else 26)
    artifact = api.compile(source, "tw2", cache=False)
    x = RNG.integers(-3, 4, shape) if what == "Sum" else RNG.choice([-1, 1], shape)
    found = artifact.run({"x": x.astype(np.float32)}, hazards=True)["y"]
    np.testing.assert_array_equal(found, scanned(x, what, bool(exclusive), bool(reverse)))
    assert (artifact.report.cycles or 0) < 10_000
