"""PrimFuncs made of loop nests: what te.compute cannot say (several regions of one output, stores where the data says).

The functions here write into the PrimFunc that :func:`prim_function` is building; ``T`` is TVM's IR builder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from tvm import ir, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from compiler.operators.broadcast import dtype_of, shape_of

Shape = tuple[int, ...]
Buffer = Any
Indices = Sequence[Any]

_names_used: ContextVar[Counter[str]] = ContextVar("names_used")


def prim_function(
    inputs: Sequence[te.Tensor], outputs: Sequence[tuple[Shape, str]], body: Callable[..., None]
) -> tirx.PrimFunc:
    """A PrimFunc over ``inputs`` and then ``outputs`` (shape and element type); ``body`` takes all their buffers."""
    _names_used.set(Counter())
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("main")
            T.func_attr({"tirx.noalias": True})
            buffers = [
                T.arg(f"in{i}", T.buffer(shape_of(tensor), dtype_of(tensor), layout=None))
                for i, tensor in enumerate(inputs)
            ]
            buffers += [
                T.arg(f"out{i}", T.buffer(shape, dtype, layout=None)) for i, (shape, dtype) in enumerate(outputs)
            ]
            with T.sblock("root"):
                body(*buffers)
    return builder.get()


def scratch(shape: Shape, dtype: str, scope: str = "global") -> Buffer:
    """A buffer that lives as long as the PrimFunc runs."""
    buffer = T.sblock_alloc_buffer(shape, dtype, scope=scope, layout=None)
    IRBuilder.name(_unique("scratch"), buffer)
    return buffer


@contextmanager
def loops(*extents: Any) -> Iterator[tuple[Any, ...]]:
    """Serial loops, outermost first."""
    with ExitStack() as stack:
        yield tuple(stack.enter_context(T.serial(0, extent)) for extent in extents)


@contextmanager
def when(condition: Any) -> Iterator[None]:
    with T.If(condition), T.Then():
        yield


def store(target: Buffer, value: Any, *indices: Any) -> None:
    T.buffer_store(target, value, list(indices))


def region(
    extents: Shape,
    target: Buffer,
    position: Callable[[Indices], Indices],
    value: Callable[[Indices], Any],
    name: str = "region",
) -> None:
    """A schedulable block: for every point of ``extents``, ``target[position(point)] = value(point)``.

    ``position`` must give every point a place of its own. An empty region is left out.
    """
    if 0 in extents:
        return
    with loops(*extents) as variables, T.sblock(_unique(name)):
        point = [T.axis.spatial(extent, variable) for extent, variable in zip(extents, variables, strict=True)]
        store(target, value(point), *position(point))


def part(
    extents: Shape,
    target: Buffer,
    position: Callable[[Indices], Indices],
    value: Callable[[Indices], Any],
    name: str = "part",
) -> None:
    """One region of a target that others write, too, in a scope of its own: a schedule wants one writer in a scope.

    What is more than a copy is computed into a buffer of its own first, so that every write is a copy: a schedule puts
    that buffer on the chip whatever ``position`` looks like.
    """
    if 0 in extents:
        return
    with T.sblock(_unique(f"{name}_scope")):
        sample = value([tirx.const(0, "int32") for _ in extents])
        if not isinstance(sample, ir.TensorLoad):
            staged = scratch(extents, str(target.dtype))
            region(extents, staged, lambda point: point, value, f"{name}_value")
            region(extents, target, position, lambda point: staged[tuple(point)], name)
        else:
            region(extents, target, position, value, name)


def fill(target: Buffer, value: Any) -> None:
    part(shape_of(target), target, lambda point: point, lambda _: value, "fill")


@contextmanager
def ordered_block(name: str, reads: Sequence[Buffer], writes: Sequence[Buffer]) -> Iterator[None]:
    """A block whose loops run in the order they are written: what it stores depends on what it stored before.

    It reads and writes any part of the buffers: what it touches may depend on values that are known inside only. The
    first of ``writes`` is a result of the PrimFunc where any of them is: a schedule looks there.
    """
    with T.sblock(_unique(name)):
        T.reads(*(_whole(buffer) for buffer in reads))
        T.writes(*(_whole(buffer) for buffer in writes))
        yield


def _whole(buffer: Buffer) -> Any:
    extents = shape_of(buffer)
    return buffer[tuple(slice(0, extent) for extent in extents)]


def _unique(name: str) -> str:
    """A schedule finds blocks and buffers by their names."""
    used = _names_used.get()
    used[name] += 1
    return name if used[name] == 1 else f"{name}_{used[name] - 1}"
