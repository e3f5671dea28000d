"""Compute a timed stream: every instruction takes effect when its result is there, in the order of the simulated time.

A program that is right only by luck of timing computes something else here than in the interpreter; that is the
point. What a class does to arrays is prepared once; an instruction then only supplies addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.isa.execute import store, widened
from compiler.isa.model import Args
from compiler.sim.classes import ClassTable
from compiler.sim.expand import Stream
from compiler.sim.memory import Memories
from compiler.sim.pipeline import Schedule


@dataclass(frozen=True)
class _Operand:
    memory: str
    address_index: int
    offset: int  # from the address slot to the view
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    dtype: np.dtype[Any]
    reads: bool
    writes: bool


@dataclass(frozen=True)
class _Plan:
    """A class, ready to run: where its arrays lie relative to the address slots, and what is done to them."""

    args: Args
    semantics: Callable[..., Any]
    raw: bool
    operands: tuple[_Operand, ...]


def _plan(args: Args) -> _Plan | None:
    row = args.row
    if row.semantics is None or row.kind not in ("compute", "sld"):
        return None
    operands = []
    for index, (tensor, view) in enumerate(zip(row.tensors, args.views, strict=True)):
        size = view.dtype.itemsize
        operands.append(
            _Operand(
                view.memory,
                index,
                view.address - getattr(args, tensor.name),
                view.shape,
                tuple(s * size for s in view.strides),
                view.dtype.numpy,
                "r" in view.role,
                "w" in view.role,
            )
        )
    return _Plan(args, row.semantics, row.raw, tuple(operands))


def compute(stream: Stream, classes: ClassTable, schedule: Schedule, memories: Memories) -> list[list[int]]:
    """Run the stream's semantics on the memories; returns what each core's scalar loads read, in order."""
    plans = [_plan(args) for args in classes.args]
    position = np.empty(stream.size, np.int64)
    position[schedule.order] = np.arange(stream.size)
    sequence = np.lexsort((position, schedule.complete))
    active = np.array([plan is not None for plan in plans])
    sequence = sequence[active[stream.klass[sequence]]]
    cores = np.searchsorted(stream.core_start, sequence, side="right") - 1
    loaded: list[list[int]] = [[] for _ in range(stream.cores)]
    views = [memories.of(core) for core in range(stream.cores)]
    klass, address = stream.klass[sequence].tolist(), stream.address[sequence].tolist()
    with np.errstate(all="ignore"):
        for core, number, addresses in zip(cores.tolist(), klass, address, strict=True):
            plan = plans[number]
            if plan is not None:
                value = _apply(plan, views[core], addresses)
                if plan.args.row.kind == "sld":
                    loaded[core].append(int(value))
    return loaded


def _apply(plan: _Plan, memories: Any, addresses: list[int]) -> Any:
    arrays = [
        np.ndarray(o.shape, o.dtype, memories[o.memory].data, addresses[o.address_index] + o.offset, o.strides)
        for o in plan.operands
    ]
    inputs = [a if plan.raw else widened(a) for a, o in zip(arrays, plan.operands, strict=True) if o.reads]
    results = plan.semantics(plan.args, *inputs)
    targets = [a for a, o in zip(arrays, plan.operands, strict=True) if o.writes]
    if len(targets) == 1 and not isinstance(results, tuple):
        store(targets[0], results)
    elif targets:
        for target, result in zip(targets, results, strict=True):
            store(target, result)
    return results
