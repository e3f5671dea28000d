"""How many cycles work takes at least, on a chip whose every unit is as busy as it can be all the time.

Three rates bound any program: products of the cube, bytes through the vector unit, bytes over DDR; and so does the
time until the first of it can begin and the last is over. What is counted is what no program can leave out, so a bound
may be far below what is possible, but never above it:

- multiply-accumulates of products, padding not among them, at the peak of all cores for their type;
- one pass of the vector unit for what only it can do (`compiler.report.model_bounds` says what that is), at the width
  of all cores, one cycle per repeat;
- bytes of DDR that must be moved: what comes in, once, and what goes out, once;
- the way from DDR and back, and the steps of a recurrence between them, of which each needs the one before.

Nothing here reads what the compiler makes: no IR of its own, no tile, no cost, no instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from compiler.report.windows import Axis, Window, outputs
from compiler.target.chip import Chip

ITEM_BYTES = {
    "fp32": 4, "float32": 4, "fp16": 2, "float16": 2, "bf16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 4, "uint64": 4, "fp64": 4, "float64": 4, "double": 4,
}  # fmt: skip  # the chips have no type of 64 bits: what has one in ONNX has 32 bits there


@dataclass(frozen=True)
class Bound:
    """Cycles that each of the four needs by itself; no program needs fewer than the most of them."""

    cube_cycles: int
    vector_cycles: int
    ddr_cycles: int
    latency_cycles: int = 0

    @property
    def cycles(self) -> int:
        return max(self._each.values())

    @property
    def of_rates(self) -> int:
        """By rates alone: as if all could begin at once."""
        return max(self.cube_cycles, self.vector_cycles, self.ddr_cycles)

    @property
    def by(self) -> str:
        """Which of them is the bound: "ddr", "cube", "vector" or "latency"."""
        return max(self._each, key=self._each.__getitem__)

    @property
    def _each(self) -> dict[str, int]:
        return {
            "ddr": self.ddr_cycles,
            "cube": self.cube_cycles,
            "vector": self.vector_cycles,
            "latency": self.latency_cycles,
        }


@dataclass(frozen=True)
class Recurrence:
    """Steps of which each needs all of the one before, and what one after the other has to be done in each.

    ``rounds`` are products and functions of one row, as numbers of multiply-accumulates or elements. No instruction
    does two of them.
    """

    steps: int = 0
    rounds: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        return self.steps * len(self.rounds)

    def cycles(self, chip: Chip) -> int:
        """One core goes from round to round by an instruction of the vector unit or the cube, or element by element in
        its scalar unit. Where several share a step, they tell each other what they have made of it.
        """
        vector = chip.vector.head_cycles + chip.vector.tail_cycles
        cube = chip.cube.overhead_cycles + _least(chip, "l0c_")
        alone = sum(min(vector, cube, elements * chip.scalar.issue_cycles) for elements in self.rounds)
        return self.steps * min(alone, _told(chip))


@dataclass(frozen=True)
class Work:
    """What cannot be left out. Products are counted by the type of their operands.

    ``there_and_back``: something comes from DDR, and what is made of it goes there.
    """

    macs: Mapping[str, int] = field(default_factory=dict)
    vector_bytes: int = 0
    ddr_bytes: int = 0
    recurrence: Recurrence = Recurrence()
    there_and_back: bool = False

    def __add__(self, other: Work) -> Work:
        macs = {dtype: self.macs.get(dtype, 0) + other.macs.get(dtype, 0) for dtype in {**self.macs, **other.macs}}
        return Work(
            macs,
            self.vector_bytes + other.vector_bytes,
            self.ddr_bytes + other.ddr_bytes,
            max(self.recurrence, other.recurrence, key=lambda each: each.length),
            self.there_and_back or other.there_and_back,
        )

    def bound(self, chip: Chip) -> Bound:
        """Products that the cube does not do are the vector unit's: one multiply-accumulate per lane."""
        cube_cycles, vector_bytes = 0.0, self.vector_bytes
        for dtype, count in self.macs.items():
            if chip.multiplies(_cube_type(dtype)):
                cube_cycles += count / (chip.macs_per_cycle(_cube_type(dtype)) * chip.cores)
            else:
                vector_bytes += count * ITEM_BYTES[dtype]
        return Bound(
            _whole(cube_cycles),
            _ceil(vector_bytes, chip.vector.bytes_per_cycle * chip.cores),
            _ceil(self.ddr_bytes * 1000, chip.bandwidth.ddr_bytes_per_kilocycle),
            self.recurrence.cycles(chip) + (_there_and_back(chip) if self.there_and_back else 0),
        )


def _there_and_back(chip: Chip) -> int:
    far = chip.scalar.memory_far_cycles
    return min(far, _least(chip, "ddr_")) + min(far, _least(chip, to="_ddr"))


