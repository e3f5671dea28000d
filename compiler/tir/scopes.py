"""How TIR's storage scopes and element types are called in the instruction set."""

from __future__ import annotations

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
