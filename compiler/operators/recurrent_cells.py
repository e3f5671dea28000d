"""What the cells of recurrent networks do to the elements of their gates, in float32, rounded once.

Gates lie side by side in rows of [batch, gates * hidden], as the products with the stacked weights leave them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.activation import softplus
from compiler.operators.broadcast import literal, result_dtype, shape_of
from compiler.operators.registry import operator


def _number(value: float) -> Any:
    return literal(value, "float32")


def _hard_sigmoid(x: Any, alpha: float, beta: float) -> Any:
    return tirx.min(tirx.max(x * _number(alpha) + _number(beta), _number(0)), _number(1))


# Each takes the element, alpha and beta.
_ACTIVATIONS: dict[str, Callable[[Any, float, float], Any]] = {
    "Relu": lambda x, alpha, beta: tirx.max(x, _number(0)),
    "Tanh": lambda x, alpha, beta: tirx.tanh(x),
    "Sigmoid": lambda x, alpha, beta: tirx.sigmoid(x),
    "Affine": lambda x, alpha, beta: x * _number(alpha) + _number(beta),
    "LeakyRelu": lambda x, alpha, beta: tirx.Select(x >= 0.0, x, x * _number(alpha)),
    "ThresholdedRelu": lambda x, alpha, beta: tirx.Select(x >= _number(alpha), x, _number(0)),
    "ScaledTanh": lambda x, alpha, beta: tirx.tanh(x * _number(beta)) * _number(alpha),
    "HardSigmoid": _hard_sigmoid,
    "Elu": lambda x, alpha, beta: tirx.Select(x >= 0.0, x, (tirx.exp(x) - _number(1)) * _number(alpha)),
    "Softsign": lambda x, alpha, beta: x / (_number(1) + tirx.abs(x)),
    "Softplus": lambda x, alpha, beta: softplus(x),
}
_BOUNDED = {"Tanh", "Sigmoid", "HardSigmoid", "Softsign"}  # by one
# Defaults of alpha and beta where the function has them.
PARAMETERS: dict[str, tuple[float | None, float | None]] = {
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01, None),
    "ThresholdedRelu": (1.0, None),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0, None),
}


def check_activation(name: str) -> None:
    if name not in _ACTIVATIONS:
        raise refusals.wrong_value(f"must be among {', '.join(_ACTIVATIONS)}", "activations", name)


class Cell:
    """Applies activations, which are a name, alpha and beta each; ``clip`` limits the gates that go into them."""

    def __init__(
        self, names: tuple[str, ...], alphas: tuple[float, ...], betas: tuple[float, ...], clip: float
    ) -> None:
        self._activations = list(zip(names, alphas, betas, strict=True))
        self._clip = clip

    def is_bounded(self, which: int) -> bool:
        """Whether what an activation makes is never above one."""
        return self._activations[which][0] in _BOUNDED

    def activate(self, which: int, gate: Any) -> Any:
        if self._clip > 0:
            gate = tirx.min(tirx.max(gate, _number(-self._clip)), _number(self._clip))
        return self.activate_state(which, gate)

    def activate_state(self, which: int, state: Any) -> Any:
        """As onnxruntime has it, a cell's state is not clipped."""
        name, alpha, beta = self._activations[which]
        return _ACTIVATIONS[name](state, alpha, beta)


def _gate(gates: te.Tensor, number: int, b: Any, j: Any, hidden: int) -> Any:
    return gates[b, number * hidden + j].astype("float32")


@operator("tilewright::LstmState", schedule="elementwise")
def lstm_state(
    gates: te.Tensor,
    state: te.Tensor,
    peepholes: te.Tensor | None = None,
    *,
    activations: tuple[str, ...],
    alphas: tuple[float, ...],
    betas: tuple[float, ...],
    clip: float = 0.0,
    input_forget: bool = False,
) -> te.Tensor:
    """The next cell state. Gates are input, output, forget, cell; peepholes [3 * hidden] input, output, forget."""
    cell = Cell(activations, alphas, betas, clip)
    hidden = shape_of(state)[1]

    def next_state(b: Any, j: Any) -> Any:
        before = state[b, j].astype("float32")
        enters, forgets = _gate(gates, 0, b, j, hidden), _gate(gates, 2, b, j, hidden)
        if peepholes is not None:
            enters = enters + peepholes[j].astype("float32") * before
            forgets = forgets + peepholes[2 * hidden + j].astype("float32") * before
        enter = cell.activate(0, enters)
        keep = _number(1) - enter if input_forget else cell.activate(0, forgets)
        value = keep * before + enter * cell.activate(1, _gate(gates, 3, b, j, hidden))
        return value.astype(result_dtype(state))

    return te.compute(shape_of(state), next_state, "lstm_state")


