"""Counter-based random numbers: element i depends on (seed, counter + i) only, i counting in row-major order.

The generator is splitmix64's finaliser over ``seed << 32 | counter + i`` (both 32 bits wide), so that any tile of a
random tensor can be made by any core, in any order, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import FLOATS, INTS, Queue
from compiler.isa.model import RANK, Args, Float, Int, Operand, Row, Shape, Tensor, dtype_modifier
from compiler.isa.table import vector_costs as cost
from compiler.isa.table.rules import VECTOR_RULES, destination_strides_differ
from compiler.isa.table.vector_operands import elements
from compiler.isa.timing import vector_timing

_MANTISSA_BITS = {"fp32": 24, "fp16": 11, "bf16": 8}


def _hashed(args: Args, lane: int = 0) -> Any:
    """64 random bits per element; ``lane`` tells several draws for one element apart."""
    counter = (np.arange(elements(args), dtype=np.uint64) + np.uint64(args.counter & 0xFFFFFFFF)) & np.uint64(
        0xFFFFFFFF
    )
    x = (counter | np.uint64((args.seed & 0xFFFFFFFF) << 32)) * np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(lane * 0xD1B54A32D192ED03 & 0xFFFFFFFFFFFFFFFF)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return (x ^ x >> np.uint64(31)).reshape(args.shape)


def _unit(bits: Any, width: int) -> Any:
    """Uniform in [0, 1) with ``width`` bits, so that rounding to the destination never gives 1."""
    return (bits >> np.uint64(64 - width)).astype(np.float32) * np.float32(2.0**-width)


def _uniform(args: Args) -> Any:
    return _unit(_hashed(args), _MANTISSA_BITS[args.dtype])


def _integers(args: Args) -> Any:
    span = min(max(args.high - args.low, 1), 2**32)
    offset = (_hashed(args) >> np.uint64(32)) * np.uint64(span) >> np.uint64(32)
    return args.low + offset.astype(np.int64)


def _normal(args: Args) -> Any:
    radius = np.sqrt(-2 * np.log(1 - _unit(_hashed(args), 24)))
    return radius * np.cos(np.float32(2 * np.pi) * _unit(_hashed(args, 1), 24))


def _dropped(args: Args, a: Any) -> Any:
    keep = np.float32(args.keep)
    return np.where(_unit(_hashed(args), 24) < keep, a / keep, np.float32(0))


def _random(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    dtypes: tuple[str, ...] = FLOATS,
    sources: tuple[Tensor, ...] = (),
    parameters: tuple[Operand, ...] = (),
    cycles: int = cost.RANDOM,
) -> Row:
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(Tensor("dst", "w"), *sources, Int("seed"), Int("counter"), *parameters, Shape()),
        modifiers=(dtype_modifier(*dtypes), RANK),
        rules=VECTOR_RULES if sources else (destination_strides_differ,),
        semantics=function,
        timing=lambda args: vector_timing(args, cycles),
    )


ROWS = [
    _random(960, "vrand", _uniform, "dst = uniform in [0, 1)"),
    _random(
        961, "vrandi", _integers, "dst = uniform in low .. high - 1; low where that is empty; low bits that fit", INTS,
        parameters=(Int("low"), Int("high")),
    ),
    _random(
        962, "vrandn", _normal, "dst = normal with mean 0 and deviation 1",
        cycles=2 * cost.RANDOM + cost.EXP + cost.SQRT + cost.TRIGONOMETRIC,
    ),
    _random(
        963, "vdropout", _dropped, "dst = a / keep with probability keep, else 0", sources=(Tensor("a", "r"),),
        parameters=(Float("keep"),), cycles=cost.RANDOM + cost.DIVIDE + cost.SELECT,
    ),
]  # fmt: skip
