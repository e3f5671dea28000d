"""Detectors behind one small backbone: SSD 1512.02325, RetinaNet 1708.02002, YOLO-v8's head, DETR 2005.12872."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models import initial
from models.attention import feed_forward, learned_positions, multi_head, patches
from models.graph import Graph
from models.layers import conv_norm, convolution, layer_norm, linear, swish

WIDTHS = (24, 32, 48, 64)  # channels after each halving of the size
BINS = 8  # of a distance's distribution


def ssd(graph: Graph, image: str, *, classes: int = 21, anchors: int = 4) -> dict[str, str]:
    """Boxes as they are regressed, and their classes' probabilities, from three sizes of features."""
    batch, boxes, scores = graph.shape(image)[0], [], []
    features = _backbone(graph, image, initial.RELU)
    for index, (x, width) in enumerate(zip(features[1:], WIDTHS[1:], strict=True)):
        with graph.scope(f"head{index}"):
            found = convolution(graph, "boxes", x, (width, anchors * 4), 3, bias=True)
            boxes.append(_rows(graph, found, batch, 4))
            found = convolution(graph, "scores", x, (width, anchors * classes), 3, bias=True)
            scores.append(_rows(graph, found, batch, classes))
    scored = graph.op("Softmax", graph.op("Concat", *scores, axis=1), axis=-1)
    return {"boxes": graph.op("Concat", *boxes, axis=1), "scores": scored}


def retinanet(graph: Graph, image: str, *, classes: int = 20, anchors: int = 3, width: int = 32) -> dict[str, str]:
    """A pyramid from coarse to fine; the same two subnets on every level."""
    batch, levels = graph.shape(image)[0], _pyramid(graph, _backbone(graph, image, initial.RELU)[1:], width)
    parts = {}
    for name, size in (("boxes", 4), ("scores", classes)):
        subnet, found = _Shared(graph, name, width, anchors * size), []
        for level in levels:
            found.append(_rows(graph, subnet(level), batch, size))
        parts[name] = graph.op("Concat", *found, axis=1)
    return {"boxes": parts["boxes"], "scores": graph.op("Sigmoid", parts["scores"])}


def anchor_free(graph: Graph, image: str, *, classes: int = 20) -> dict[str, str]:
    """YOLO-v8's head: distances to the four sides as means of distributions, from the centres of all cells."""
    batch, side = graph.shape(image)[0], graph.shape(image)[2]
    boxes, scores, centres, strides = [], [], [], []
    for index, x in enumerate(_backbone(graph, image, initial.SWISH)[2:], 3):
        width, stride, cells = WIDTHS[index - 1], 1 << index, side >> index
        with graph.scope(f"head{index}"):
            found = conv_norm(graph, "box", x, (width, 32), 3, activation=swish, gain=initial.SWISH)
            found = convolution(graph, "box.out", found, (32, 4 * BINS), 1, bias=True, gain=initial.SWISH)
            boxes.append(graph.op("Reshape", found, [batch, 4 * BINS, -1]))
            found = conv_norm(graph, "class", x, (width, 32), 3, activation=swish, gain=initial.SWISH)
            found = convolution(graph, "class.out", found, (32, classes), 1, bias=True, gain=initial.SWISH)
            scores.append(graph.op("Reshape", found, [batch, classes, -1]))
        rows, columns = np.meshgrid(np.arange(cells) + 0.5, np.arange(cells) + 0.5, indexing="ij")
        centres.append(np.stack([columns.ravel(), rows.ravel()]) * stride)
        strides.append(np.full(cells * cells, stride))
    total = sum(map(len, strides))
    joined = graph.op("Reshape", graph.op("Concat", *boxes, axis=2), [batch, 4, BINS, total])
    weights = graph.op("Softmax", graph.op("Transpose", joined, perm=[0, 3, 1, 2]), axis=3)
    distances = graph.op("MatMul", weights, np.arange(BINS, dtype=np.float32).reshape(BINS, 1))
    distances = graph.op("Transpose", graph.op("Squeeze", distances, [3]), perm=[0, 2, 1])
    distances = graph.op("Mul", distances, np.concatenate(strides).astype(np.float32))
    before, behind = graph.ops("Split", distances, [2, 2], outputs=2, axis=1)
    places = graph.constant(np.concatenate(centres, 1).astype(np.float32)[None])
    corners = graph.op("Concat", graph.op("Sub", places, before), graph.op("Add", places, behind), axis=1)
    return {"boxes": corners, "scores": graph.op("Sigmoid", graph.op("Concat", *scores, axis=2))}


