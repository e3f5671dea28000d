"""What a composition sees of the graph that it adds to."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class Value(Protocol):
    """A tensor of the graph: its type, and its elements where they are known at compile time."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    @property
    def constant(self) -> np.ndarray[Any, Any] | None: ...


class Graph(Protocol):
    """Where a composition puts its calls; whoever expands compositions implements it."""

    def call(self, name: str, *values: Any, **attributes: Any) -> Any:
        """Call the operator ``name`` (``"domain::Name"`` outside ONNX's own domain).

        An input is a Value, an array (made a constant), or None where an optional one is left out. The answer is what
        the operator's function returns: one Value, or a tuple of them.
        """

    def constant(self, array: np.ndarray[Any, Any]) -> Value: ...

    def wide(self, value: Any) -> Any:
        """A float that is known as fp32: what is added to sums in fp32 need not be rounded before."""
