"""Parts of diffusion models: blocks of Stable Diffusion's U-Net, arXiv 2112.10752, a DiT block, arXiv 2212.09748."""

from __future__ import annotations

import numpy as np

from models import initial
from models.attention import feed_forward, multi_head, patches
from models.graph import Graph
from models.layers import convolution, gelu, group_norm, layer_norm, linear, swish

GROUPS = 8


def unet_residual(graph: Graph, latent: str, time: str, *, outputs: int) -> dict[str, str]:
    """A residual block whose channels are shifted by what the time's embedding says."""
    return {
        "denoised": _residual(graph, "resnet", latent, time, (graph.shape(latent)[1], outputs), graph.shape(time)[1])
    }


def unet_attention(graph: Graph, latent: str, context: str, *, heads: int = 4) -> dict[str, str]:
    """A spatial transformer: pixels attend to each other, then to the text, then pass a gated layer (GEGLU)."""
    return {"denoised": _transformer(graph, "attn", latent, context, graph.shape(latent), heads)}


def unet_small(graph: Graph, latent: str, step: str, context: str, *, width: int = 32) -> dict[str, str]:
    """A whole U-Net of one level: time embedding, down, attention in the middle, up; predicts the noise."""
    batch, channels, height, side = graph.shape(latent)
    time = _time_embedding(graph, step, width)
    x = convolution(graph, "conv_in", latent, (channels, width), 3, bias=True, gain=initial.LINEAR)
    first = _residual(graph, "down.0", x, time, (width, width), 4 * width)
    x = convolution(graph, "down.sample", first, (width, width), 3, stride=2, bias=True, gain=initial.LINEAR)
    x = _residual(graph, "mid.0", x, time, (width, 2 * width), 4 * width)
    x = _transformer(graph, "mid.attn", x, context, (batch, 2 * width, height // 2, side // 2), 4)
    x = _residual(graph, "mid.1", x, time, (2 * width, 2 * width), 4 * width)
    scales = np.array([1, 1, 2, 2], np.float32)
    x = graph.op(
        "Resize", x, None, scales,
        coordinate_transformation_mode="asymmetric", mode="nearest", nearest_mode="floor",
    )  # fmt: skip
    x = _residual(graph, "up.0", graph.op("Concat", x, first, axis=1), time, (3 * width, width), 4 * width)
    x = swish(graph, group_norm(graph, "norm_out", x, width, GROUPS))
    return {"noise": convolution(graph, "conv_out", x, (width, channels), 3, bias=True, gain=initial.SWISH)}


def vae_decoder(graph: Graph, latent: str, *, width: int = 32) -> dict[str, str]:
    """From latents to an image of four times the size."""
    x = convolution(graph, "conv_in", latent, (graph.shape(latent)[1], width), 3, bias=True, gain=initial.LINEAR)
    for index in range(2):
        x = _residual(graph, f"up.{index}", x, "", (width, width), 0)
        x = graph.op(
            "Resize", x, None, np.array([1, 1, 2, 2], np.float32),
            coordinate_transformation_mode="asymmetric", mode="nearest", nearest_mode="floor",
        )  # fmt: skip
        x = convolution(graph, f"up.{index}.conv", x, (width, width), 3, bias=True, gain=0.7)
    x = swish(graph, group_norm(graph, "norm_out", x, width, GROUPS))
    return {"image": convolution(graph, "conv_out", x, (width, 3), 3, bias=True, gain=initial.SWISH)}


def dit(graph: Graph, tokens: str, condition: str, *, heads: int = 4, layers: int = 1) -> dict[str, str]:
    """Blocks whose norms' scales, shifts and gates come from the condition (adaLN-Zero, with gates that are open)."""
    width = graph.shape(tokens)[2]
    x, condition = tokens, swish(graph, condition)
    for index in range(layers):
        with graph.scope(f"blocks.{index}"):
            terms = linear(graph, "modulation", condition, (width, 6 * width), gemm=True, gain=0.8)
            terms = graph.op("Unsqueeze", terms, [1])
            shift1, scale1, gate1, shift2, scale2, gate2 = graph.ops("Split", terms, [width] * 6, outputs=6, axis=2)
            branch = multi_head(graph, "attn", _modulated(graph, "norm1", x, width, shift1, scale1), width, heads)
            x = graph.op("Add", x, graph.op("Mul", branch, gate1))
            branch = feed_forward(graph, "mlp", _modulated(graph, "norm2", x, width, shift2, scale2), width, 4 * width)
            x = graph.op("Add", x, graph.op("Mul", branch, gate2))
    return {"denoised": layer_norm(graph, "norm", x, width)}


def _modulated(graph: Graph, name: str, x: str, width: int, shift: str, scale: str) -> str:
    normal = layer_norm(graph, name, x, width, epsilon=1e-6)
    return graph.op("Add", graph.op("Mul", normal, graph.op("Add", scale, 1.0)), shift)


def _residual(graph: Graph, name: str, x: str, time: str, channels: tuple[int, int], features: int) -> str:
    inputs, outputs = channels
    with graph.scope(name):
        branch = swish(graph, group_norm(graph, "norm1", x, inputs, GROUPS))
        branch = convolution(graph, "conv1", branch, (inputs, outputs), 3, bias=True, gain=initial.SWISH)
        if time:
            shift = linear(graph, "time", swish(graph, time), (features, outputs), gemm=True, gain=initial.SWISH)
            branch = graph.op("Add", branch, graph.op("Unsqueeze", shift, [2, 3]))
        branch = swish(graph, group_norm(graph, "norm2", branch, outputs, GROUPS))
        branch = convolution(graph, "conv2", branch, (outputs, outputs), 3, bias=True, gain=initial.SWISH)
        if inputs != outputs:
            x = convolution(graph, "shortcut", x, (inputs, outputs), 1, bias=True, gain=initial.LINEAR)
        return graph.op("Add", x, branch)


def _transformer(graph: Graph, name: str, x: str, context: str, shape: tuple[int, ...], heads: int) -> str:
    batch, width, height, side = shape
    with graph.scope(name):
        normal = group_norm(graph, "norm", x, width, GROUPS)
        tokens = linear(graph, "proj_in", patches(graph, normal, batch, width, height * side), (width, width))
        normal = layer_norm(graph, "norm1", tokens, width)
        tokens = graph.op("Add", tokens, multi_head(graph, "self", normal, width, heads))
        normal = layer_norm(graph, "norm2", tokens, width)
        words = graph.shape(context)[2]
        cross = multi_head(graph, "cross", normal, width, heads, memory=context, memory_width=words)
        tokens = graph.op("Add", tokens, cross)
        gated = linear(graph, "geglu", layer_norm(graph, "norm3", tokens, width), (width, 8 * width))
        value, gate = graph.ops("Split", gated, [4 * width] * 2, outputs=2, axis=2)
        hidden = graph.op("Mul", value, gelu(graph, gate))
        tokens = graph.op("Add", tokens, linear(graph, "ff", hidden, (4 * width, width), gain=1.2))
        tokens = linear(graph, "proj_out", tokens, (width, width))
        back = graph.op("Reshape", graph.op("Transpose", tokens, perm=[0, 2, 1]), [batch, width, height, side])
        return graph.op("Add", x, back)


def _time_embedding(graph: Graph, step: str, width: int) -> str:
    """Sines and cosines of the step at falling frequencies, through two layers: [batch, 4 * width]."""
    frequencies = np.exp(-np.log(10000.0) * np.arange(width // 2) / (width // 2)).astype(np.float32)
    angles = graph.op("Mul", graph.op("Unsqueeze", step, [1]), frequencies)
    waves = graph.op("Concat", graph.op("Cos", angles), graph.op("Sin", angles), axis=1)
    hidden = swish(graph, linear(graph, "time.0", waves, (width, 4 * width), gemm=True, gain=initial.RELU))
    return linear(graph, "time.2", hidden, (4 * width, 4 * width), gemm=True, gain=initial.SWISH)
