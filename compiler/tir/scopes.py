"""How TIR's storage scopes and element types are called in the instruction set, and how many bytes an element has."""

from __future__ import annotations

from functools import cache
from typing import Any

from compiler.isa.timing import ceil_div

MEMORY_OF_SCOPE: dict[str, str] = {
    "": "ddr",
    "global": "ddr",
    "shared.llb": "llb",
    "shared.l1": "l1",
    "local.l0a": "l0a",
    "local.l0b": "l0b",
    "local.l0c": "l0c",
    "local.ub": "ub",
    "local.bt": "bt",
    "local.fb": "fb",
}

ISA_DTYPE: dict[str, str] = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int8": "int8",
    "uint8": "uint8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
}

TIR_DTYPE: dict[str, str] = {isa: tir for tir, isa in ISA_DTYPE.items()}


def itemsize(dtype: Any) -> int:
    """The bytes of an element."""

    return _itemsize(str(dtype))


@cache
def _itemsize(dtype: str) -> int:
    from tvm.runtime import DataType  # whoever only asks how things are called needs no TVM

    return ceil_div(DataType(dtype).bits, 8)
