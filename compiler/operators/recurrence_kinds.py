"""What kinds of recurrent networks do in a step, between the products with the inputs and the output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tvm import tirx

from compiler.operators.prim_functions import Buffer, loops, store

if TYPE_CHECKING:
    from compiler.operators.recurrence import Block

# Which axis counts rows of the batch: of the products with the inputs and the states, and of what is made of them.
BATCH_OF_PRODUCTS, BATCH_OF_STATES, BATCH_OF_OUTPUTS, BATCH_OF_LAST = 1, 0, 2, 1


@dataclass(frozen=True)
class Form:
    """What networks of one kind have in every step; their gates lie side by side."""

    products: tuple[int, ...]  # with what a step has made so far, one after the other: of how many gates each
    states: int = 1
    has_bias: bool = False  # of the last gate, that belongs to the product only

    @property
    def gates(self) -> int:
        return sum(self.products)

    @property
    def inputs(self) -> int:
        return 2 + self.states + self.has_bias

    @property
    def axes_of_inputs(self) -> tuple[int | None, ...]:
        """Which of them count rows of the batch."""
        states = (BATCH_OF_STATES,) * self.states
        return (BATCH_OF_PRODUCTS, None, *states, *(None,) * self.has_bias)

    @property
    def axes_of_results(self) -> tuple[int, ...]:
        return (BATCH_OF_OUTPUTS, *(BATCH_OF_LAST,) * self.states)


@dataclass(frozen=True)
class Kind(ABC):
    """What a step does between the products with the inputs and the output, which it leaves in ``kept.state``."""

    form: ClassVar[Form]

    block: Block

    @staticmethod
    def buffers(buffer: Callable[..., Buffer], dtype: str, rows: int, hidden: int) -> dict[str, Buffer]:
        """Those of its own, by name; ``dtype`` is that of the result."""
        return {}

    def begin(self) -> None:  # noqa: B027 (most have nothing to do)
        """Before the first step."""

    @abstractmethod
    def step(self) -> None:
        """In every step."""

    def end(self) -> None:  # noqa: B027
        """After the last one, whose output has left."""

    @property
    def _shape(self) -> tuple[int, int]:
        return self.block.network.places.rows, self.block.network.hidden

    def _store_state(self, value: Callable[[Any, Any], Any]) -> None:
        state = self.block.kept.state
        with loops(*self._shape) as (b, j):
            store(state, value(b, j).astype(str(state.dtype)), b, j)

    def _multiply(self) -> None:
        """The one product of a step, and all gates with their inputs."""
        self.block.multiply(0, self.block.kept.output)
        self.block.add_inputs(0, self.form.gates)


class Lstm(Kind):
    """Gates are input, output, forget, cell."""

    form = Form((4,), states=2)

    @staticmethod
    def buffers(buffer: Callable[..., Buffer], dtype: str, rows: int, hidden: int) -> dict[str, Buffer]:
        return {
            "cell": buffer("local.ub", "float32", rows, hidden),
            "given_cell": buffer("local.ub", dtype, rows, hidden),
        }

    def begin(self) -> None:
        block, own = self.block, self.block.kept.own
        with loops(*self._shape) as (b, j):
            store(own["given_cell"], block.network.first[1][block.first + b, block.d, j], b, j)
        with loops(*self._shape) as (b, j):
            store(own["cell"], own["given_cell"][b, j].astype("float32"), b, j)

    def step(self) -> None:
        block, cell = self.block, self.block.kept.own["cell"]
        self._multiply()
        block.activate(0, 0, 3)
        block.activate(1, 3, 1)
        if block.network.attributes["input_forget"]:
            with loops(*self._shape) as (b, j):
                left = tirx.const(1, "float32") - block.gate(0, b, j)
                store(block.kept.gates, left, b, 2 * block.network.hidden + j)
        with loops(*self._shape) as (b, j):
            entering = block.gate(0, b, j) * block.gate(3, b, j)
            store(cell, block.gate(2, b, j) * cell[b, j] + entering, b, j)
        self._store_state(lambda b, j: block.gate(1, b, j) * block.network.cell.activate_state(2, cell[b, j]))

    def end(self) -> None:
        block, own = self.block, self.block.kept.own
        with loops(*self._shape) as (b, j):
            store(own["given_cell"], own["cell"][b, j].astype(str(own["given_cell"].dtype)), b, j)
        with loops(*self._shape) as (b, j):
            store(block.network.last[1], own["given_cell"][b, j], block.d, block.first + b, j)


class Rnn(Kind):
    form = Form((1,))

    def step(self) -> None:
        block = self.block
        self._multiply()
        self._store_state(lambda b, j: block.network.cell.activate(0, block.gate(0, b, j)))


class Gru(Kind):
    """Gates are update, reset, candidate."""

    form = Form((2, 1))

    @staticmethod
    def buffers(buffer: Callable[..., Buffer], dtype: str, rows: int, hidden: int) -> dict[str, Buffer]:
        return {
            "reset": buffer("shared.l1", dtype, rows, hidden),
            "reset_state": buffer("local.ub", dtype, rows, hidden),
        }

    def begin(self) -> None:
        block = self.block
        with loops(*self._shape) as (b, j):
            store(block.kept.state, block.network.first[0][block.first + b, block.d, j], b, j)

    def step(self) -> None:
        block, state = self.block, self.block.kept.state
        reset, reset_state = (block.kept.own[name] for name in ("reset", "reset_state"))
        block.multiply(0, block.kept.output)
        block.add_inputs(0, 2)
        block.activate(0, 0, 2)
        with loops(*self._shape) as (b, j):
            left = block.gate(1, b, j) * state[b, j].astype("float32")
            store(reset_state, left.astype(str(reset_state.dtype)), b, j)
        block.network.copy_marked(reset, (0, 0), lambda b, k: reset_state[b, k])
        block.bring(reset)
        block.multiply(1, reset)
        block.add_inputs(2, 1)
        block.activate(1, 2, 1)
        self._store_between(lambda b, j: block.gate(2, b, j))

    def _store_between(self, candidate: Callable[[Any, Any], Any]) -> None:
        """Between the candidate and the state, as the update gate says. Of a difference to a large candidate, little
        would be left of a small state.
        """
        block, state = self.block, self.block.kept.state
        is_bounded = block.network.cell.is_bounded(1)

        def between(b: Any, j: Any) -> Any:
            gate, new, old = block.gate(0, b, j), candidate(b, j), state[b, j].astype("float32")
            return new + gate * (old - new) if is_bounded else (tirx.const(1, "float32") - gate) * new + gate * old

        self._store_state(between)


class LinearGru(Gru):
    form = Form((3,), has_bias=True)

    @staticmethod
    def buffers(buffer: Callable[..., Buffer], dtype: str, rows: int, hidden: int) -> dict[str, Buffer]:
        return {
            "given_bias": buffer("local.ub", dtype, 1, hidden),
            "bias": buffer("local.ub", "float32", 1, hidden),
            "candidate": buffer("local.ub", "float32", rows, hidden),
        }

    def begin(self) -> None:
        block, own = self.block, self.block.kept.own
        super().begin()
        given: Any = block.network.bias
        with loops(1, block.network.hidden) as (b, j):
            store(own["given_bias"], given[block.d, j], b, j)
        with loops(1, block.network.hidden) as (b, j):
            store(own["bias"], own["given_bias"][b, j].astype("float32"), b, j)

    def step(self) -> None:
        block, kept, hidden = self.block, self.block.kept, self.block.network.hidden
        bias, candidate = kept.own["bias"], kept.own["candidate"]
        block.multiply(0, kept.output)
        block.add_inputs(0, 2)
        block.activate(0, 0, 2)
        with loops(*self._shape) as (b, j):
            store(candidate, block.gate(2, b, j) + bias[0, j], b, j)
        with loops(*self._shape) as (b, j):
            entering = kept.inputs[b, 2 * hidden + j].astype("float32")
            store(candidate, block.gate(1, b, j) * candidate[b, j] + entering, b, j)
        with loops(*self._shape) as (b, j):
            store(candidate, block.network.cell.activate(1, candidate[b, j]), b, j)
        self._store_between(lambda b, j: candidate[b, j])


KINDS: dict[str, type[Kind]] = {
    "tilewright::LstmSteps": Lstm,
    "tilewright::GruSteps": Gru,
    "tilewright::GruLinearSteps": LinearGru,
    "tilewright::RnnSteps": Rnn,
}
