"""Swin: attention within windows that shift from block to block, patches that merge, Liu et al., arXiv 2103.14030."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models import initial
from models.attention import attended, feed_forward, patches
from models.graph import Graph
from models.layers import convolution, layer_norm, linear

BLOCKED = -100.0


def swin(
    graph: Graph, image: str, *, width: int = 32, depths: Sequence[int] = (2, 2), heads: Sequence[int] = (2, 4),
    window: int = 4, classes: int = 100,
) -> dict[str, str]:  # fmt: skip
    batch, channels, height, _ = graph.shape(image)
    side = height // 4
    x = convolution(graph, "embed", image, (channels, width), 4, stride=4, padding=0, bias=True, gain=initial.LINEAR)
    x = layer_norm(graph, "embed.norm", patches(graph, x, batch, width, side * side), width)
    for stage, (depth, count) in enumerate(zip(depths, heads, strict=True)):
        with graph.scope(f"layers.{stage}"):
            if stage:
                x, side, width = _merged(graph, x, (batch, side, width)), side // 2, 2 * width
            for index in range(depth):
                shift = window // 2 if index % 2 and side > window else 0
                with graph.scope(f"blocks.{index}"):
                    x = _block(graph, x, (batch, side, width), count, window, shift)
    x = graph.op("ReduceMean", layer_norm(graph, "norm", x, width), axes=[1], keepdims=0)
    return {"logits": linear(graph, "head", x, (width, classes), gemm=True, gain=float(side))}


def _merged(graph: Graph, x: str, sizes: tuple[int, int, int]) -> str:
    """Four neighbours side by side, normalised, and projected to twice the width."""
    batch, side, width = sizes
    grid = graph.op("Reshape", x, [batch, side // 2, 2, side // 2, 2, width])
    grid = graph.op("Transpose", grid, perm=[0, 1, 3, 4, 2, 5])
    rows = graph.op("Reshape", grid, [batch, side * side // 4, 4 * width])
    return linear(graph, "reduction", layer_norm(graph, "merge.norm", rows, 4 * width), (4 * width, 2 * width))


def _block(graph: Graph, x: str, sizes: tuple[int, int, int], heads: int, window: int, shift: int) -> str:
    batch, side, width = sizes
    count, area = side // window, window * window
    normal = graph.op("Reshape", layer_norm(graph, "norm1", x, width), [batch, side, side, width])
    normal = _rolled(graph, normal, shift)
    cut = graph.op("Reshape", normal, [batch, count, window, count, window, width])
    cut = graph.op("Reshape", graph.op("Transpose", cut, perm=[0, 1, 3, 2, 4, 5]), [-1, area, width])
    with graph.scope("attn"):
        cut = _attention(graph, cut, (batch * count * count, area, width), heads, _mask(side, window, shift, batch))
    grid = graph.op("Reshape", cut, [batch, count, count, window, window, width])
    grid = graph.op("Reshape", graph.op("Transpose", grid, perm=[0, 1, 3, 2, 4, 5]), [batch, side, side, width])
    grid = _rolled(graph, grid, -shift)
    x = graph.op("Add", x, graph.op("Reshape", grid, [batch, side * side, width]))
    return graph.op("Add", x, feed_forward(graph, "mlp", layer_norm(graph, "norm2", x, width), width, 4 * width))


def _attention(graph: Graph, x: str, sizes: tuple[int, int, int], heads: int, mask: np.ndarray | None) -> str:
    _, area, width = sizes
    size = width // heads
    joined = graph.op("Reshape", linear(graph, "qkv", x, (width, 3 * width)), [-1, area, 3, heads, size])
    joined = graph.op("Transpose", joined, perm=[2, 0, 3, 1, 4])
    query, key, value = (graph.op("Gather", joined, part, axis=0) for part in range(3))
    table = graph.rng("relative").standard_normal((1, heads, area, area), dtype=np.float32)
    bias = graph.weight("relative", table * np.float32(0.5))
    added: str = bias if mask is None else graph.op("Add", bias, mask)
    return linear(
        graph, "proj", attended(graph, query, key, value, width, size=size, mask=added), (width, width), gain=2.0
    )


def _rolled(graph: Graph, x: str, shift: int) -> str:
    """torch.roll by -shift along both axes: two slices, the other way round."""
    for axis in (1, 2) if shift else ():
        first = graph.op("Slice", x, [shift], [2**31 - 1], [axis])
        second = graph.op("Slice", x, [0], [shift], [axis])
        x = graph.op("Concat", first, second, axis=axis)
    return x


def _mask(side: int, window: int, shift: int, batch: int) -> np.ndarray | None:
    """Pixels that a shift brought together from opposite borders do not see each other."""
    if not shift:
        return None
    bands = np.searchsorted([side - window, side - shift], np.arange(side), side="right")
    regions = bands[:, None] * 3 + bands[None]
    count = side // window
    cut = regions.reshape(count, window, count, window).transpose(0, 2, 1, 3).reshape(-1, window * window)
    blocked = np.where(cut[:, None, :] != cut[:, :, None], BLOCKED, 0.0).astype(np.float32)
    return np.tile(blocked, (batch, 1, 1))[:, None]