def detr(graph: Graph, image: str, *, width: int = 64, heads: int = 4, queries: int = 20) -> dict[str, str]:
    """A transformer from the cells of a backbone to a set of objects; one layer each way."""
    batch, side = graph.shape(image)[0], graph.shape(image)[2] // 16
    cells = side * side
    x = convolution(graph, "proj", _backbone(graph, image, initial.RELU)[-1], (WIDTHS[-1], width), 1, bias=True)
    memory = learned_positions(graph, "pos", patches(graph, x, batch, width, cells), cells, width)
    attended = graph.op("Add", memory, multi_head(graph, "encoder.attn", memory, width, heads))
    memory = layer_norm(graph, "encoder.norm1", attended, width)
    fed = graph.op("Add", memory, feed_forward(graph, "encoder.mlp", memory, width, 2 * width))
    memory = layer_norm(graph, "encoder.norm2", fed, width)
    wanted = graph.rng("queries").standard_normal((1, queries, width), dtype=np.float32)
    x = graph.op("Expand", graph.weight("queries", wanted), [batch, queries, width])
    found = graph.op("Add", x, multi_head(graph, "decoder.self", x, width, heads))
    x = layer_norm(graph, "decoder.norm1", found, width)
    found = graph.op("Add", x, multi_head(graph, "decoder.cross", x, width, heads, memory=memory, gain=3.0))
    x = layer_norm(graph, "decoder.norm2", found, width)
    x = graph.op("Add", x, feed_forward(graph, "decoder.mlp", x, width, 2 * width))
    x = layer_norm(graph, "decoder.norm3", x, width)
    boxes = graph.op(
        "Sigmoid", linear(graph, "boxes", graph.op("Relu", linear(graph, "hidden", x, (width, width))), (width, 4))
    )
    return {"boxes": boxes, "logits": linear(graph, "classes", x, (width, 21))}


def _backbone(graph: Graph, image: str, gain: float) -> Sequence[str]:
    """Features at a half, a quarter, an eighth and a sixteenth of the size."""
    x, channels, found = image, 3, []
    for index, width in enumerate(WIDTHS):
        with graph.scope(f"backbone.{index}"):
            stem = gain if index else initial.LINEAR
            if gain == initial.SWISH:
                x = conv_norm(graph, "down", x, (channels, width), 3, stride=2, activation=swish, gain=stem)
                branch = conv_norm(graph, "conv", x, (width, width), 3, activation=swish, gain=gain, scale=0.6)
            else:
                x = conv_norm(graph, "down", x, (channels, width), 3, stride=2, gain=stem)
                branch = conv_norm(graph, "conv", x, (width, width), 3, scale=0.6)
            x, channels = graph.op("Add", x, branch), width
        found.append(x)
    return found


def _pyramid(graph: Graph, features: Sequence[str], width: int) -> Sequence[str]:
    """Fine to coarse: each level its own features and the next coarser level, upsampled."""
    levels: list[str] = []
    for index in reversed(range(len(features))):
        x = convolution(graph, f"lateral{index}", features[index], (WIDTHS[index + 1], width), 1, bias=True, gain=1.0)
        if levels:
            scales = np.array([1, 1, 2, 2], np.float32)
            upsampled = graph.op(
                "Resize", levels[0], None, scales,
                coordinate_transformation_mode="asymmetric", mode="nearest", nearest_mode="floor",
            )  # fmt: skip
            x = graph.op("Add", x, upsampled)
        levels.insert(0, x)
    outputs = (
        convolution(graph, f"smooth{index}", x, (width, width), 3, bias=True, gain=0.7)
        for index, x in enumerate(levels)
    )
    return list(outputs)


class _Shared:
    """Convolutions whose weights all levels use."""

    def __init__(self, graph: Graph, name: str, width: int, outputs: int) -> None:
        self._graph, self._name, self._weights = graph, name, []
        for index, (channels, gain) in enumerate(((width, initial.LINEAR), (outputs, initial.RELU))):
            with graph.scope(f"{name}.{index}"):
                drawn = initial.filters(graph.rng("weight"), (channels, width, 3, 3), gain)
                bias = initial.vector(graph.rng("bias"), channels)
                self._weights.append((graph.weight("weight", drawn), graph.weight("bias", bias)))

    def __call__(self, x: str) -> str:
        with self._graph.scope(self._name):
            for index, (weight, bias) in enumerate(self._weights):
                x = self._graph.op("Relu", x) if index else x
                x = self._graph.op("Conv", x, weight, bias, kernel_shape=[3, 3], pads=[1] * 4)
        return x


def _rows(graph: Graph, x: str, batch: int, size: int) -> str:
    """A grid's channels as rows: [batch, cells * anchors, size]."""
    return graph.op("Reshape", graph.op("Transpose", x, perm=[0, 2, 3, 1]), [batch, -1, size])
