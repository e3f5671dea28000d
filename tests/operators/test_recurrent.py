"""LSTM, GRU and RNN against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import InvalidError
from tests.operators.evaluate import evaluate
from tests.operators.oracle import Array, floats, onnxruntime_node

STEPS, BATCH, WIDTH, HIDDEN = 4, 3, 5, 2
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}


def inputs_of(
    name: str, directions: int = 1, states: bool = True, lengths: list[int] | None = None, peepholes: bool = False
) -> list[Array | None]:
    gates = GATES[name] * HIDDEN
    tensors: list[Array | None] = [
        floats(0, STEPS, BATCH, WIDTH),
        floats(1, directions, gates, WIDTH, low=-1, high=1),
        floats(2, directions, gates, HIDDEN, low=-1, high=1),
        floats(3, directions, 2 * gates, low=-1, high=1),
        None if lengths is None else np.array(lengths, np.int32),
    ]
    tensors += [floats(4 + n, directions, BATCH, HIDDEN) if states else None for n in range(STATES[name])]
    return [*tensors, floats(7, directions, 3 * HIDDEN)] if peepholes else tensors


def check(name: str, inputs: list[Array | None], constants: tuple[int, ...] = (), **attributes: Any) -> None:
    outputs = STATES[name] + 1
    expected = onnxruntime_node(name, inputs, outputs=outputs, hidden_size=HIDDEN, **attributes)
    results = evaluate(name, *inputs, constants=constants, hidden_size=HIDDEN, **attributes)
    assert len(results) == outputs
    for result, array in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", GATES)
def test_directions(name: str, direction: str) -> None:
    check(name, inputs_of(name, 2 if direction == "bidirectional" else 1), direction=direction)


def test_a_large_candidate_leaves_a_small_state_what_it_is() -> None:
    """Where the update gate says that the state stays."""
    hidden = 16
    w, r = np.zeros((1, 3 * hidden, 1), np.float32), np.zeros((1, 3 * hidden, hidden), np.float32)
    w[0, :hidden], w[0, 2 * hidden :] = 1e3, 1e9
    state = np.linspace(1, 5, hidden, dtype=np.float32).reshape(1, 1, hidden)
    x = np.ones((2, 1, 1), np.float32)
    outputs = evaluate("GRU", x, w, r, None, None, state, hidden_size=hidden, activations=["Sigmoid", "Relu"])
    np.testing.assert_array_equal(outputs[1], state)


@pytest.mark.parametrize("name", GATES)
def test_without_bias_and_initial_states(name: str) -> None:
    inputs = inputs_of(name, states=False)
    inputs[3] = None
    check(name, inputs)


@pytest.mark.parametrize("constants", [(), (4,)])
@pytest.mark.parametrize("name", GATES)
def test_sequences_of_different_lengths(name: str, constants: tuple[int, ...]) -> None:
    check(name, inputs_of(name, 2, lengths=[2, 4, 1]), constants, direction="bidirectional")


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", GATES)
def test_steps_behind_an_end_are_idle(name: str, direction: str) -> None:
    """In one kernel, where the first states are zeros."""
    directions = 2 if direction == "bidirectional" else 1
    check(name, inputs_of(name, directions, states=False, lengths=[2, 4, 1]), direction=direction)


def test_idle_steps_of_a_gated_unit_keep_any_state() -> None:
    check("GRU", inputs_of("GRU", lengths=[3, 1, 4]), direction="reverse", linear_before_reset=1)


@pytest.mark.parametrize("attributes", [{"clip": 0.3}, {"activations": ["HardSigmoid", "Tanh", "Tanh"]}])
def test_gates_that_cannot_be_held_are_selected(attributes: dict[str, Any]) -> None:
    check("LSTM", inputs_of("LSTM", states=False, lengths=[2, 4, 1]), **attributes)


def test_a_forget_gate_is_open_where_the_input_gate_is_closed() -> None:
    check("LSTM", inputs_of("LSTM", states=False, lengths=[2, 4, 1]), direction="reverse", input_forget=1)


def test_peepholes_and_clipping() -> None:
    check("LSTM", inputs_of("LSTM", peepholes=True), clip=0.3)


def test_the_forget_gate_may_be_what_the_input_gate_leaves() -> None:
    check("LSTM", inputs_of("LSTM"), input_forget=1)


def test_the_reset_gate_may_come_after_the_product() -> None:
    check("GRU", inputs_of("GRU"), linear_before_reset=1)


def test_activations_take_their_parameters_in_order() -> None:
    check(
        "LSTM",
        inputs_of("LSTM"),
        activations=["HardSigmoid", "ScaledTanh", "LeakyRelu"],
        activation_alpha=[0.3, 0.9, 0.2],
        activation_beta=[0.4, 0.8],
    )
    check("RNN", inputs_of("RNN", 2), direction="bidirectional", activations=["Relu", "Softsign"])


@pytest.mark.parametrize("name", GATES)
def test_batch_first_is_the_same_transposed(name: str) -> None:
    inputs = inputs_of(name, 2)
    expected = evaluate(name, *inputs, direction="bidirectional")
    swapped = [np.swapaxes(inputs[0], 0, 1), *inputs[1:5], *(np.swapaxes(state, 0, 1) for state in inputs[5:])]
    y, *last = evaluate(name, *swapped, direction="bidirectional", layout=1)
    np.testing.assert_array_equal(y, expected[0].transpose(2, 0, 1, 3))
    for state, array in zip(last, expected[1:], strict=True):
        np.testing.assert_array_equal(state, np.swapaxes(array, 0, 1))


def test_float16_stays_close() -> None:
    inputs = inputs_of("LSTM")
    expected = evaluate("LSTM", *inputs)
    halves = [None if array is None else array.astype("float16") for array in inputs]
    for result, array in zip(evaluate("LSTM", *halves), expected, strict=True):
        assert result.dtype == np.float16
        np.testing.assert_allclose(result, array, rtol=2e-2, atol=5e-3)


@pytest.mark.parametrize(
    "attributes, rule",
    [
        ({"direction": "sideways"}, "direction=sideways"),
        ({"direction": "bidirectional"}, "needs weights to match"),
        ({"activations": ["Tanh"]}, "needs 3 for each direction"),
        ({"activations": ["Tanh", "Tanh", "Cube"]}, "activations=Cube"),
        ({"layout": 2}, "layout=2"),
    ],
)
def test_what_cannot_be_is_refused(attributes: dict[str, Any], rule: str) -> None:
    with pytest.raises(InvalidError, match=rule):
        evaluate("LSTM", *inputs_of("LSTM"), **attributes)


def test_tensors_of_the_wrong_rank_are_refused() -> None:
    with pytest.raises(InvalidError, match=r"TW2108.*must have three axes"):
        evaluate("GRU", floats(0, 3, 5), floats(1, 1, 6, 5), floats(2, 1, 6, 2))


@pytest.mark.parametrize("second", ["Tanh", "Relu"])
def test_directions_may_have_activations_of_their_own(second: str) -> None:
    """Alike they are one kernel, else they are not."""
    activations = ["Sigmoid", "Tanh", "Tanh", "Sigmoid", second, "Tanh"]
    check("LSTM", inputs_of("LSTM", 2), direction="bidirectional", activations=activations)


def test_weights_that_many_cores_multiply_faster_are_unrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.operators.recurrent_network.MAX_BYTES_ONE_CORE", 16)
    check("LSTM", inputs_of("LSTM", 2), direction="bidirectional")
