"""All steps of a recurrent network in one kernel: the state never leaves the chip between them.

The loops are written once. As an operator they run over plain buffers; :mod:`compiler.tiling.recurrence` has them built
again with places: which buffers lie where, and how much of the product one instruction does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.prim_functions import Buffer, loops, ordered_block, prim_function, scratch, store
from compiler.operators.recurrent_cells import Cell
from compiler.operators.registry import operator

GATES = 4
# Which axis counts rows of the batch: of the products, the weights and the states, and of what is made of them.
BATCH_OF_INPUTS = (1, None, 0, 0)
BATCH_OF_RESULTS = (2, 1, 1)
_CUBE = "pragma_tw_cube"  # marks the nests that are whole instructions of the cube's side


@dataclass(frozen=True)
class Places:
    """Where the buffers lie, and what is done at once. The default is one core that has one memory."""

    rows: int  # of the batch that a core works on at once
    columns: int  # of the product, at once
    depth: int  # of the product, at once
    row_cores: int = 1  # that share the rows of a direction
    directions: int = 1  # that one core works on, one after the other
    held: bool = True  # whether the weights stay beside the cube, or are read in every step
    scopes: bool = False


@operator("tilewright::LstmSteps", schedule="recurrence")
def lstm_steps(
    products: te.Tensor,
    weights: te.Tensor,
    first_output: te.Tensor,
    first_cell: te.Tensor,
    *,
    direction: str,
    activations: tuple[str, ...],
    alphas: tuple[float, ...],
    betas: tuple[float, ...],
    clip: float = 0.0,
    input_forget: bool = False,
) -> tirx.PrimFunc:
    """The outputs [steps, directions, batch, hidden] of an LSTM, and the last output and cell state.

    ``products`` [steps, batch, directions * gates * hidden] are those of the inputs, biased; ``weights`` [directions,
    hidden, gates * hidden] those of the output of the step before; ``first_output`` and ``first_cell`` are [batch,
    directions, hidden]. All directions have the same ``activations``.
    """
    attributes = {
        "direction": direction,
        "activations": activations,
        "alphas": alphas,
        "betas": betas,
        "clip": clip,
        "input_forget": input_forget,
    }
    return build([products, weights, first_output, first_cell], attributes)


def built_again(func: Any, places: Places) -> tirx.PrimFunc:
    """The function of a kernel with other places."""
    return build(list(func.params)[:4], json.loads(str(func.attrs["tw.attributes"])), places)


def of_other_shapes(func: Any, params: Sequence[Any]) -> tirx.PrimFunc:
    """The operator's function for other parameters."""
    return build(list(params)[:4], json.loads(str(func.attrs["tw.attributes"])))


def build(inputs: list[Any], attributes: dict[str, Any], places: Places | None = None) -> tirx.PrimFunc:
    """Without places, all is done at once."""
    (batch, directions, hidden), dtype = shape_of(inputs[2]), dtype_of(inputs[2])
    places = places or Places(batch, GATES * hidden, hidden)
    state = (directions, batch, hidden)
    outputs = [((shape_of(inputs[0])[0], *state), dtype), (state, dtype), (state, dtype)]
    return prim_function(inputs, outputs, lambda *buffers: _Lstm.of(buffers, attributes, places).write())


