"""All steps of a recurrent network in one kernel: the state never leaves the chip between them.

The loops are written once. As an operator they run over plain buffers; :mod:`compiler.tiling.recurrence` has them built
again with places: which buffers lie where, and how much of the product one instruction does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.prim_functions import Buffer, loops, ordered_block, prim_function, scratch, store
from compiler.operators.recurrent_cells import Cell
from compiler.operators.registry import operator

# Which axis counts rows of the batch: of the products with the inputs and the states, and of what is made of them.
BATCH_OF_PRODUCTS, BATCH_OF_STATES, BATCH_OF_OUTPUTS, BATCH_OF_LAST = 1, 0, 2, 1
_CUBE = "pragma_tw_cube"  # marks the nests that are whole instructions of the cube's side


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
class Piece:
    """Columns of a product, done in blocks that are alike."""

    product: int
    first: int  # of the product's columns
    columns: int  # of a block
    blocks: int = 1
    place: int = 0  # of its weights beside the cube: pieces of one place take turns


@dataclass(frozen=True)
class Places:
    """Where the buffers lie, and what is done at once. The default is one core that has one memory."""

    rows: int  # of the batch that a core works on at once
    pieces: tuple[Piece, ...]  # of all products
    depth: int  # of the products, at once
    row_cores: int = 1  # that share the rows of a direction
    directions: int = 1  # that one core works on, one after the other
    held: bool = True  # whether the weights stay beside the cube, or are read in every step
    scopes: bool = False

    @property
    def widths(self) -> list[int]:
        """Of each place beside the cube, the most columns that a piece has there."""
        found = dict[int, int]()
        for piece in self.pieces:
            found[piece.place] = max(found.get(piece.place, 0), piece.columns)
        return [found[place] for place in sorted(found)]


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
    attributes = _attributes(direction, activations, alphas, betas, clip) | {"input_forget": input_forget}
    return build(_Lstm, [products, weights, first_output, first_cell], attributes)


@operator("tilewright::GruSteps", schedule="recurrence")
def gru_steps(
    products: te.Tensor,
    weights: te.Tensor,
    first_output: te.Tensor,
    *,
    direction: str,
    activations: tuple[str, ...],
    alphas: tuple[float, ...],
    betas: tuple[float, ...],
    clip: float = 0.0,
) -> tirx.PrimFunc:
    """The same of a GRU that resets its state before the product for the candidate."""
    attributes = _attributes(direction, activations, alphas, betas, clip)
    return build(_Gru, [products, weights, first_output], attributes)


@operator("tilewright::GruLinearSteps", schedule="recurrence")
def gru_linear_steps(
    products: te.Tensor,
    weights: te.Tensor,
    first_output: te.Tensor,
    bias: te.Tensor,
    *,
    direction: str,
    activations: tuple[str, ...],
    alphas: tuple[float, ...],
    betas: tuple[float, ...],
    clip: float = 0.0,
) -> tirx.PrimFunc:
    """The same of a GRU that resets the product of its state, with its ``bias`` [directions, hidden]."""
    attributes = _attributes(direction, activations, alphas, betas, clip)
    return build(_LinearGru, [products, weights, first_output, bias], attributes)


@operator("tilewright::RnnSteps", schedule="recurrence")
def rnn_steps(
    products: te.Tensor,
    weights: te.Tensor,
    first_output: te.Tensor,
    *,
    direction: str,
    activations: tuple[str, ...],
    alphas: tuple[float, ...],
    betas: tuple[float, ...],
    clip: float = 0.0,
) -> tirx.PrimFunc:
    """The same of a network whose output is its only gate."""
    attributes = _attributes(direction, activations, alphas, betas, clip)
    return build(_Rnn, [products, weights, first_output], attributes)


def _attributes(
    direction: str, activations: tuple[str, ...], alphas: tuple[float, ...], betas: tuple[float, ...], clip: float
) -> dict[str, Any]:
    return {"direction": direction, "activations": activations, "alphas": alphas, "betas": betas, "clip": clip}


def form_of(func: Any) -> Form:
    """Of an operator's function, or a kernel's."""
    return _kind_of(func).form


def _kind_of(func: Any) -> type[_Kind]:
    return _KINDS[str(func.attrs["tw.operator"])]


def built_again(func: Any, places: Places | None = None, params: Sequence[Any] | None = None) -> tirx.PrimFunc:
    """The function of an operator or a kernel with other places, or for other parameters."""
    inputs = list(func.params if params is None else params)[: form_of(func).inputs]
    return build(_kind_of(func), inputs, json.loads(str(func.attrs["tw.attributes"])), places)


def build(
    kind: type[_Kind], inputs: list[Any], attributes: dict[str, Any], places: Places | None = None
) -> tirx.PrimFunc:
    """Without places, all is done at once."""
    (batch, directions, hidden), dtype = shape_of(inputs[2]), dtype_of(inputs[2])
    whole = (Piece(number, 0, gates * hidden, place=number) for number, gates in enumerate(kind.form.products))
    places = places or Places(batch, tuple(whole), hidden)
    state = (directions, batch, hidden)
    outputs = [((shape_of(inputs[0])[0], *state), dtype), *[(state, dtype)] * kind.form.states]
    return prim_function(inputs, outputs, lambda *buffers: _Network.of(kind, buffers, attributes, places).write())


@dataclass(frozen=True)
class _Network:
    kind: type[_Kind]
    products: Buffer
    weights: Buffer
    first: tuple[Buffer, ...]  # states
    bias: Buffer | None
    outputs: Buffer
    last: tuple[Buffer, ...]
    cell: Cell
    attributes: dict[str, Any]
    places: Places

    @staticmethod
    def of(kind: type[_Kind], buffers: tuple[Buffer, ...], attributes: dict[str, Any], places: Places) -> _Network:
        names, alphas, betas = (tuple(attributes[name]) for name in ("activations", "alphas", "betas"))
        cell, form = Cell(names, alphas, betas, attributes["clip"]), kind.form
        (products, weights, *first), (outputs, *last) = buffers[: form.inputs], buffers[form.inputs :]
        bias = first.pop() if form.has_bias else None
        return _Network(
            kind, products, weights, tuple(first), bias, outputs, tuple(last), cell, attributes, places,
        )  # fmt: skip

    @property
    def hidden(self) -> int:
        return shape_of(self.first[0])[2]

    @property
    def columns(self) -> int:
        """Of all gates."""
        return self.kind.form.gates * self.hidden

    def columns_of(self, product: int) -> tuple[int, int]:
        """Where those of a product begin, and how many there are."""
        gates = self.kind.form.products
        return sum(gates[:product]) * self.hidden, gates[product] * self.hidden

    @property
    def whole_depth(self) -> bool:
        return self.places.depth == self.hidden

    @property
    def at_once(self) -> bool:
        """Whether there is room beside the cube for the weights of all products."""
        pieces = self.places.pieces
        several = len({piece.place for piece in pieces}) < len(pieces) or any(piece.blocks > 1 for piece in pieces)
        return self.whole_depth and not several

    def write(self) -> None:
        batch, directions, _ = shape_of(self.first[0])
        blocks = batch // self.places.rows
        trips = blocks // self.places.row_cores
        kept = _Kept.of(self)
        given = [self.products, self.weights, *self.first, *([] if self.bias is None else [self.bias])]
        made = [self.outputs, *self.last, *kept.buffers]
        with (
            self._cores(directions // self.places.directions, self.places.row_cores) as (part, core),
            ordered_block("steps", [*given, *kept.buffers], made),
            loops(*[self.places.directions] * (self.places.directions > 1)) as own,
        ):
            d = part * self.places.directions + own[0] if own else part
            if self.places.held:
                for number, weights in enumerate(kept.weights):
                    self.copy_marked(weights, (0, self.columns_of(number)[0]), lambda k, n: self.weights[d, k, n])
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

    def copy_marked(
        self,
        target: Buffer,
        start: tuple[Any, Any],
        read: Callable[[Any, Any], Any],
        shape: tuple[int, ...] | None = None,
    ) -> None:
        with self.marked("operand", *(shape or shape_of(target))) as (row, column):
            store(target, read(start[0] + row, start[1] + column), row, column)


@dataclass(frozen=True)
class _Kept:
    """What lies on the chip. The sums of products and both their factors have places beside the cube."""

    weights: list[Buffer]  # in L1: all of each product, or of each place what is multiplied at once
    output: Buffer  # in L1: of the step before
    left: Buffer
    right: list[Buffer]  # of each place
    sums: list[Buffer]  # of each piece
    gates: Buffer
    inputs: Buffer  # the products with the inputs of a step
    own: dict[str, Buffer]  # of a kind of networks
    state: Buffer  # the output, in the type of the result

    @staticmethod
    def of(network: _Network) -> _Kept:
        places, hidden, dtype = network.places, network.hidden, str(network.products.dtype)

        def buffer(scope: str, dtype: str, *shape: int) -> Buffer:
            return scratch(shape, dtype, scope if places.scopes else "global")

        rows, widths = places.rows, places.widths
        whole = [gates * hidden for gates in network.kind.form.products]
        beside = [(hidden, width) for width in whole] if places.held else [(places.depth, width) for width in widths]
        return _Kept(
            weights=[buffer("shared.l1", dtype, *shape) for shape in beside],
            output=buffer("shared.l1", dtype, rows, hidden),
            left=buffer("local.l0a", dtype, rows, places.depth),
            right=[buffer("local.l0b", dtype, places.depth, width) for width in widths],
            sums=[buffer("local.l0c", "float32", rows, piece.columns) for piece in places.pieces],
            gates=buffer("local.ub", "float32", rows, network.columns),
            inputs=buffer("local.ub", dtype, rows, network.columns),
            own=network.kind.buffers(buffer, dtype, rows, hidden),
            state=buffer("local.ub", dtype, rows, hidden),
        )

    @property
    def buffers(self) -> list[Buffer]:
        return [
            *self.weights, self.output, self.left, *self.right, *self.sums, self.gates, self.inputs,
            *self.own.values(), self.state,
        ]  # fmt: skip


@dataclass(frozen=True)
class _Block:
    """Rows of the batch from ``first`` on, in direction ``d``."""

    network: _Network
    kept: _Kept
    d: Any
    first: Any

    def write(self) -> None:
        network, kept = self.network, self.kept
        rows, hidden = network.places.rows, network.hidden
        steps, kind = shape_of(network.outputs)[0], network.kind(self)
        network.copy_marked(kept.output, (0, 0), lambda b, k: network.first[0][self.first + b, self.d, k])
        kind.begin()
        if network.at_once and network.places.held:
            for piece in network.places.pieces:
                self._bring_right(piece, 0, piece.first)
        self.bring(kept.output)
        with loops(steps) as (step,):
            time = self._time(step, steps)
            with loops(rows, network.columns) as (b, n):
                column = self.d * network.columns + n
                store(kept.inputs, network.products[time, self.first + b, column], b, n)
            kind.step()
            network.copy_marked(kept.output, (0, 0), lambda b, k: kept.state[b, k])
            self.bring(kept.output)  # before the state leaves the core: the next step waits for it
            with loops(rows, hidden) as (b, j):
                store(network.outputs, kept.state[b, j], time, self.d, self.first + b, j)
        with loops(rows, hidden) as (b, j):
            store(network.last[0], kept.state[b, j], self.d, self.first + b, j)
        kind.end()

    def bring(self, factor: Buffer) -> None:
        """What a product multiplies, in one piece, where there is room beside the cube for all of it."""
        if self.network.whole_depth:
            self.network.copy_marked(self.kept.left, (0, 0), lambda b, depth: factor[b, depth])

    def _time(self, step: Any, steps: int) -> Any:
        direction = self.network.attributes["direction"]
        if direction == "forward":
            return step
        if direction == "reverse":
            return steps - 1 - step
        return step + self.d * (steps - 1 - 2 * step)

    def multiply(self, number: int, factor: Buffer) -> None:
        """The gates of a product: what was brought, times its weights."""
        for piece, sums in zip(self.network.places.pieces, self.kept.sums, strict=True):
            if piece.product == number:
                self._multiply_piece(piece, sums, factor)

    def _multiply_piece(self, piece: Piece, sums: Buffer, factor: Buffer) -> None:
        network, kept, columns = self.network, self.kept, piece.columns
        places, right = network.places, kept.right[piece.place]
        with loops(piece.blocks) as (block,):
            column = piece.first + block * columns
            with network.marked("start", places.rows, columns) as (b, n):
                store(sums, tirx.const(0, "float32"), b, n)
            with loops(network.hidden // places.depth) as (chunk,):
                k = chunk * places.depth
                if not network.whole_depth:
                    start = 0, k
                    network.copy_marked(kept.left, start, lambda b, depth: factor[b, depth])
                if not (places.held and network.at_once):
                    self._bring_right(piece, k, column)
                with network.marked("product", places.rows, columns, places.depth) as (b, n, at):
                    product = kept.left[b, at].astype("float32") * right[at, n].astype("float32")
                    store(sums, sums[b, n] + product, b, n)
            first = network.columns_of(piece.product)[0] + column
            with network.marked("result", places.rows, columns) as (b, n):
                store(kept.gates, sums[b, n], b, first + n)

    def _bring_right(self, piece: Piece, k: Any, column: Any) -> None:
        """Weights of a piece to the cube: from L1, or through it."""
        network, kept, shape = self.network, self.kept, (self.network.places.depth, piece.columns)
        right = kept.right[piece.place]
        if network.places.held:
            weights = kept.weights[piece.product]
            network.copy_marked(right, (k, column), lambda depth, n: weights[depth, n], shape)
            return
        weights, start = kept.weights[piece.place], (k, network.columns_of(piece.product)[0] + column)
        network.copy_marked(weights, start, lambda depth, n: network.weights[self.d, depth, n], shape)
        network.copy_marked(right, (0, 0), lambda depth, n: weights[depth, n], shape)

    def add_inputs(self, first: int, gates: int) -> None:
        """To so many gates."""
        kept, hidden = self.kept, self.network.hidden
        with loops(self.network.places.rows, gates * hidden) as (b, n):
            at = first * hidden + n
            store(kept.gates, kept.gates[b, at] + kept.inputs[b, at].astype("float32"), b, at)

    def activate(self, which: int, first: int, gates: int) -> None:
        """So many gates, in place."""
        kept, hidden, cell = self.kept, self.network.hidden, self.network.cell
        with loops(self.network.places.rows, gates * hidden) as (b, n):
            at = first * hidden + n
            store(kept.gates, cell.activate(which, kept.gates[b, at]), b, at)

    def gate(self, number: int, b: Any, j: Any) -> Any:
        return self.kept.gates[b, number * self.network.hidden + j]


# ---- kinds of networks -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """What a step does between the products with the inputs and the output, which it leaves in ``kept.state``."""

    form: ClassVar[Form]

    block: _Block

    @staticmethod
    def buffers(buffer: Callable[..., Buffer], dtype: str, rows: int, hidden: int) -> dict[str, Buffer]:
        """Those of its own, by name; ``dtype`` is that of the result."""
        return {}

    def begin(self) -> None:
        """Before the first step."""

    def step(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
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


class _Lstm(_Kind):
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


class _Rnn(_Kind):
    form = Form((1,))

    def step(self) -> None:
        block = self.block
        self._multiply()
        self._store_state(lambda b, j: block.network.cell.activate(0, block.gate(0, b, j)))


class _Gru(_Kind):
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
        """Between the candidate and the state, as the update gate says."""
        block, state = self.block, self.block.kept.state

        def between(b: Any, j: Any) -> Any:
            return candidate(b, j) + block.gate(0, b, j) * (state[b, j].astype("float32") - candidate(b, j))

        self._store_state(between)


class _LinearGru(_Gru):
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


_KINDS: dict[str, type[_Kind]] = {
    "tilewright::LstmSteps": _Lstm,
    "tilewright::GruSteps": _Gru,
    "tilewright::GruLinearSteps": _LinearGru,
    "tilewright::RnnSteps": _Rnn,
}
