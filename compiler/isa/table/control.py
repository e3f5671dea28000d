"""Control of the scalar unit: branches, hardware loops, tiling data, system registers, scalar memory access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import SHARED_MEMORIES, Queue
from compiler.isa.model import Args, Dest, Int, Modifier, Row, Target, Tensor, Timing, dtype_modifier

LOOP_DEPTH = 8
SYSTEM_REGISTERS = ("core", "cores", "cluster", "clusters", "core_in_cluster", "cores_per_cluster")


def _branch(opcode: int, mnemonic: str, function: Callable[..., Any], doc: str) -> Row:
    operands = (Int("a"), Int("b"), Target("target"))
    return Row(opcode, mnemonic, Queue.S, doc, operands, kind="branch", semantics=function)


def _scalar_access_timing(args: Args) -> Timing:
    scalar = args.chip.scalar
    return Timing(scalar.memory_far_cycles if args.memory in SHARED_MEMORIES else scalar.memory_cycles)


def _loaded(args: Args, value: np.ndarray) -> int:
    """A register holds an integer as int64 and a float as the bits of an fp32."""
    if args.dtype_of("@dtype").is_float:
        return int(np.float32(value).view(np.int32))
    return int(value)


def _stored(args: Args) -> Any:
    if args.dtype_of("@dtype").is_float:
        return np.uint32(args.value & 0xFFFFFFFF).view(np.float32)
    return np.int64(args.value).astype(args.dtype_of("@dtype").numpy)


def _element(name: str, role: str) -> Tensor:
    return Tensor(name, role, "@memory", extents=lambda args: (), strides="dense")


_WHERE = (
    Modifier("memory", ("ub", "llb", "ddr")),
    dtype_modifier("int8", "uint8", "int16", "int32", "int64", "fp16", "bf16", "fp32"),
)

ROWS = [
    Row(128, "nop", Queue.S, "nothing, for one issue slot", kind="nop"),
    Row(129, "halt", Queue.S, "the core is done once its queues are empty", kind="halt"),
    Row(130, "trap", Queue.S, "stop the run with an error that shows the code", (Int("code"),), kind="trap"),
    Row(131, "jmp", Queue.S, "go to target", (Target("target"),), kind="branch", semantics=lambda a, b: True),
    _branch(132, "beq", lambda a, b: a == b, "go to target where a equals b"),
    _branch(133, "bne", lambda a, b: a != b, "go to target where a differs from b"),
    _branch(134, "blt", lambda a, b: a < b, "go to target where a < b"),
    _branch(135, "ble", lambda a, b: a <= b, "go to target where a <= b"),
    _branch(136, "bgt", lambda a, b: a > b, "go to target where a > b"),
    _branch(137, "bge", lambda a, b: a >= b, "go to target where a >= b"),
    Row(
        138,
        "loop",
        Queue.S,
        "run the instructions up to target `count` times, d counting from zero; none where count is not positive",
        (Dest("d"), Int("count"), Target("target")),
        kind="loop",
    ),
    Row(139, "ldt", Queue.S, "d = word `index` of the tiling data", (Dest("d"), Int("index", 0)), kind="ldt"),
    Row(
        140,
        "getsr",
        Queue.S,
        "d = a system register",
        (Dest("d"),),
        (Modifier("register", SYSTEM_REGISTERS),),
        kind="getsr",
    ),
    Row(
        141,
        "sld",
        Queue.S,
        "d = one element of memory; floats arrive as fp32 bits",
        (Dest("d"), _element("a", "r")),
        _WHERE,
        semantics=_loaded,
        timing=_scalar_access_timing,
        kind="sld",
    ),
    Row(
        142,
        "sst",
        Queue.S,
        "one element of memory = value; floats are given as fp32 bits",
        (_element("dst", "w"), Int("value", -(2**63), 2**63 - 1)),
        _WHERE,
        semantics=_stored,
        timing=_scalar_access_timing,
    ),
    Row(
        143,
        "ldtc",
        Queue.S,
        "d = word `index` of the tiling data for cluster 0, the one behind it for cluster 1, and so on",
        (Dest("d"), Int("index", 0)),
        kind="ldtc",
    ),
]
