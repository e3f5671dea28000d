"""Orders of a graph's nodes: one in which they can be computed, and which of them anybody asks for."""

from __future__ import annotations

from collections import deque

import onnx

from compiler.frontend.attributes import graphs_of
from compiler.frontend.naming import node_name


def captured(node: onnx.NodeProto) -> list[str]:
    """The names that the graphs inside a node take from around it."""
    graphs = [graph for _, graph in graphs_of(node)]
    if not graphs:
        return []
    taken: dict[str, None] = {}
    waiting: list[tuple[onnx.GraphProto, frozenset[str]]] = [(graph, frozenset()) for graph in graphs]
    while waiting:
        graph, outer = waiting.pop()
        made = {info.name for info in graph.input}
        made |= {tensor.name for tensor in graph.initializer}
        made |= {tensor.values.name for tensor in graph.sparse_initializer}
        made |= {name for inner in graph.node for name in inner.output}
        known = outer | made
        for inner in graph.node:
            taken.update((name, None) for name in inner.input if name and name not in known)
            waiting += [(deeper, known) for _, deeper in graphs_of(inner)]
        taken.update((info.name, None) for info in graph.output if info.name not in known)
    return list(taken)


def sort_nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> tuple[bool, list[str]]:
    """Put the nodes into an order in which each follows what it needs; in place, and stable.

    Answers whether anything had to move and, where there is no such order, the names of the nodes of one cycle.
    """
    maker = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    needs = [sorted({maker[name] for name in (*node.input, *captured(node)) if name in maker}) for node in graph.node]
    if all(not before or before[-1] < at for at, before in enumerate(needs)):
        return False, []
    users: list[list[int]] = [[] for _ in needs]
    missing = [len(before) for before in needs]
    for at, before in enumerate(needs):
        for other in before:
            users[other].append(at)
    ready = deque(at for at, count in enumerate(missing) if not count)
    order: list[int] = []
    while ready:
        order.append(ready.popleft())
        for user in users[order[-1]]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    if len(order) < len(needs):
        return False, _cycle(graph, needs, {at for at, count in enumerate(missing) if count})
    nodes = [graph.node[at] for at in order]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    return True, []


def _cycle(graph: onnx.GraphProto | onnx.FunctionProto, needs: list[list[int]], stuck: set[int]) -> list[str]:
    """From a node that cannot be computed, back along what it waits for until a node comes twice."""
    at = min(stuck)
    path: list[int] = []
    seen: dict[int, int] = {}
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = next(before for before in needs[at] if before in stuck)
    names = [node_name(graph.node[at]) for at in reversed(path[seen[at] :])]
    return [*names, names[0]] if len(names) <= 8 else [*names[:4], "...", *names[-3:], names[0]]


def needed_nodes(graph: onnx.GraphProto | onnx.FunctionProto, wanted: set[str]) -> list[int]:
    """The nodes that ``wanted`` names depend on, in the graph's order, which must be one that can be computed."""
    wanted = set(wanted)
    chosen: list[int] = []
    for at in range(len(graph.node) - 1, -1, -1):
        node = graph.node[at]
        if any(name in wanted for name in node.output):
            chosen.append(at)
            wanted.update(node.input)
            wanted.update(captured(node))
    chosen.reverse()
    return chosen
