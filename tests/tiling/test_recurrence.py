"""All steps of a recurrent network in one kernel: what the chip computes against numpy, whatever is done at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compiler.kernels import compile_kernel
from compiler.operators import TensorType, find_called
from compiler.pipeline import Observer
from compiler.sim.simulator import Run, simulate
from compiler.target import load_chip
from compiler.tiling.recurrence import schedule
from compiler.tiling.template import NoFeasibleTile
from compiler.timing import alone

Array = np.ndarray[Any, Any]
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
GATES = {"LstmSteps": 4, "GruSteps": 3, "GruLinearSteps": 3, "RnnSteps": 1}
FUNCTIONS = {"LstmSteps": ("Sigmoid", "Tanh", "Tanh"), "RnnSteps": ("Tanh",)}


def drawn(steps: int, batch: int, hidden: int, directions: int, dtype: str, kind: str = "LstmSteps") -> list[Array]:
    rng = np.random.default_rng(0)
    state, columns = (batch, directions, hidden), GATES[kind] * hidden
    shapes: list[tuple[int, ...]] = [(steps, batch, directions * columns), (directions, hidden, columns), state]
    shapes += {"LstmSteps": [state], "GruLinearSteps": [(directions, hidden)]}.get(kind, [])
    return [(rng.normal(0, 1, shape) / (4 if n == 1 else 1)).astype(dtype) for n, shape in enumerate(shapes)]


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def stepped(kind: str, given: Array, weights: Array, states: list[Array], bias: Array | None) -> list[Array]:
    """The next states of one direction."""
    hidden = len(weights)
    of_gate = [slice(n * hidden, (n + 1) * hidden) for n in range(GATES[kind])]
    output, sums = states[0], given + states[0] @ weights
    if kind == "RnnSteps":
        return [np.tanh(sums)]
    if kind == "LstmSteps":
        i, o, f, c = (sums[:, gate] for gate in of_gate)
        cell = states[1] * sigmoid(f) + np.tanh(c) * sigmoid(i)
        return [np.tanh(cell) * sigmoid(o), cell]
    update, reset = (sigmoid(sums[:, gate]) for gate in of_gate[:2])
    if bias is None:
        product = (reset * output) @ weights[:, of_gate[2]]
    else:
        product = reset * (output @ weights[:, of_gate[2]] + bias)
    return [(1 - update) * np.tanh(given[:, of_gate[2]] + product) + update * output]


def expected(inputs: list[Array], direction: str, kind: str = "LstmSteps") -> list[Array]:
    products, weights, *others = (each.astype(np.float64) for each in inputs)
    bias = others.pop() if kind == "GruLinearSteps" else None
    states = [np.swapaxes(state, 0, 1).copy() for state in others]
    (steps, batch, columns), (directions, hidden, gates) = products.shape, weights.shape
    assert columns == directions * gates
    made = np.zeros((steps, directions, batch, hidden))
    for d in range(directions):
        order = range(steps) if direction != "reverse" and d == 0 else reversed(range(steps))
        for time in order:
            given = products[time][:, d * gates : (d + 1) * gates]
            following = stepped(kind, given, weights[d], [s[d] for s in states], None if bias is None else bias[d])
            for state, new in zip(states, following, strict=True):
                state[d] = new
            made[time, d] = states[0][d]
    return [made, *states]


def function_of(inputs: list[Array], direction: str, kind: str = "LstmSteps") -> Any:
    types = [TensorType(each.shape, each.dtype.name) for each in inputs]
    names = FUNCTIONS.get(kind, ("Sigmoid", "Tanh"))
    nothing = (0.0,) * len(names)
    attributes = {"direction": direction, "activations": names, "alphas": nothing, "betas": nothing}
    return find_called(f"tilewright::{kind}").prim_func(types, attributes)


def run_on(
    chip: str, inputs: list[Array], direction: str, cores: int | None = None, kind: str = "LstmSteps"
) -> tuple[Run, str]:
    target = load_chip(chip)
    target = target if cores is None else replace(target, clusters=1, cores_per_cluster=cores)
    kernel = compile_kernel(function_of(inputs, direction, kind), "recurrence", target, Observer())
    return simulate(
        alone(kernel.code, target), target, {f"p{n}": each for n, each in enumerate(inputs)}, hazards=True
    ), kernel.tile


@pytest.mark.parametrize(
    ("chip", "steps", "batch", "hidden", "direction", "dtype"),
    [
        ("tw1", 3, 4, 64, "forward", "float16"),
        ("tw2", 3, 4, 32, "bidirectional", "float16"),
        ("tw2", 2, 37, 33, "reverse", "float16"),  # nothing is a multiple of anything
        ("tw1", 2, 3, 100, "bidirectional", "float32"),
        ("tiny", 2, 6, 48, "bidirectional", "float16"),  # the weights are read in every step
        ("tiny", 1, 1, 5, "forward", "float32"),
        ("tiny", 2, 5, 33, "forward", "float32"),  # depth is left over
        ("tiny", 2, 1, 100, "bidirectional", "float32"),
        ("tiny", 2, 2, 120, "forward", "float16"),
    ],
)
def test_steps(chip: str, steps: int, batch: int, hidden: int, direction: str, dtype: str) -> None:
    inputs = drawn(steps, batch, hidden, DIRECTIONS[direction], dtype)
    run, tile = run_on(chip, inputs, direction)
    assert not run.hazards
    assert "cores, product" in tile
    tolerance = 1e-5 if dtype == "float32" else 4e-3
    for name, array in zip(("p4", "p5", "p6"), expected(inputs, direction), strict=True):
        np.testing.assert_allclose(run.outputs[name].astype(np.float64), array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["GruSteps", "GruLinearSteps", "RnnSteps"])
@pytest.mark.parametrize(
    ("chip", "steps", "batch", "hidden", "direction", "dtype"),
    [
        ("tw1", 3, 4, 64, "forward", "float16"),
        ("tw1", 3, 100, 48, "bidirectional", "float16"),  # several rows on a core
        ("tw2", 2, 37, 33, "reverse", "float16"),
        ("tw2", 2, 3, 100, "bidirectional", "float32"),
        ("tiny", 2, 6, 80, "forward", "float16"),  # products in parts
        ("tiny", 1, 1, 5, "forward", "float32"),
        ("tiny", 2, 3, 33, "forward", "float16"),  # columns that are left over take turns with the others
        ("tw2", 2, 3, 100, "forward", "float16"),  # or have their own place
        ("tiny", 2, 5, 33, "forward", "float32"),  # depth is left over, too
        ("tiny", 2, 1, 100, "bidirectional", "float32"),
    ],
)
def test_other_kinds(chip: str, steps: int, batch: int, hidden: int, direction: str, dtype: str, kind: str) -> None:
    inputs = drawn(steps, batch, hidden, DIRECTIONS[direction], dtype, kind)
    run, tile = run_on(chip, inputs, direction, kind=kind)
    assert not run.hazards
    assert tile.count("product") == (2 if kind == "GruSteps" else 1)
    assert not [instr for instr in run.program.instrs if instr.row.mnemonic.startswith("sst")], "one by one"
    tolerance = 1e-5 if dtype == "float32" else 4e-3
    names = (f"p{len(inputs) + n}" for n in range(2))
    for name, array in zip(names, expected(inputs, direction, kind), strict=True):
        np.testing.assert_allclose(run.outputs[name].astype(np.float64), array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("chip", ["tiny", "tw1"])
def test_directions_follow_each_other_where_there_is_one_core(chip: str) -> None:
    inputs = drawn(2, 4, 48, 2, "float16")
    run, tile = run_on(chip, inputs, "bidirectional", cores=1)
    assert not run.hazards
    assert "on 1 cores" in tile
    for name, array in zip(("p4", "p5", "p6"), expected(inputs, "bidirectional"), strict=True):
        np.testing.assert_allclose(run.outputs[name].astype(np.float64), array, rtol=4e-3, atol=4e-3)


def test_a_step_takes_as_long_however_many_there_are() -> None:
    cycles = [run_on("tw2", drawn(steps, 4, 64, 1, "float16"), "forward")[0].cycles for steps in (4, 8, 12)]
    assert cycles[2] - cycles[1] == pytest.approx(cycles[1] - cycles[0], rel=0.05)
    assert cycles[1] - cycles[0] < 4 * 700


def test_later_attempts_have_fewer_rows_and_hold_no_weights() -> None:
    function, chip = function_of(drawn(2, 12, 64, 1, "float16"), "forward"), load_chip("tiny")
    found = []
    with pytest.raises(NoFeasibleTile):
        for attempt in range(20):
            found.append(schedule(function, chip, attempt).description)
    assert [int(each.split()[0]) for each in found] == sorted((int(each.split()[0]) for each in found), reverse=True)
    assert not any("held" in each for each in found)


def test_no_step_waits_for_what_leaves_the_core() -> None:
    few, more = (run_on("tw2", drawn(steps, 1, 64, 1, "float16"), "forward")[0].cycles for steps in (8, 16))
    assert (more - few) / 8 <= 366  # the state by L1 to the cube, the product, and eight vector instructions
