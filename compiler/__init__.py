"""Tilewright: a compiler for tiled AI accelerators, and the machine it compiles for.

``compile`` makes an Artifact of an ONNX model, ``load`` makes one ready to be run; ``operator`` and ``composition``
declare operators of your own. Importing this package costs nothing: each part imports what it needs when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler.api import Artifact, compile, compile_operator, load
    from compiler.operators import Constant, composition, load_operators, operator

__version__ = "0.1.0"
__all__ = [
    "Artifact",
    "Constant",
    "__version__",
    "compile",
    "compile_operator",
    "composition",
    "load",
    "load_operators",
    "operator",
]


def __getattr__(name: str) -> Any:
    if name in ("Artifact", "compile", "compile_operator", "load"):
        from compiler import api

        return getattr(api, name)
    if name in ("Constant", "composition", "load_operators", "operator"):
        from compiler import operators

        return getattr(operators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
