"""Which kernels of a model hold a node."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any

from compiler import pipeline
from compiler.driver import plan
from compiler.errors import Problem, UnsupportedError, UsageError
from compiler.frontend import load_model
from compiler.frontend.naming import node_name, operator_name, quoted
from compiler.kernel_uses import Use
from compiler.kernels import NoRoadLeft
from compiler.model_kernels import ModelKernels
from compiler.options import Options
from compiler.target import Chip

# Names that are compared with one that is not found: comparing takes time by the product of their lengths.
_COMPARED_NAMES, _COMPARED_LENGTH = 5_000, 200


@dataclass(frozen=True)
class Lookup:
    """The uses of kernels that hold what was asked for; where there is none, why."""

    uses: tuple[Use, ...]
    why_none: str = ""


def lookup(kernels: ModelKernels, source: str | os.PathLike[str] | bytes, wanted: str) -> Lookup:
    """The kernels that hold a node, by its name or one of its outputs', or all nodes of an operator.

    An inner node is called ``outer/inner``, and its outer node is in all kernels that its inner nodes are in. Raises
    UsageError, with names that are near, where the model has nothing of that name.
    """
    proto: Any = load_model(source).proto
    nodes = {node_name(node): node for node in proto.graph.node}
    compiled = {node for found in kernels.imported.nodes.values() for node in found}
    for names in _meanings(wanted, nodes):
        found = tuple(use for use in kernels.uses() if any(_is_in(name, kernels.nodes(use)) for name in names))
        if found:
            return Lookup(found)
        if any(_is_in(name, compiled) for name in names):
            return Lookup((), f"{quoted(wanted)} needs no kernel: its result lies in memory already, in another shape")
        if any(name in nodes for name in names):
            text = "needs no kernel: it is computed when the model is compiled, or nothing needs its result"
            return Lookup((), f"{quoted(wanted)} {text}")
    raise _unknown(wanted, [*nodes, *compiled, *(operator_name(node) for node in nodes.values())])


def _meanings(wanted: str, nodes: dict[str, Any]) -> Iterable[set[str]]:
    """The sets of nodes that a word can mean, the likeliest first."""
    yield {wanted}
    yield {name for name, node in nodes.items() if wanted in node.output}
    yield {name for name, node in nodes.items() if wanted in (node.op_type, operator_name(node))}


def _is_in(name: str, nodes: Iterable[str]) -> bool:
    return any(node == name or node.startswith(f"{name}/") for node in nodes)


def _unknown(wanted: str, names: Iterable[str]) -> UsageError:
    compared = islice((name for name in dict.fromkeys(names) if len(name) <= _COMPARED_LENGTH), _COMPARED_NAMES)
    near = get_close_matches(wanted[:_COMPARED_LENGTH], compared, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(quoted, near))}?" if near else "`tilewright compile --kernels` lists nodes"
    return UsageError(Problem("TW0024", f"the model has no node or operator {quoted(wanted)}", hint=hint))


def stopped(
    source: str | os.PathLike[str] | bytes,
    chip: Chip,
    options: Options,
    observer: pipeline.Observer,
    node: str | None = None,
) -> pipeline.Stopped:
    """What the observer's last pass makes of the first kernel, or of the first that holds ``node``."""
    try:
        kernels = plan(source, chip, options, observer)
        found = Lookup(tuple(kernels.uses())) if node is None else lookup(kernels, source, node)
        if not found.uses:
            raise UsageError(Problem("TW0025", found.why_none or "the model needs no kernel"))
        _compile(kernels, found.uses[0], observer)
    except pipeline.Stopped as reached:
        return reached
    text = f"no attempt at this kernel comes as far as {observer.stop_after}"
    raise UnsupportedError(Problem("TW0026", text, hint="`tilewright explain` shows what was tried"))


def _compile(kernels: ModelKernels, use: Use, observer: pipeline.Observer) -> None:
    """As the driver does it: what cannot be one kernel is taken apart."""
    job = use.job
    try:
        job.compiled(kernels.chip, observer)
    except NoRoadLeft:
        for part in kernels.apart(use) if use.group is not None else ():
            _compile(kernels, part, observer)