def _told(chip: Chip) -> int:
    """Until a core knows what another one has made: by LLB or DDR."""
    far = chip.scalar.memory_far_cycles
    leaves = min(far, *(_least(chip, to=f"_{memory}") for memory in ("llb", "ddr")))
    return leaves + min(far, *(_least(chip, f"{memory}_") for memory in ("llb", "ddr")))


def _least(chip: Chip, source: str = "", to: str = "") -> int:
    """Cycles that a copy takes by such a path, from its start to its result."""
    found = [p.issue_cycles + p.latency_cycles for n, p in chip.path.items() if n.startswith(source) and n.endswith(to)]
    return min(found, default=0)


def bound(chip: Chip, *, macs: int = 0, dtype: str = "fp16", vector_bytes: int = 0, ddr_bytes: int = 0) -> Bound:
    return Work({dtype: macs}, vector_bytes, ddr_bytes).bound(chip)


# ---- single operators: inputs come from DDR once, results go there once --------------------------------------------


def product_bound(
    chip: Chip,
    m: int,
    k: int,
    n: int,
    *,
    batch: int = 1,
    dtype: str = "fp16",
    shared_weights: bool = False,
) -> Bound:
    """``[batch, m, k] x [batch, k, n]``; with ``shared_weights`` the right one is ``[k, n]``."""
    read = (batch * m * k + (1 if shared_weights else batch) * k * n) * ITEM_BYTES[dtype]
    written = batch * m * n * ITEM_BYTES[dtype]
    return bound(chip, macs=batch * m * k * n, dtype=dtype, ddr_bytes=read + written)


def convolution_bound(
    chip: Chip,
    data: Sequence[int],
    weights: Sequence[int],
    *,
    strides: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilations: Sequence[int] = (),
    dtype: str = "fp16",
) -> Bound:
    """``data`` is [n, c, ...], ``weights`` [out, c / groups, ...]; the other words are those of ONNX."""
    window = _window(data[2:], weights[2:], strides, pads, dilations)
    results = data[0] * weights[0]
    read = data[0] * data[1] * window.touched + prod(weights)
    written = results * prod(axis.outputs for axis in window.axes)
    return bound(
        chip, macs=results * weights[1] * window.taps, dtype=dtype, ddr_bytes=(read + written) * ITEM_BYTES[dtype]
    )


def attention_bound(
    chip: Chip,
    queries: int,
    keys: int,
    depth: int,
    *,
    batch: int = 1,
    dtype: str = "fp16",
) -> Bound:
    """``softmax(Q K^T) V`` of ``batch`` heads in one kernel: the scores need no DDR, their exponentials a pass."""
    return bound(
        chip,
        macs=batch * queries * keys * 2 * depth,
        dtype=dtype,
        vector_bytes=batch * queries * keys * ITEM_BYTES[dtype],
        ddr_bytes=batch * (queries + keys) * 2 * depth * ITEM_BYTES[dtype],
    )


def normalization_bound(chip: Chip, shape: Sequence[int], *, parameters: int = 0, dtype: str = "fp16") -> Bound:
    """``parameters``: the elements of scale and shift."""
    size = prod(shape) * ITEM_BYTES[dtype]
    return bound(chip, vector_bytes=size, ddr_bytes=2 * size + parameters * ITEM_BYTES[dtype])


def elementwise_bound(chip: Chip, shape: Sequence[int], *, inputs: int = 1, dtype: str = "fp16") -> Bound:
    """One pass over as many inputs of this shape; for what the cube or FIX might do see `move_bound`."""
    size = prod(shape) * ITEM_BYTES[dtype]
    return bound(chip, vector_bytes=size, ddr_bytes=(inputs + 1) * size)


def reduction_bound(chip: Chip, shape: Sequence[int], results: int, *, dtype: str = "fp16") -> Bound:
    """n elements take n - 1 steps to become one, whatever takes them."""
    size = prod(shape)
    item = ITEM_BYTES[dtype]
    return bound(chip, vector_bytes=max(0, size - results) * item, ddr_bytes=(size + results) * item)


def move_bound(chip: Chip, read: int, written: int, *, dtype: str = "fp16") -> Bound:
    """Transposes, slices, copies: elements in and elements out."""
    return bound(chip, ddr_bytes=(read + written) * ITEM_BYTES[dtype])


def _window(
    sizes: Sequence[int], kernels: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> Window:
    rank = len(sizes)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads = pads or (0,) * (2 * rank)
    made = [outputs(sizes[i], kernels[i], strides[i], pads[i] + pads[rank + i], dilations[i]) for i in range(rank)]
    return Window(tuple(Axis(sizes[i], kernels[i], strides[i], pads[i], dilations[i], made[i]) for i in range(rank)))


# ---- numbers --------------------------------------------------------------------------------------------------------


def _cube_type(dtype: str) -> str:
    """The cube multiplies unsigned bytes as it does signed ones."""
    return "int8" if dtype == "uint8" else dtype


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _whole(cycles: float) -> int:
    """Rounded up, unless the part of a cycle is no more than rounding."""
    return int(np.ceil(cycles * (1 - 1e-12)))
