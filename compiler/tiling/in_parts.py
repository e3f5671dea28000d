"""One operator as several kernels, each of which has all cores: what they are, and how a function becomes several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, s_tir, tirx

from compiler.tir.near import TOLD
from compiler.tir.structure import structural_walk


@dataclass(frozen=True)
class Part:
    """A kernel: its function, and what it is given and makes.

    ``arguments`` are numbers of the operator's parameters, and behind these of the buffers between.
    """

    func: Any
    schedule: str
    arguments: tuple[int, ...]
    what: str  # part of the operator it is
    share: str = ""  # what reports call it by, beside the operator


@dataclass(frozen=True)
class InParts:
    """The kernels in order, and the buffers between them."""

    between: tuple[Any, ...]
    parts: tuple[Part, ...]


def function(func: Any, params: Sequence[Any], nests: Sequence[Any], buffers: Sequence[Any]) -> Any:
    """Some nests of a function, as a function of its own, which nobody told yet where its parameters lie."""
    body = tirx.SeqStmt(list(nests)) if len(nests) > 1 else nests[0]
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=list(buffers))
    made = tirx.PrimFunc(list(params), s_tir.SBlockRealize([], True, root))
    attributes = func.attrs.items() if func.attrs else ()
    kept = {key: value for key, value in attributes if key not in TOLD and not key.startswith("tw.")}
    return s_tir.renew_defs(made.with_attrs(kept))


def reads(node: Any, buffer: Any) -> bool:
    found: list[bool] = []
    structural_walk(node, (ir.TensorLoad, lambda load: found.append(load.source.same_as(buffer))))
    return any(found)


def stores(node: Any, buffer: Any) -> bool:
    found: list[bool] = []
    structural_walk(node, (tirx.BufferStore, lambda store: found.append(store.buffer.same_as(buffer))))
    return any(found)


def mentions(node: Any, buffer: Any) -> bool:
    return reads(node, buffer) or stores(node, buffer)