@dataclass(frozen=True)
class _Lstm:
    products: Buffer
    weights: Buffer
    first_output: Buffer
    first_cell: Buffer
    outputs: Buffer
    last_output: Buffer
    last_cell: Buffer
    cell: Cell
    direction: str
    input_forget: bool
    places: Places

    @staticmethod
    def of(buffers: tuple[Buffer, ...], attributes: dict[str, Any], places: Places) -> _Lstm:
        names, alphas, betas = (tuple(attributes[name]) for name in ("activations", "alphas", "betas"))
        cell = Cell(names, alphas, betas, attributes["clip"])
        products, weights, *states, outputs, last_output, last_cell = buffers
        given, made = (products, weights, states[0], states[1]), (outputs, last_output, last_cell)
        return _Lstm(*given, *made, cell, attributes["direction"], attributes["input_forget"], places)

    @property
    def hidden(self) -> int:
        return shape_of(self.first_output)[2]

    def write(self) -> None:
        batch, directions, _ = shape_of(self.first_output)
        blocks = batch // self.places.rows
        trips = blocks // self.places.row_cores
        kept = _Kept.of(self)
        given = [self.products, self.weights, self.first_output, self.first_cell]
        made = [self.outputs, self.last_output, self.last_cell, *kept.buffers]
        with (
            self._cores(directions // self.places.directions, self.places.row_cores) as (part, core),
            ordered_block("steps", [*given, *kept.buffers], made),
            loops(*[self.places.directions] * (self.places.directions > 1)) as own,
        ):
            d = part * self.places.directions + own[0] if own else part
            if self.places.held:
                self.copy_marked(kept.weights, (0, 0), lambda k, n: self.weights[d, k, n])
            with loops(trips) as (trip,):
                _Block(self, kept, d, (core * trips + trip) * self.places.rows).write()

    @contextmanager
    def _cores(self, *extents: int) -> Iterator[tuple[Any, ...]]:
        if not self.places.scopes:
            with loops(*extents) as variables:
                yield variables
            return
        with ExitStack() as stack:
            names = ("blockIdx.x", "blockIdx.y")
            yield tuple(
                stack.enter_context(T.thread_binding(0, extent, thread=name))
                for extent, name in zip(extents, names, strict=True)
            )

    @contextmanager
    def marked(self, what: str, *extents: int) -> Iterator[tuple[Any, ...]]:
        """Loops that are one instruction of the cube's side."""
        with ExitStack() as stack:
            first = T.serial(0, extents[0], annotations={_CUBE: what} if self.places.scopes else None)
            rest = [T.serial(0, extent) for extent in extents[1:]]
            yield tuple(stack.enter_context(loop) for loop in (first, *rest))

    def copy_marked(self, target: Buffer, start: tuple[Any, Any], read: Callable[[Any, Any], Any]) -> None:
        with self.marked("operand", *shape_of(target)) as (row, column):
            store(target, read(start[0] + row, start[1] + column), row, column)


@dataclass(frozen=True)
class _Kept:
    """What lies on the chip. The product's sums and both its factors have places beside the cube."""

    weights: Buffer  # in L1: all, or what is multiplied at once
    output: Buffer  # in L1: of the step before
    left: Buffer
    right: Buffer
    sums: Buffer
    gates: Buffer
    inputs: Buffer  # the products with the inputs of a step
    cell: Buffer  # in fp32
    given_cell: Buffer
    state: Buffer  # the output, and at the end the cell, in the type of the result

    @staticmethod
    def of(network: _Lstm) -> _Kept:
        places, hidden, dtype = network.places, network.hidden, str(network.products.dtype)

        def buffer(scope: str, dtype: str, *shape: int) -> Buffer:
            return scratch(shape, dtype, scope if places.scopes else "global")

        rows, columns = places.rows, GATES * hidden
        return _Kept(
            weights=buffer("shared.l1", dtype, *((hidden, columns) if places.held else (places.depth, places.columns))),
            output=buffer("shared.l1", dtype, rows, hidden),
            left=buffer("local.l0a", dtype, rows, places.depth),
            right=buffer("local.l0b", dtype, places.depth, places.columns),
            sums=buffer("local.l0c", "float32", rows, places.columns),
            gates=buffer("local.ub", "float32", rows, columns),
            inputs=buffer("local.ub", dtype, rows, columns),
            cell=buffer("local.ub", "float32", rows, hidden),
            given_cell=buffer("local.ub", dtype, rows, hidden),
            state=buffer("local.ub", dtype, rows, hidden),
        )

    @property
    def buffers(self) -> list[Buffer]:
        return list(vars(self).values())


@dataclass(frozen=True)
class _Block:
    """Rows of the batch from ``first`` on, in direction ``d``."""

    network: _Lstm
    kept: _Kept
    d: Any
    first: Any

    def write(self) -> None:
        network, kept = self.network, self.kept
        rows, hidden = network.places.rows, network.hidden
        steps = shape_of(network.outputs)[0]
        network.copy_marked(kept.output, (0, 0), lambda b, k: network.first_output[self.first + b, self.d, k])
        with loops(rows, hidden) as (b, j):
            store(kept.given_cell, network.first_cell[self.first + b, self.d, j], b, j)
        with loops(rows, hidden) as (b, j):
            store(kept.cell, kept.given_cell[b, j].astype("float32"), b, j)
        if self._one_product and network.places.held:
            network.copy_marked(kept.right, (0, 0), lambda k, n: kept.weights[k, n])
        self._bring_output()
        with loops(steps) as (step,):
            time = self._time(step, steps)
            with loops(rows, GATES * hidden) as (b, n):
                column = self.d * (GATES * hidden) + n
                store(kept.inputs, network.products[time, self.first + b, column], b, n)
            self._multiply()
            with loops(rows, GATES * hidden) as (b, n):
                store(kept.gates, kept.gates[b, n] + kept.inputs[b, n].astype("float32"), b, n)
            self._step()
            network.copy_marked(kept.output, (0, 0), lambda b, k: kept.state[b, k])
            self._bring_output()  # before the state leaves the core: the next step waits for it
            with loops(rows, hidden) as (b, j):
                store(network.outputs, kept.state[b, j], time, self.d, self.first + b, j)
        with loops(rows, hidden) as (b, j):
            store(network.last_output, kept.state[b, j], self.d, self.first + b, j)
        with loops(rows, hidden) as (b, j):
            store(kept.given_cell, kept.cell[b, j].astype(str(kept.given_cell.dtype)), b, j)
        with loops(rows, hidden) as (b, j):
            store(network.last_cell, kept.given_cell[b, j], self.d, self.first + b, j)

    @property
    def _whole_depth(self) -> bool:
        return self.network.places.depth == self.network.hidden

    @property
    def _one_product(self) -> bool:
        return self._whole_depth and self.network.places.columns == GATES * self.network.hidden

    def _bring_output(self) -> None:
        """Once a step, where there is room beside the cube for all of it."""
        if self._whole_depth:
            self.network.copy_marked(self.kept.left, (0, 0), lambda b, depth: self.kept.output[b, depth])

    def _time(self, step: Any, steps: int) -> Any:
        if self.network.direction == "forward":
            return step
        if self.network.direction == "reverse":
            return steps - 1 - step
        return step + self.d * (steps - 1 - 2 * step)

    def _multiply(self) -> None:
        network, kept = self.network, self.kept
        places, hidden = network.places, network.hidden
        with loops(GATES * hidden // places.columns) as (block,):
            column = block * places.columns
            with network.marked("start", places.rows, places.columns) as (b, n):
                store(kept.sums, tirx.const(0, "float32"), b, n)
            with loops(hidden // places.depth) as (chunk,):
                self._bring(chunk * places.depth, column)
                with network.marked("product", places.rows, places.columns, places.depth) as (b, n, k):
                    product = kept.left[b, k].astype("float32") * kept.right[k, n].astype("float32")
                    store(kept.sums, kept.sums[b, n] + product, b, n)
            with network.marked("result", places.rows, places.columns) as (b, n):
                store(kept.gates, kept.sums[b, n], b, column + n)

    def _bring(self, k: Any, column: Any) -> None:
        network, kept = self.network, self.kept
        if not self._whole_depth:
            network.copy_marked(kept.left, (0, k), lambda b, depth: kept.output[b, depth])
        if not network.places.held:
            network.copy_marked(kept.weights, (k, column), lambda depth, n: network.weights[self.d, depth, n])
            network.copy_marked(kept.right, (0, 0), lambda depth, n: kept.weights[depth, n])
        elif not self._one_product:
            network.copy_marked(kept.right, (k, column), lambda depth, n: kept.weights[depth, n])

    def _step(self) -> None:
        """Gates are input, output, forget, cell."""
        cell = self.network.cell
        kept, rows, hidden = self.kept, self.network.places.rows, self.network.hidden
        with loops(rows, 3 * hidden) as (b, n):
            store(kept.gates, cell.activate(0, kept.gates[b, n]), b, n)
        with loops(rows, hidden) as (b, j):
            store(kept.gates, cell.activate(1, kept.gates[b, 3 * hidden + j]), b, 3 * hidden + j)
        if self.network.input_forget:
            with loops(rows, hidden) as (b, j):
                store(kept.gates, tirx.const(1, "float32") - kept.gates[b, j], b, 2 * hidden + j)
        with loops(rows, hidden) as (b, j):
            entering = kept.gates[b, j] * kept.gates[b, 3 * hidden + j]
            store(kept.cell, kept.gates[b, 2 * hidden + j] * kept.cell[b, j] + entering, b, j)
        with loops(rows, hidden) as (b, j):
            opened = kept.gates[b, hidden + j] * cell.activate_state(2, kept.cell[b, j])
            store(kept.state, opened.astype(str(kept.state.dtype)), b, j)