@operator("tilewright::LstmOutput", schedule="elementwise")
def lstm_output(
    gates: te.Tensor,
    state: te.Tensor,
    peepholes: te.Tensor | None = None,
    *,
    activations: tuple[str, ...],
    alphas: tuple[float, ...],
    betas: tuple[float, ...],
    clip: float = 0.0,
) -> te.Tensor:
    """The next hidden state, of the next cell state."""
    cell = Cell(activations, alphas, betas, clip)
    hidden = shape_of(state)[1]

    def output(b: Any, j: Any) -> Any:
        value = state[b, j].astype("float32")
        opens = _gate(gates, 1, b, j, hidden)
        if peepholes is not None:
            opens = opens + peepholes[hidden + j].astype("float32") * value
        return (cell.activate(0, opens) * cell.activate_state(2, value)).astype(result_dtype(state))

    return te.compute(shape_of(state), output, "lstm_output")


@operator("tilewright::GruReset", schedule="elementwise")
def gru_reset(
    gates: te.Tensor,
    state: te.Tensor,
    *,
    activations: tuple[str, ...],
    alphas: tuple[float, ...],
    betas: tuple[float, ...],
    clip: float = 0.0,
) -> te.Tensor:
    """The state that the reset gate lets through. Gates are update, reset."""
    cell = Cell(activations, alphas, betas, clip)
    hidden = shape_of(state)[1]

    def kept(b: Any, j: Any) -> Any:
        reset = cell.activate(0, _gate(gates, 1, b, j, hidden))
        return (reset * state[b, j].astype("float32")).astype(result_dtype(state))

    return te.compute(shape_of(state), kept, "gru_reset")


@operator("tilewright::GruOutput", schedule="elementwise")
def gru_output(
    gates: te.Tensor,
    candidate: te.Tensor,
    state: te.Tensor,
    *,
    activations: tuple[str, ...],
    alphas: tuple[float, ...],
    betas: tuple[float, ...],
    clip: float = 0.0,
) -> te.Tensor:
    """Between the state and its candidate, as the update gate says. Gates are update, reset."""
    cell = Cell(activations, alphas, betas, clip)
    hidden = shape_of(state)[1]

    def output(b: Any, j: Any) -> Any:
        update = cell.activate(0, _gate(gates, 0, b, j, hidden))
        return _between(cell.activate(1, candidate[b, j].astype("float32")), state[b, j], update, result_dtype(state))

    return te.compute(shape_of(state), output, "gru_output")


@operator("tilewright::GruLinearOutput", schedule="elementwise")
def gru_linear_output(
    from_input: te.Tensor,
    from_state: te.Tensor,
    state: te.Tensor,
    *,
    activations: tuple[str, ...],
    alphas: tuple[float, ...],
    betas: tuple[float, ...],
    clip: float = 0.0,
) -> te.Tensor:
    """The reset gate applied after the product. Both inputs hold update, reset and candidate."""
    cell = Cell(activations, alphas, betas, clip)
    hidden = shape_of(state)[1]

    def output(b: Any, j: Any) -> Any:
        inputs = [_gate(from_input, gate, b, j, hidden) for gate in range(3)]
        states = [_gate(from_state, gate, b, j, hidden) for gate in range(3)]
        update = cell.activate(0, inputs[0] + states[0])
        reset = cell.activate(0, inputs[1] + states[1])
        return _between(cell.activate(1, inputs[2] + reset * states[2]), state[b, j], update, result_dtype(state))

    return te.compute(shape_of(state), output, "gru_linear_output")


def _between(candidate: Any, state: Any, update: Any, dtype: str) -> Any:
    return ((_number(1) - update) * candidate + update * state.astype("float32")).astype(dtype)


@operator("tilewright::RnnOutput", schedule="elementwise")
def rnn_output(
    gates: te.Tensor,
    *,
    activations: tuple[str, ...],
    alphas: tuple[float, ...],
    betas: tuple[float, ...],
    clip: float = 0.0,
) -> te.Tensor:
    cell = Cell(activations, alphas, betas, clip)
    dtype = result_dtype(gates)
    return te.compute(
        shape_of(gates), lambda b, j: cell.activate(0, gates[b, j].astype("float32")).astype(dtype), "rnn_output"
    )
