"""What recurrent networks have in common: their weights and states, step after step of one direction or of two.

The products with the inputs of all steps are one product, before the first step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.isa.layout import FRACTAL
from compiler.operators import refusals
from compiler.operators.broadcast import FLOATS, dtype_of, result_dtype, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.recurrent_cells import PARAMETERS, check_activation
from compiler.operators.recurrent_ends import Ends, IdleStep

_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
States = tuple[Value, ...]
# Of the weights of the states, which one core moves to its cube in every step. With more, several cores are faster,
# although they wait for each other twice in a step.
MAX_BYTES_ONE_CORE = 1 << 18
FULL = 0.75  # of a fractal's rows


@dataclass(frozen=True)
class Network:
    """The inputs and attributes that the three have in common; ``gates`` per cell, ``functions`` per direction."""

    graph: Graph
    x: Value
    w: Value
    r: Value
    b: Value | None
    lengths: Value | None
    direction: str
    layout: int
    clip: float
    gates: int
    activations: tuple[tuple[str, float, float], ...]
    functions: int

    @staticmethod
    def of(
        graph: Graph,
        tensors: tuple[Value, Value, Value, Value | None, Value | None],
        gates: int,
        defaults: tuple[str, ...],
        *,
        hidden_size: int | None,
        direction: str,
        layout: int,
        clip: float,
        activations: tuple[str, ...] | None,
        alphas: tuple[float, ...] | None,
        betas: tuple[float, ...] | None,
    ) -> Network:
        """Checked; ``x`` with time first."""
        x, w, r, b, lengths = tensors
        if direction not in _DIRECTIONS:
            raise refusals.wrong_value(f"must be among {', '.join(_DIRECTIONS)}", "direction", direction)
        directions = _DIRECTIONS[direction]
        if any(len(shape_of(tensor)) != 3 for tensor in (x, w, r)):
            raise refusals.wrong_shape("x, w and r must have three axes", x=x, w=w, r=r)
        hidden = shape_of(r)[-1]
        shapes_fit = (
            shape_of(w) == (directions, gates * hidden, shape_of(x)[2])
            and shape_of(r) == (directions, gates * hidden, hidden)
            and (b is None or shape_of(b) == (directions, 2 * gates * hidden))
            and hidden_size in (None, 0, hidden)
        )
        if not shapes_fit:
            given = {"x": x, "w": w, "r": r} | ({} if b is None else {"b": b})
            raise refusals.wrong_shape(f"a {direction} network of {gates} gates needs weights to match", **given)
        if layout not in (0, 1):
            raise refusals.wrong_value("must be 0 or 1", "layout", layout)
        if layout == 1:
            x = graph.call("Transpose", x, perm=(1, 0, 2))
        if lengths is not None and lengths.constant is not None and lengths.constant.min() >= shape_of(x)[0]:
            lengths = None
        names = activations or defaults * directions
        if len(names) != len(defaults) * directions:
            raise refusals.wrong_value(f"needs {len(defaults)} for each direction", "activations", names)
        resolved = _resolved(names, alphas or (), betas or ())
        return Network(graph, x, w, r, b, lengths, direction, layout, clip, gates, resolved, len(defaults))

    @property
    def hidden(self) -> int:
        return shape_of(self.r)[2]

    @property
    def directions(self) -> int:
        return _DIRECTIONS[self.direction]

    def cell_attributes(self, direction: int) -> dict[str, Any]:
        """What the operators of the cells need to know of their activations."""
        own = self.activations[direction * self.functions : (direction + 1) * self.functions]
        names, alphas, betas = zip(*own, strict=True)
        return {"activations": names, "alphas": alphas, "betas": betas, "clip": self.clip}

    def part(self, value: Value, direction: int, start: int = 0, end: int | None = None) -> Value:
        """What ``value`` [directions, ...] holds for one direction, from ``start`` to ``end`` of its next axis."""
        shape = shape_of(value)
        end = shape[1] if end is None else end
        if (end - start, shape[0]) != (shape[1], 1):
            starts, ends = np.array([direction, start]), np.array([direction + 1, end])
            value = self.graph.call("Slice", value, starts, ends, np.array([0, 1]))
        result: Value = self.graph.call("Reshape", value, np.array([end - start, *shape[2:]]))
        return result

    def initial(self, value: Value | None, direction: int) -> Value:
        """[batch, hidden]; zeros where it is left out."""
        shape = (shape_of(self.x)[1], self.hidden)
        if value is None:
            return self.graph.constant(np.zeros(shape, result_dtype(self.x)))
        if self.layout == 1:
            value = self.graph.call("Transpose", value, perm=(1, 0, 2))
        if shape_of(value) != (self.directions, *shape):
            raise refusals.wrong_shape("an initial state must be [directions, batch, hidden]", state=value, x=self.x)
        return self.part(value, direction)

    def is_one_kernel(self, idle: IdleStep, initial_h: Value | None) -> bool:
        """Whether one core takes less time for the product of a step than all of them for kernels of its parts."""
        own = [self.activations[at : at + self.functions] for at in range(0, len(self.activations), self.functions)]
        steps, batch, _ = shape_of(self.x)
        size = math.prod(shape_of(self.r)[1:]) * (2 if dtype_of(self.r) != "float32" else 4)
        alike = own[1:] == own[:-1]
        if self.lengths is not None and not idle.is_possible(self.activations[0][0], self.clip, initial_h):
            return False
        return alike and min(steps, batch) > 0 and size <= MAX_BYTES_ONE_CORE and dtype_of(self.r) in FLOATS

    def in_one_kernel(
        self,
        kernel: str,
        idle: IdleStep,
        initial_h: Value | None,
        *others: Value,
        bias_apart: bool = False,
        **attributes: Any,
    ) -> tuple[Value, ...]:
        """All outputs and the last states, in the layout that was asked for, of a kernel that takes ``others`` behind
        the first output; ``bias_apart``: it adds the bias of the last gate's product with the state itself.
        """
        products = self._stacked_products(bias_apart=bias_apart)
        ends = None if self.lengths is None else Ends(self.graph, self.lengths, shape_of(self.x)[0], idle)
        y, *last = self.graph.call(
            f"tilewright::{kernel}",
            products if ends is None else ends.products(products, self.hidden),
            self.graph.call("Transpose", self.r, perm=(0, 2, 1)),
            self.all_initial(initial_h),
            *others,
            direction=self.direction,
            **self.cell_attributes(0),
            **attributes,
        )
        if ends is not None:
            reverse = tuple(self._is_reverse(direction) for direction in range(self.directions))
            y, last[0] = ends.outputs(y, last[0], reverse)
        return self.in_layout(y, *last)

    def _is_reverse(self, direction: int) -> bool:
        return self.direction == "reverse" or direction == 1

    def bias_behind_product(self) -> Value:
        """[directions, hidden]: that of the last gate's product with the state."""
        if self.b is None:
            return self.graph.constant(np.zeros((self.directions, self.hidden), result_dtype(self.x)))
        end = 2 * self.gates * self.hidden
        result: Value = self.graph.call("Slice", self.b, np.array([end - self.hidden]), np.array([end]), np.array([1]))
        return result

    def _stacked_products(self, *, bias_apart: bool) -> Value:
        """For all steps x @ w.T + bias, of all directions side by side: [steps, batch, directions * gates * hidden].

        Where they fill most of the matrix unit, rows of the batch stay an axis of their own, so that some of them can
        be had without the others; else all steps are rows of one matrix.
        """
        steps, batch, width = shape_of(self.x)
        columns = self.directions * self.gates * self.hidden
        together = batch < FULL * -(-batch // FRACTAL) * FRACTAL
        rows = self.graph.call("Reshape", self.x, np.array([steps * batch, width])) if together else self.x
        weights = self.graph.call("Reshape", self.w, np.array([columns, width]))
        products: Value = self.graph.call("MatMul", rows, self.graph.call("Transpose", weights, perm=(1, 0)))
        if self.b is not None:
            bias = self.graph.call("Reshape", self._stacked_bias(apart=bias_apart), np.array([columns]))
            products = self.graph.call("Add", products, bias)
        return self.graph.call("Reshape", products, np.array([steps, batch, columns])) if together else products

    def _stacked_bias(self, *, apart: bool) -> Value:
        """[directions, gates * hidden]: that of the product with the inputs, and of that with the state, but where it
        is ``apart`` for the last gate.
        """
        graph, extent = self.graph, self.gates * self.hidden
        halves = graph.call("Reshape", self.b, np.array([self.directions, 2, extent]))
        if not apart:
            result: Value = graph.call("ReduceSum", halves, np.array([1]), keepdims=0)
            return result
        middle, axis = np.array([extent - self.hidden]), np.array([2])
        both = graph.call("Slice", halves, np.array([0]), middle, axis)
        last = graph.call("Slice", halves, np.array([0, extent - self.hidden]), np.array([1, extent]), np.array([1, 2]))
        last = graph.call("Reshape", last, np.array([self.directions, self.hidden]))
        result = graph.call("Concat", graph.call("ReduceSum", both, np.array([1]), keepdims=0), last, axis=1)
        return result

    def all_initial(self, value: Value | None) -> Value:
        """[batch, directions, hidden]"""
        parts = [self.initial(value, direction) for direction in range(self.directions)]
        apart = [self.graph.call("Reshape", part, np.array([shape_of(part)[0], 1, self.hidden])) for part in parts]
        result: Value = apart[0] if len(apart) == 1 else self.graph.call("Concat", *apart, axis=1)
        return result

    def in_layout(self, y: Value, *last: Value) -> tuple[Value, ...]:
        """All outputs [time, directions, batch, hidden] and the last states, as they were asked for."""
        if self.layout == 1:
            y = self.graph.call("Transpose", y, perm=(2, 0, 1, 3))
            last = tuple(self.graph.call("Transpose", state, perm=(1, 0, 2)) for state in last)
        return (y, *last)

    def input_products(self, direction: int, bias: Value | None) -> list[Value]:
        """For each step x @ w.T + bias, [batch, gates * hidden]."""
        steps, batch, width = shape_of(self.x)
        rows = self.graph.call("Reshape", self.x, np.array([steps * batch, width]))
        products = self.graph.call("Gemm", rows, self.part(self.w, direction), bias, transB=1)
        if steps == 1:
            return [products]
        return list(self.graph.call("Split", products, np.array([batch] * steps), axis=0))

    def biases(self, direction: int) -> tuple[Value, Value] | None:
        """Those of the products with the input, and those of the products with the state."""
        if self.b is None:
            return None
        middle = self.gates * self.hidden
        return self.part(self.b, direction, 0, middle), self.part(self.b, direction, middle, 2 * middle)

    def summed_bias(self, direction: int) -> Value | None:
        pair = self.biases(direction)
        if pair is None:
            return None
        result: Value = self.graph.call("Add", *pair)
        return result

    def run(
        self, direction: int, products: list[Value], states: States, step: Callable[[Value, States], States]
    ) -> tuple[list[Value], States]:
        """The outputs in the order of time, and the last states; the first state is the output."""
        outputs: dict[int, Value] = {}
        for time in reversed(range(len(products))) if self._is_reverse(direction) else range(len(products)):
            following = step(products[time], states)
            active = self._active(time)
            if active is None:
                outputs[time], states = following[0], following
                continue
            zero = self.graph.constant(np.zeros((), result_dtype(self.x)))
            outputs[time] = self.graph.call("Where", active, following[0], zero)
            pairs = zip(following, states, strict=True)
            states = tuple(self.graph.call("Where", active, new, old) for new, old in pairs)
        return [outputs[time] for time in sorted(outputs)], states

    def _active(self, time: int) -> Value | None:
        """[batch, 1]: whether the sequence has a step at ``time``; None where all have."""
        if self.lengths is None:
            return None
        known = self.lengths.constant
        if known is None:
            column = self.graph.call("Reshape", self.lengths, np.array([-1, 1]))
            result: Value = self.graph.call("Greater", column, self.graph.constant(np.array(time, np.int32)))
            return result
        return None if known.min() > time else self.graph.constant(known.reshape(-1, 1) > time)

    def collected(self, runs: list[tuple[list[Value], States]]) -> tuple[Value, ...]:
        """All outputs [time, directions, batch, hidden], and the last states, in the layout that was asked for."""
        batch = shape_of(self.x)[1]
        place = np.array([1, 1, batch, self.hidden])
        steps = [
            self.graph.call("Reshape", y, place)
            for outputs in zip(*(run[0] for run in runs), strict=True)
            for y in outputs
        ]
        whole = np.array([len(runs[0][0]), self.directions, batch, self.hidden])
        y = self.graph.call("Reshape", self.graph.call("Concat", *steps, axis=0), whole)
        last = []
        for states in zip(*(run[1] for run in runs), strict=True):
            parts = [self.graph.call("Reshape", state, place[1:]) for state in states]
            last.append(parts[0] if len(parts) == 1 else self.graph.call("Concat", *parts, axis=0))
        return self.in_layout(y, *last)


def _resolved(
    names: tuple[str, ...], alphas: tuple[float, ...], betas: tuple[float, ...]
) -> tuple[tuple[str, float, float], ...]:
    """Each function takes the next alpha and beta if it has them, in the order in which they are given."""
    known = {name.lower(): name for name in ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", *PARAMETERS)}
    next_alpha, next_beta = iter(alphas), iter(betas)
    resolved = []
    for given in names:
        name = known.get(given.lower(), given)
        check_activation(name)
        alpha, beta = PARAMETERS.get(name, (None, None))
        resolved.append(
            (
                name,
                0.0 if alpha is None else next(next_alpha, alpha),
                0.0 if beta is None else next(next_beta, beta),
            )
        )
    return tuple(resolved)
