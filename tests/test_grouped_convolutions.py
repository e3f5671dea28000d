"""Convolutions in groups whose last block has channels that are none of the result, and what follows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import compiler
from ci.tile_samples import code_of
from compiler.driver import plan
from compiler.kernels import spaces
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.sim.simulator import prepare
from compiler.target import load_chip
from compiler.timing import alone
from models.checks import run
from models.graph import Graph
from tests.frontend.models import model, node

pytestmark = pytest.mark.usefixtures("as_planned")
CHIPS = ("tw1", "tw2", "tiny")
CASES: list[dict[str, Any]] = [
    {"x": (1, 24, 8, 8), "outputs": 24, "group": 3},  # 16 channels and 8
    {"x": (2, 23, 7, 9), "outputs": 23, "group": 23},  # 12 and 11
    {"x": (1, 17, 8, 8), "outputs": 34, "group": 17},
    {"x": (3, 24, 7, 7), "outputs": 21, "group": 3},
    {"x": (1, 40, 9, 9), "outputs": 120, "group": 5},  # three tiles of a group's channels
    {"x": (1, 21, 1, 1), "outputs": 21, "group": 3, "kernel": 1},
    {"x": (2, 40, 63), "outputs": 40, "group": 5, "kernel": 11},
    {"x": (1, 24, 5, 5, 5), "outputs": 24, "group": 3},
]
FOLLOWERS: dict[str, list[Any]] = {
    "nothing": [],
    "Relu": [node("Relu", "y0", "y1")],
    "HardSwish": [node("HardSwish", "y0", "y1")],
    "Add and Relu": [node("Add", "y0 side", "y1"), node("Relu", "y1", "y2")],
    "Relu and Add": [node("Relu", "y0", "y1"), node("Add", "y1 side", "y2")],
    "Relu and Flatten": [node("Relu", "y0", "y1"), node("Flatten", "y1", "y2")],
    "Flatten": [node("Flatten", "y0", "y1")],
}
PRECISIONS = {"fp16": 4e-3, "bf16": 4e-2}


def check(chip: str, precision: str, case: dict[str, Any], followers: list[Any], has_bias: bool) -> None:
    """Nothing of the model runs on the host, without a race, and the result is that of onnxruntime."""
    rng = np.random.default_rng(case["outputs"])
    (batch, channels, *places), outputs, size = case["x"], case["outputs"], case.get("kernel", 3)
    kernel = (size,) * len(places)
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    inputs, constants = {"x": normal(*case["x"])}, {"w": normal(outputs, channels // case["group"], *kernel)}
    if has_bias:
        constants["b"] = normal(outputs)
    if any("side" in one.input for one in followers):
        inputs["side"] = normal(batch, outputs, *places)
    pads = [size // 2] * 2 * len(places)
    nodes = [node("Conv", " ".join(["x", *constants]), "y0", group=case["group"], pads=pads), *followers]
    last = nodes[-1].output[0]
    source = model(nodes, {name: array.shape for name, array in inputs.items()}, [last], constants)
    expected = run(source, inputs)[last]
    artifact = compiler.compile(source, chip, precision=precision, host_kernels=False)
    result = artifact.run(inputs, hazards=True)[last]
    assert result.shape == expected.shape
    tolerance = PRECISIONS[precision]
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_groups(chip: str, number: int) -> None:
    """Those with a bias on some chips have none on others."""
    check(chip, "fp16", CASES[number], FOLLOWERS["Relu"], (number + CHIPS.index(chip)) % 2 == 0)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("follower", [name for name in FOLLOWERS if name != "Relu"])
def test_followers(chip: str, follower: str) -> None:
    number = 4 * ((list(FOLLOWERS).index(follower) + CHIPS.index(chip)) % 2)
    check(chip, "fp16", CASES[number], FOLLOWERS[follower], True)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("number", [0, 1])
def test_bf16(chip: str, number: int) -> None:
    check(chip, "bf16", CASES[number], FOLLOWERS["Relu"], True)


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_a_batch_whose_positions_would_share_places(chip: str) -> None:
    """Flattened to rows as they are, channels that are none of the result would lie where the next row begins."""
    check(chip, "fp16", {"x": (2, 24, 7, 9), "outputs": 24, "group": 3}, FOLLOWERS["Flatten"], True)


def test_what_is_filled_once_is_waited_for_once() -> None:
    """Rings have all flags between the two queues: the scalar unit waits, before the loops and not in each turn, or it
    would dispatch nothing ahead."""
    graph = Graph("depthwise", seed=0, opset=17)
    weights, bias = graph.weight("w", np.ones((384, 1, 3, 3), np.float32)), graph.weight("b", np.ones(384, np.float32))
    x = graph.input("x", np.dtype(np.float32), (16, 384, 14, 14))
    made = graph.op("Conv", x, weights, bias, group=384, kernel_shape=[3, 3], pads=[1] * 4)
    source = graph.finish({"y": graph.op("Sigmoid", made)}).SerializeToString()  # more than the cube has to do
    kernels = plan(source, load_chip("tw1"), Options(precision="fp16", cache=False), Observer())
    (job,) = (use.job for use in kernels.uses() if use.job.schedule == "convolution")
    space = next(space for _, space in spaces(job.func, job.schedule, kernels.chip))
    tile = next(t for t in space.tiles() if t.images == 2 and t.step == (1, 1, 1) and not t.held)
    code = code_of(space, tile, kernels.chip, "depthwise")
    assert code is not None
    run = prepare(alone(code, kernels.chip), kernels.chip.all_alike())
    classes = (run.program.instrs[pc] for pc in run.classes.pc.tolist())
    waits = [instr.row.mnemonic == "wait_flag" and instr.mods[-1] == "s" for instr in classes]
    assert 1 <= np.array(waits)[run.stream.klass].sum() <= run.stream.cores
