"""Host kernels: functions of TVM's that are kept as the JSON of their IR and compiled for this machine when needed.

TVM reads JSON into any object its types allow, and compiles what it is told to: only for artifacts that are trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

import patches
from compiler.errors import CorruptError, InvalidError, Problem
from compiler.runtime.model import HostSegment


class HostFunction:
    """A host segment; its function is compiled when it is needed first."""

    def __init__(self, segment: HostSegment) -> None:
        self.segment = segment

    def set_up(self) -> None:
        """Compile it now."""
        self._compiled  # noqa: B018  the property keeps what it makes

    @cached_property
    def _compiled(self) -> tuple[Any, list[tuple[str, tuple[int, ...]]]]:
        """What to call, and (dtype, shape) of each of its parameters."""
        import tvm
        from tvm import tirx

        patches.apply()
        try:
            function: Any = tvm.ir.load_json(self.segment.function)
            if not isinstance(function, tirx.PrimFunc) or len(function.params) != len(self.segment.arguments):
                raise TypeError(f"no function of {len(self.segment.arguments)} parameters")
            types = [(str(p.dtype), tuple(int(n) for n in p.shape)) for p in function.params]
            named = function.with_attr("global_symbol", "main")
            return tvm.compile(tvm.IRModule({"main": named}), target="llvm")["main"], types
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            text = f"host kernel {self.segment.name} cannot be compiled: {str(error).partition(chr(10))[0][:200]}"
            raise CorruptError(Problem("TW1605", text)) from error

    def run(self, buffers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the function writes, by buffer."""
        from tvm import runtime

        call, types = self._compiled
        arguments = []
        for name, (dtype, shape) in zip(self.segment.arguments, types, strict=True):
            if name in self.segment.written:
                arguments.append(runtime.empty(shape, dtype))
            else:
                arguments.append(runtime.tensor(self._as_parameter(name, buffers[name], dtype, shape)))
        call(*arguments)
        results = dict(zip(self.segment.arguments, arguments, strict=True))
        return {name: _as_buffer(results[name].numpy()) for name in self.segment.written}

    def _as_parameter(self, name: str, array: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """A view of a tensor may have another shape than the buffer, but no other bytes."""
        content = array.view(np.bool_) if dtype == "bool" else array
        if str(content.dtype) != dtype or content.size != prod(shape):
            text = f"host kernel {self.segment.name} wants {dtype} {list(shape)} in {name}"
            raise InvalidError(Problem("TW1606", f"{text}; it has {content.dtype} {list(content.shape)}"))
        return content.reshape(shape)


def _as_buffer(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8) if array.dtype == np.bool_ else array


def to_json(function: Any) -> str:
    """A PrimFunc as `tvm.ir.load_json` reads it."""
    import tvm

    patches.apply()
    return str(tvm.ir.save_json(function))
