"""TVM's code for this machine's CPU, where it is no part of what is tested."""

from __future__ import annotations

from typing import Any

import tvm


def for_host(module: Any) -> Any:
    """Of an IRModule or a PrimFunc. What computes few elements once need not be optimised, which takes five times as
    long.
    """
    return tvm.compile(module, target=tvm.target.Target({"kind": "llvm", "opt-level": 0}))
