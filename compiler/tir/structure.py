"""Walks over TVM's nodes: `structural_walk` and `structural_map` as in tvm_ffi, without what each call costs there.

TVM works out anew in every call what its callbacks' types are: five times what a walk over an index takes, and a
compilation makes hundreds of thousands of them. The types are few, and are looked up once here.

What many passes ask of the same node is :func:`answered_once`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any, TypeVar

import tvm_ffi
from tvm_ffi.core import TypeSchema

# A callback with the kind or kinds of nodes that it is called for; one alone is called for all.
Callback = Callable[..., Any]
Callbacks = tuple[Any, Callback] | Sequence[tuple[Any, Callback]] | Callback

Answer = TypeVar("Answer")

MOST_ANSWERS = 1 << 14  # of one question that are remembered

_WALK: Any = tvm_ffi.get_global_func("ffi.StructuralWalk")
_MAP: Any = tvm_ffi.get_global_func("ffi.StructuralMap")
_ORDERS = {"pre": int(tvm_ffi.WalkOrder.PREORDER), "post": int(tvm_ffi.WalkOrder.POSTORDER)}
_NONE: tuple[()] = ()  # callbacks that are told in what region of definitions a node is


def structural_walk(root: Any, callbacks: Callbacks, order: str = "post") -> Any | None:
    """Call for every node the first callback of its kind; the VisitInterrupt that one returned, or None."""
    return _WALK(root, _entries(callbacks), _NONE, _ORDERS[order])


def structural_map(root: Any, callbacks: Callbacks, order: str = "post") -> Any:
    """The root with every node replaced by what the first callback of its kind makes of it."""
    return _MAP(root, _entries(callbacks), _NONE, _ORDERS[order])


def _entries(callbacks: Any) -> list[tuple[int, Callback]]:
    if isinstance(callbacks, tuple):
        kinds, callback = callbacks
        return [(index, callback) for index in _type_indices(kinds)]
    if isinstance(callbacks, list):
        return [(index, callback) for kinds, callback in callbacks for index in _type_indices(kinds)]
    return [(index, callbacks) for index in _type_indices(Any)]


@cache
def _type_indices(kinds: Any) -> tuple[int, ...]:
    """The numbers by which TVM knows types of nodes."""
    each = kinds if isinstance(kinds, tuple) else (kinds,)
    return tuple(TypeSchema.from_annotation(kind).origin_type_index for kind in each)


def answered_once(question: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """A question about one node, which never changes, asked once by all who walk the kernel.

    Nodes are known by their address: they stay alive as long as their answer does, so no other can have it.
    """
    answers: dict[int, tuple[Any, Answer]] = {}

    @wraps(question)
    def answer(node: Any) -> Answer:
        found = answers.get(hash(node))
        if found is None:
            if len(answers) == MOST_ANSWERS:
                answers.clear()
            found = answers[hash(node)] = node, question(node)
        return found[1]

    return answer
