"""TVM's code for this machine's CPU, where it is no part of what is tested."""

from __future__ import annotations

from typing import Any

import tvm

_TARGET = {"kind": "llvm", "opt-level": 0, "cl-opt": ["-fast-isel:bool=1"]}
"""What computes few elements once need not be optimised, which takes five times as long."""


def for_host(module: Any) -> Any:
    """Of an IRModule or a PrimFunc. It does not look whether arguments are those it was made for: looking is half of
    the code, which is compiled anew for each of thousands of functions.
    """
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        return tvm.compile(module, target=tvm.target.Target(_TARGET))
