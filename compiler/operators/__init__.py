"""Operators: what a tensor computation is in TE, declared once by one decorator, the project's and a user's alike.

Importing this package imports no TVM: the modules that declare operators are loaded when one is first looked up.
"""

from compiler.operators.graph import Graph, Value
from compiler.operators.loading import load_operators
from compiler.operators.registry import (
    Declared,
    TensorType,
    all_operators,
    composition,
    find,
    find_called,
    load_builtins,
    operator,
)
from compiler.operators.signature import Constant

__all__ = [
    "Constant",
    "Declared",
    "Graph",
    "TensorType",
    "Value",
    "all_operators",
    "composition",
    "find",
    "find_called",
    "load_builtins",
    "load_operators",
    "operator",
]
