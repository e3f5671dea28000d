"""Segmentation behind one small backbone: FCN 1411.4038, DeepLab-v3 1706.05587, PSPNet 1612.01105."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models import initial
from models.graph import Graph
from models.layers import conv_norm, convolution

BACKBONE = ((32, 2, 1), (64, 2, 1), (96, 2, 1), (128, 1, 2))  # channels, stride, dilation: an eighth of the size
RATES = (2, 4, 6)
GRIDS = (1, 2, 4)


def fcn(graph: Graph, image: str, *, classes: int = 21) -> dict[str, str]:
    """Scores at an eighth and at a quarter of the size, added, then upsampled."""
    features = _backbone(graph, image)
    deep = convolution(graph, "score8", features[-1], (128, classes), 1, bias=True)
    shallow = convolution(graph, "score4", features[1], (64, classes), 1, bias=True)
    joined = graph.op("Add", _scaled(graph, deep, 2), shallow)
    return {"scores": _scaled(graph, joined, 4)}


def deeplab(graph: Graph, image: str, *, classes: int = 21) -> dict[str, str]:
    """Atrous pyramid: the same features through filters of growing dilation, and their mean."""
    side = graph.shape(image)[2] // 8
    x = _backbone(graph, image)[-1]
    parts = [conv_norm(graph, "aspp.0", x, (128, 48), 1)]
    parts += [conv_norm(graph, f"aspp.{rate}", x, (128, 48), 3, dilation=rate) for rate in RATES]
    pooled = conv_norm(graph, "aspp.pool", graph.op("GlobalAveragePool", x), (128, 48), 1, gain=4.0)
    parts.append(_resized(graph, pooled, side))
    x = conv_norm(graph, "project", graph.op("Concat", *parts, axis=1), (48 * len(parts), 64), 1)
    x = convolution(graph, "classifier", x, (64, classes), 1, bias=True)
    return {"scores": _scaled(graph, x, 8)}


def pspnet(graph: Graph, image: str, *, classes: int = 21) -> dict[str, str]:
    """Pyramid pooling: means over grids of several sizes, upsampled beside the features."""
    side = graph.shape(image)[2] // 8
    x = _backbone(graph, image)[-1]
    parts = [x]
    for grid in GRIDS:
        window = side // grid
        pooled = graph.op("AveragePool", x, kernel_shape=[window] * 2, strides=[window] * 2)
        parts.append(_resized(graph, conv_norm(graph, f"pool{grid}", pooled, (128, 32), 1, gain=window), side))
    x = conv_norm(graph, "bottleneck", graph.op("Concat", *parts, axis=1), (128 + 32 * len(GRIDS), 64), 3)
    return {"scores": _scaled(graph, convolution(graph, "classifier", x, (64, classes), 1, bias=True), 8)}


def _backbone(graph: Graph, image: str) -> Sequence[str]:
    """The features behind each stage."""
    x, channels, found = image, 3, []
    for index, (width, stride, dilation) in enumerate(BACKBONE):
        with graph.scope(f"backbone.{index}"):
            gain = initial.RELU if index else initial.LINEAR
            x = conv_norm(graph, "0", x, (channels, width), 3, stride=stride, dilation=dilation, gain=gain)
            branch = conv_norm(graph, "1", x, (width, width), 3, dilation=dilation, activation=None, scale=0.5)
            x, channels = graph.op("Relu", graph.op("Add", x, branch)), width
        found.append(x)
    return found


def _scaled(graph: Graph, x: str, factor: int) -> str:
    scales = np.array([1, 1, factor, factor], np.float32)
    return graph.op("Resize", x, None, scales, coordinate_transformation_mode="half_pixel", mode="linear")


def _resized(graph: Graph, x: str, side: int) -> str:
    """To a size that is known; what ``align_corners`` asks for."""
    half = graph.op("Shape", x)
    sizes = graph.op("Concat", graph.op("Slice", half, [0], [2], [0]), [side, side], axis=0)
    return graph.op("Resize", x, None, None, sizes, coordinate_transformation_mode="align_corners", mode="linear")
