"""A small detector: YOLOv3's two grids, their decoding and non-maximum suppression, Redmon and Farhadi, 1804.02767."""

from __future__ import annotations

from functools import partial

import numpy as np

from models import initial
from models.graph import Graph
from models.layers import conv_norm, convolution

ANCHORS = {16: ((10, 14), (23, 27), (37, 58)), 32: ((41, 42), (65, 60), (88, 82))}  # stride: width, height; pixels
BRANCH_SCALE = 0.3
WIDTHS = (16, 32, 64, 128, 256)  # channels after each halving of the size


def _leaky_relu(graph: Graph, x: str) -> str:
    return graph.op("LeakyRelu", x, alpha=0.1)


_conv = partial(conv_norm, activation=_leaky_relu)


def yolo(
    graph: Graph,
    image: str,
    *,
    classes: int,
    boxes_per_class: int = 10,
    overlap: float = 0.45,
    score: float = 0.42,
) -> dict[str, str]:
    """Corners of all boxes, scores by class, and the (image, class, box) that were selected."""
    batch, _, side, _ = graph.shape(image)
    x, channels, levels = image, graph.shape(image)[1], {}
    for index, width in enumerate(WIDTHS):
        gain = initial.LINEAR if index == 0 else initial.RELU
        x = _conv(graph, f"backbone.{index}.0", x, (channels, width), 3, stride=2, gain=gain)
        if index > 0:
            narrow = _conv(graph, f"backbone.{index}.1", x, (width, width // 2), 1)
            branch = _conv(graph, f"backbone.{index}.2", narrow, (width // 2, width), 3, scale=BRANCH_SCALE)
            x = graph.op("Add", x, branch)
        channels = width
        levels[2 << index] = x
    coarse = _conv(graph, "neck.0", levels[32], (256, 128), 1)
    upsampled = graph.op(
        "Resize", coarse, None, np.array([1, 1, 2, 2], np.float32),
        coordinate_transformation_mode="asymmetric", mode="nearest", nearest_mode="floor",
    )  # fmt: skip
    fine = _conv(graph, "neck.1", graph.op("Concat", upsampled, levels[16], axis=1), (256, 128), 3)
    decoded = []
    for stride, features in ((32, coarse), (16, fine)):
        with graph.scope(f"head{stride}"):
            decoded.append(_decoded(graph, features, batch, side // stride, stride, classes))
    corners, by_class = (graph.op("Concat", *parts, axis=1) for parts in zip(*decoded, strict=True))
    scores = graph.op("Transpose", by_class, perm=[0, 2, 1])
    selected = graph.op("NonMaxSuppression", corners, scores, boxes_per_class, overlap, score)
    return {"boxes": corners, "scores": scores, "selected": selected}


def _decoded(graph: Graph, x: str, batch: int, side: int, stride: int, classes: int) -> tuple[str, str]:
    """From channels to boxes [batch, cells, 4] by their corners in pixels, and scores [batch, cells, classes]."""
    anchors = np.array(ANCHORS[stride], np.float32)
    count = len(anchors)
    raw = convolution(graph, "conv", x, (128, count * (5 + classes)), 1, bias=True, gain=0.5)
    raw = graph.op("Reshape", raw, [batch, count, 5 + classes, side, side])
    raw = graph.op("Transpose", raw, perm=[0, 1, 3, 4, 2])
    centre, size, objectness, labels = graph.ops("Split", raw, [2, 2, 1, classes], outputs=4, axis=4)
    rows, columns = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    cells = np.stack([columns, rows], -1).astype(np.float32)[None, None]
    centre = graph.op("Mul", graph.op("Add", graph.op("Sigmoid", centre), cells), float(stride))
    size = graph.op("Mul", graph.op("Exp", size), anchors.reshape(1, count, 1, 1, 2))
    half = graph.op("Mul", size, 0.5)
    corners = graph.op("Concat", graph.op("Sub", centre, half), graph.op("Add", centre, half), axis=4)
    scores = graph.op("Mul", graph.op("Sigmoid", objectness), graph.op("Sigmoid", labels))
    return graph.op("Reshape", corners, [batch, -1, 4]), graph.op("Reshape", scores, [batch, -1, classes])
