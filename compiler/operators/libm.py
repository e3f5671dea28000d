"""Where TVM's CPU code generator has no function, or has it only in float32: the C library's, computed in float32.

Host kernels and tests need them; loading the built-in operators registers them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.op import register_intrin_lowering

FUNCTIONS = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erf", "fmod", "log1p", "sinh")
_ABOVE_TVMS_OWN = 11


def _lowering(name: str) -> Callable[[Any], Any]:
    def lower(call: Any) -> Any:
        arguments = [tirx.Cast("float32", argument) for argument in call.args]
        return tirx.Cast(str(call.ty.dtype), tirx.call_pure_extern("float32", f"{name}f", *arguments))

    return lower


for _name in FUNCTIONS:
    register_intrin_lowering(f"tirx.{_name}", target="llvm", f=_lowering(_name), level=_ABOVE_TVMS_OWN)
