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
from compiler.operators.recurrence_kinds import KINDS, Form, Kind
from compiler.operators.recurrent_cells import Cell
from compiler.operators.registry import operator

_CUBE = "pragma_tw_cube"  # marks the nests that are whole instructions of the cube's side


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


def _operator_of(kind: type[Kind]) -> Callable[..., tirx.PrimFunc]:
    def steps(
        products: te.Tensor,
        weights: te.Tensor,
        first_output: te.Tensor,
        other: te.Tensor | None = None,
        *,
        direction: str,
        activations: tuple[str, ...],
        alphas: tuple[float, ...],
        betas: tuple[float, ...],
        clip: float = 0.0,
        input_forget: bool = False,
    ) -> tirx.PrimFunc:
        """The outputs [steps, directions, batch, hidden] of a network, and its last states.

        ``products`` [steps, batch, directions * gates * hidden] are those of the inputs, biased; ``weights``
        [directions, hidden, gates * hidden] those of the output of the step before; ``first_output`` is [batch,
        directions, hidden], and so is the ``other`` state of an LSTM, its cell. Of a GRU that resets the product with
        its state, the other input is the bias of that, [directions, hidden]. All directions have the same
        ``activations``.
        """
        given = {"direction": direction, "activations": activations, "alphas": alphas, "betas": betas, "clip": clip}
        inputs = [products, weights, first_output, *([] if other is None else [other])]
        return build(kind, inputs, {**given, "input_forget": input_forget})

    return steps


def form_of(func: Any) -> Form:
    """Of an operator's function, or a kernel's."""
    return _kind_of(func).form


def _kind_of(func: Any) -> type[Kind]:
    return KINDS[str(func.attrs["tw.operator"])]


def built_again(func: Any, places: Places | None = None, params: Sequence[Any] | None = None) -> tirx.PrimFunc:
    """The function of an operator or a kernel with other places, or for other parameters."""
    inputs = list(func.params if params is None else params)[: form_of(func).inputs]
    return build(_kind_of(func), inputs, json.loads(str(func.attrs["tw.attributes"])), places)


def build(
    kind: type[Kind], inputs: list[Any], attributes: dict[str, Any], places: Places | None = None
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
    kind: type[Kind]
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
    def of(kind: type[Kind], buffers: tuple[Buffer, ...], attributes: dict[str, Any], places: Places) -> _Network:
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
    def depths(self) -> list[tuple[int, int, int]]:
        """Of the products: where those of one depth begin, it, and how many there are; the last has what is left."""
        chunks, rest = divmod(self.hidden, self.places.depth)
        whole = (0, self.places.depth, chunks)
        return [whole, (self.hidden - rest, rest, 1)] if rest else [whole]

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
                Block(self, kept, d, (core * trips + trip) * self.places.rows).write()

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
class Block:
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
                self._bring_right(piece, 0, piece.first, hidden)
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
            for begin, depth, chunks in network.depths:
                with loops(chunks) as (chunk,):
                    k = begin + chunk * depth
                    if not network.whole_depth:
                        network.copy_marked(kept.left, (0, k), lambda b, at: factor[b, at], (places.rows, depth))
                    if not (places.held and network.at_once):
                        self._bring_right(piece, k, column, depth)
                    with network.marked("product", places.rows, columns, depth) as (b, n, at):
                        product = kept.left[b, at].astype("float32") * right[at, n].astype("float32")
                        store(sums, sums[b, n] + product, b, n)
            first = network.columns_of(piece.product)[0] + column
            with network.marked("result", places.rows, columns) as (b, n):
                store(kept.gates, sums[b, n], b, first + n)

    def _bring_right(self, piece: Piece, k: Any, column: Any, depth: int) -> None:
        """Weights of a piece to the cube: from L1, or through it."""
        network, kept, shape = self.network, self.kept, (depth, piece.columns)
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


for _name, _kind in KINDS.items():
    operator(_name, schedule="recurrence")(_operator_of(_kind))
