"""A profile by ONNX node, for viewers of graphs that colour nodes by what a file beside the model says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compiler.report.layers import Layer
from compiler.report.profile import Profile

SCHEMA_VERSION = 1


def overlay(profile: Profile, names: Iterable[str] = ()) -> dict[str, Any]:
    """``names`` are all nodes of the model; those that no kernel computes are told from those that one does."""
    nodes: dict[str, dict[str, Any]] = {name: _none() for name in names}
    on_chip = {kernel for layer in profile.layers for kernel in layer.kernels}
    reasons = {segment.name: segment.reason for segment in profile.host_kernels}
    for kernel, computed in profile.model.kernels:
        if kernel not in on_chip:
            nodes |= {node: {**_none(), "placement": "host", "reason": reasons.get("+".join(computed), "")}
                      for node in computed}  # fmt: skip
    for layer in profile.layers:
        nodes |= {node: _of(layer, node) for node in layer.nodes}
    return {
        "schema_version": SCHEMA_VERSION,
        "model": profile.model.name,
        "chip": profile.chip.name,
        "cycles": profile.cycles,
        "nodes": nodes,
    }


def _of(layer: Layer, node: str) -> dict[str, Any]:
    return {
        "placement": "chip",
        "reason": "",
        "cycles": layer.cycles,
        "share": layer.share,
        "together_with": [other for other in layer.nodes if other != node],
        "bound_by": layer.limit,
        "bound_by_share": layer.limit_share,
        "ratio": layer.ratio,
        "ddr_bytes": layer.ddr_bytes,
        "kernels": list(layer.kernels),
    }


def _none() -> dict[str, Any]:
    """Of a node whose result is known when the model is compiled, or lies in memory already."""
    return {
        "placement": "none",
        "reason": "",
        "cycles": 0,
        "share": 0.0,
        "together_with": [],
        "bound_by": "",
        "bound_by_share": 0.0,
        "ratio": None,
        "ddr_bytes": 0,
        "kernels": [],
    }
