"""Tilewright: a compiler for tiled AI accelerators, and the machine it compiles for.

``compile`` makes an Artifact of an ONNX model, ``load`` makes one ready to be run. Importing this package costs
nothing: each part imports what it needs when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler.api import Artifact, compile, load

__version__ = "0.1.0"
__all__ = ["Artifact", "__version__", "compile", "load"]


def __getattr__(name: str) -> Any:
    if name in ("Artifact", "compile", "load"):
        from compiler import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
