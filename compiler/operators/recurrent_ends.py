"""Sequences that end before others of their batch, in a kernel that takes all steps of all of them.

A step behind an end is idle: instead of the products with its input the gates have what leaves the states as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from compiler.operators.broadcast import result_dtype, shape_of
from compiler.operators.graph import Graph, Value

_CLOSED, _OPEN = -1e4, 1e4  # of a sigmoid, whatever the states add; a number in all precisions
_ZERO_OF_ZERO = ("Tanh", "Relu")


@dataclass(frozen=True)
class IdleStep:
    """``products`` are those of each gate; the output, which is a state, is kept, or zero, or of no use.

    Where it is not kept, a sequence that is gone through in reverse begins with idle steps in a state of zeros.
    """

    products: tuple[float, ...]
    output: Literal["kept", "zero", "useless"]

    def is_possible(self, activation: str, clip: float, initial: Value | None) -> bool:
        """Whether gates of ``activation`` let states through, or nothing, and the first state stays what it is."""
        gated = any(self.products)
        if clip or (activation != "Sigmoid" if gated else activation not in _ZERO_OF_ZERO):
            return False
        known = None if initial is None else initial.constant
        return self.output == "kept" or initial is None or (known is not None and not known.any())


IDLE_LSTM = IdleStep((_CLOSED, _CLOSED, _OPEN, 0.0), "zero")
IDLE_GRU = IdleStep((_OPEN, 0.0, 0.0), "kept")
IDLE_RNN = IdleStep((0.0,), "useless")


@dataclass(frozen=True)
class Ends:
    """Where each sequence of a batch ends: ``lengths`` [batch], of at most ``steps``."""

    graph: Graph
    lengths: Value
    steps: int
    idle: IdleStep

    def products(self, products: Value, hidden: int) -> Value:
        """``products`` [steps, batch, columns] with those of idle steps behind the ends."""
        dtype = result_dtype(products)
        of_gates = np.repeat(np.array(self.idle.products, dtype), hidden)
        idle = np.tile(of_gates, shape_of(products)[2] // len(of_gates))
        result: Value = self.graph.call("Where", self._active((1, -1, 1)), products, idle)
        return result

    def outputs(self, y: Value, last: Value, reverse: tuple[bool, ...]) -> tuple[Value, Value]:
        """``y`` [steps, directions, batch, hidden] with zeros behind the ends, and the output of each last step."""
        zero = np.zeros((), result_dtype(y))
        if self.idle.output != "zero":
            y = self.graph.call("Where", self._active((1, 1, -1, 1)), y, zero)
        if self.idle.output == "kept":
            return y, last
        only_last = self.graph.call("Where", self._last_steps(reverse), y, zero)
        return y, self.graph.call("ReduceSum", only_last, np.array([0]), keepdims=0)

    def _active(self, place: tuple[int, ...]) -> Value:
        result: Value = self.graph.call("Greater", self._placed(place), self._times(len(place)))
        return result

    def _last_steps(self, reverse: tuple[bool, ...]) -> Value:
        """[steps, directions, batch, 1]; of a sequence without steps none, whose states are zeros."""
        times, lengths = self._times(4), self._placed((1, 1, -1, 1))
        first = np.broadcast_to(times == 0, (self.steps, 1, *shape_of(lengths)[2:]))
        last = self.graph.call("Equal", lengths, times + 1)
        each: list[Any] = [first if is_reverse else last for is_reverse in reverse]
        result: Value = each[0] if len(each) == 1 else self.graph.call("Concat", *each, axis=1)
        return result

    def _placed(self, place: tuple[int, ...]) -> Value:
        result: Value = self.graph.call("Reshape", self.lengths, np.array(place))
        return result

    def _times(self, rank: int) -> np.ndarray[Any, Any]:
        return np.arange(self.steps, dtype=np.int32).reshape(-1, *(1,) * (rank - 1))
