"""Convolutions and attention together: MobileViT 2110.02178, PVT 2102.12122, SegFormer 2105.15203, CLIP 2103.00020."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models import initial
from models.attention import causal_mask, embedded_tokens, encoder_block, learned_positions, multi_head, patches
from models.graph import Graph
from models.layers import classifier, conv_norm, convolution, gelu, layer_norm, linear, swish


def mobilevit(graph: Graph, image: str, *, width: int = 48, layers: int = 2, classes: int = 100) -> dict[str, str]:
    """Pixels of each place within 2 x 2 patches attend to those of the same place, between convolutions."""
    batch, channels, height, _ = graph.shape(image)
    x = conv_norm(graph, "stem", image, (channels, 16), 3, stride=2, activation=swish, gain=initial.LINEAR)
    x = conv_norm(graph, "down", x, (16, 32), 3, stride=2, activation=swish, gain=initial.SWISH)
    side = height // 4
    local = conv_norm(graph, "local", x, (32, 32), 3, activation=swish, gain=initial.SWISH)
    tokens = convolution(graph, "in", local, (32, width), 1, gain=initial.SWISH)
    tokens = graph.op("Reshape", tokens, [batch * width * side // 2, 2, side // 2, 2])
    tokens = graph.op("Transpose", tokens, perm=[0, 2, 1, 3])
    tokens = graph.op("Reshape", tokens, [batch, width, side * side // 4, 4])
    tokens = graph.op("Reshape", graph.op("Transpose", tokens, perm=[0, 3, 2, 1]), [batch * 4, -1, width])
    for index in range(layers):
        tokens = encoder_block(graph, f"blocks.{index}", tokens, width, 4, ratio=2)
    tokens = layer_norm(graph, "norm", tokens, width)
    tokens = graph.op("Reshape", tokens, [batch, 4, side * side // 4, width])
    tokens = graph.op("Reshape", graph.op("Transpose", tokens, perm=[0, 3, 2, 1]), [-1, side // 2, 2, 2])
    back = graph.op("Reshape", graph.op("Transpose", tokens, perm=[0, 2, 1, 3]), [batch, width, side, side])
    back = conv_norm(graph, "out", back, (width, 32), 1, activation=swish, gain=initial.LINEAR)
    x = conv_norm(graph, "fuse", graph.op("Concat", x, back, axis=1), (64, 64), 3, activation=swish, gain=initial.SWISH)
    return {"logits": classifier(graph, "fc", x, (64, classes), pixels=side * side)}


def pvt(graph: Graph, image: str, *, widths: Sequence[int] = (32, 64), classes: int = 100) -> dict[str, str]:
    """Stages of tokens whose keys and values are those of a smaller grid."""
    x, _, side = _stages(graph, image, widths)
    x = graph.op("ReduceMean", layer_norm(graph, "norm", x, widths[-1]), axes=[1], keepdims=0)
    return {"logits": linear(graph, "head", x, (widths[-1], classes), gemm=True, gain=float(side))}


def segformer(graph: Graph, image: str, *, widths: Sequence[int] = (32, 64), classes: int = 20) -> dict[str, str]:
    """The same stages, mixed by depthwise convolutions; all levels decode together at a quarter of the size."""
    batch, _, height, _ = graph.shape(image)
    _, levels, _ = _stages(graph, image, widths, mixed=True)
    parts = []
    for index, (level, width) in enumerate(zip(levels, widths, strict=True)):
        side = height // (4 << index)
        x = _grid(graph, linear(graph, f"decode.{index}", level, (width, 48)), (batch, 48, side))
        if index:
            scales = np.array([1, 1, 1 << index, 1 << index], np.float32)
            x = graph.op("Resize", x, None, scales, coordinate_transformation_mode="half_pixel", mode="linear")
        parts.append(x)
    x = conv_norm(graph, "fuse", graph.op("Concat", *parts, axis=1), (48 * len(parts), 48), 1, gain=initial.LINEAR)
    return {"scores": convolution(graph, "classifier", x, (48, classes), 1, bias=True)}


def clip(
    graph: Graph, image: str, ids: str, *, vocabulary: int, width: int = 64, heads: int = 4, layers: int = 1
) -> dict[str, str]:
    """Images and texts, each through a transformer of its own, compared by the cosine of what is left of them."""
    batch, channels, height, _ = graph.shape(image)
    count, length = (height // 8) ** 2, graph.shape(ids)[1]
    x = convolution(graph, "visual.conv", image, (channels, width), 8, stride=8, padding=0, gain=initial.LINEAR)
    x = learned_positions(graph, "visual.pos", patches(graph, x, batch, width, count), count, width)
    words = embedded_tokens(graph, ids, vocabulary, length, width)
    for index in range(layers):
        x = encoder_block(graph, f"visual.{index}", x, width, heads)
        words = encoder_block(graph, f"text.{index}", words, width, heads, mask=causal_mask(length))
    seen = graph.op("ReduceMean", layer_norm(graph, "visual.norm", x, width), axes=[1], keepdims=0)
    read = graph.op("Gather", layer_norm(graph, "text.norm", words, width), -1, axis=1)
    features = []
    for name, each in (("visual", seen), ("text", read)):
        projected = linear(graph, f"{name}.proj", each, (width, width), gemm=True, gain=4.0)
        features.append(graph.op("LpNormalization", projected, axis=-1, p=2))
    products = graph.op("MatMul", features[0], graph.op("Transpose", features[1], perm=[1, 0]))
    return {"similarity": graph.op("Mul", products, 8.0)}


def _stages(graph: Graph, image: str, widths: Sequence[int], *, mixed: bool = False) -> tuple[str, list[str], int]:
    """The tokens of the last stage, those of all stages, and how many there are in a row at the end."""
    batch, channels, height, _ = graph.shape(image)
    x, grid, side, found = "", image, height, list[str]()
    for stage, width in enumerate(widths):
        stride = 2 if stage else 4
        side //= stride
        with graph.scope(f"stage{stage}"):
            grid = convolution(
                graph, "embed", grid, (channels, width), stride, stride=stride, padding=0, bias=True, gain=1.0
            )
            x = layer_norm(graph, "embed.norm", patches(graph, grid, batch, width, side * side), width)
            reduced = convolution(
                graph, "reduce", _grid(graph, x, (batch, width, side)), (width, width), 4 >> stage,
                stride=4 >> stage, padding=0, bias=True, gain=1.0,
            )  # fmt: skip
            memory = patches(graph, reduced, batch, width, (side * (1 << stage) // 4) ** 2)
            memory = layer_norm(graph, "reduce.norm", memory, width)
            normal = layer_norm(graph, "norm1", x, width)
            x = graph.op("Add", x, multi_head(graph, "attn", normal, width, 2 << stage, memory=memory))
            x = graph.op("Add", x, _mixing(graph, x, (batch, width, side), mixed=mixed))
            grid, channels = _grid(graph, x, (batch, width, side)), width
        found.append(x)
    return x, found, side


def _mixing(graph: Graph, x: str, sizes: tuple[int, int, int], *, mixed: bool) -> str:
    """A feed-forward layer; ``mixed``: with a depthwise convolution in the middle, which tells positions apart."""
    batch, width, side = sizes
    hidden = linear(graph, "fc1", layer_norm(graph, "norm2", x, width), (width, 2 * width))
    if mixed:
        grid = _grid(graph, hidden, (batch, 2 * width, side))
        grid = convolution(graph, "dw", grid, (2 * width, 2 * width), 3, groups=2 * width, bias=True, gain=1.0)
        hidden = patches(graph, grid, batch, 2 * width, side * side)
    return linear(graph, "fc2", gelu(graph, hidden), (2 * width, width), gain=initial.GELU / 2)


def _grid(graph: Graph, x: str, sizes: tuple[int, int, int]) -> str:
    """Tokens as an image again."""
    batch, width, side = sizes
    return graph.op("Reshape", graph.op("Transpose", x, perm=[0, 2, 1]), [batch, width, side, side])
