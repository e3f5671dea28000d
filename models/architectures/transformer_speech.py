"""Speech by transformers: wav2vec 2.0, arXiv 2006.11477, Whisper, arXiv 2212.04356."""

from __future__ import annotations

import numpy as np

from models import initial
from models.attention import causal_mask, embedded_tokens, encoder_block, feed_forward, multi_head
from models.graph import Graph
from models.layers import convolution, gelu, layer_norm, linear

STRIDES = ((10, 5), (3, 2), (3, 2), (2, 2))  # kernel, stride


def wav2vec2(graph: Graph, samples: str, *, width: int = 64, heads: int = 4, layers: int = 1) -> dict[str, str]:
    """Samples [batch, 1, time] through strided filters, a grouped convolution for positions, then attention."""
    x, channels = samples, 1
    for index, (kernel, stride) in enumerate(STRIDES):
        gain = initial.GELU if index else initial.LINEAR
        x = convolution(graph, f"features.{index}", x, (channels, 32), (kernel,), stride=stride, padding=0, gain=gain)
        if index == 0:
            scale, bias = np.ones(32, np.float32), np.zeros(32, np.float32)
            x = graph.op("InstanceNormalization", x, scale, bias, epsilon=1e-5)
        x, channels = gelu(graph, x), 32
    x = layer_norm(graph, "features.norm", graph.op("Transpose", x, perm=[0, 2, 1]), 32)
    x = linear(graph, "proj", x, (32, width))
    places = graph.op("Transpose", x, perm=[0, 2, 1])
    places = gelu(graph, convolution(graph, "pos_conv", places, (width, width), (15,), groups=8, bias=True, gain=1.0))
    x = layer_norm(graph, "norm", graph.op("Add", x, graph.op("Transpose", places, perm=[0, 2, 1])), width)
    for index in range(layers):
        x = encoder_block(graph, f"layers.{index}", x, width, heads)
    return {"features": x}


def whisper_encoder(graph: Graph, features: str, *, width: int = 64, heads: int = 4, layers: int = 2) -> dict[str, str]:
    """Two convolutions over [batch, mels, frames], sinusoids, attention."""
    _, mels, frames = graph.shape(features)
    x = gelu(graph, convolution(graph, "conv1", features, (mels, width), (3,), bias=True, gain=initial.LINEAR))
    x = gelu(graph, convolution(graph, "conv2", x, (width, width), (3,), stride=2, bias=True, gain=initial.GELU))
    x = graph.op("Add", graph.op("Transpose", x, perm=[0, 2, 1]), sinusoids(-(-frames // 2), width))
    for index in range(layers):
        x = encoder_block(graph, f"blocks.{index}", x, width, heads)
    return {"encoded": layer_norm(graph, "ln_post", x, width)}


def whisper_decoder(
    graph: Graph, tokens: str, encoded: str, *, vocabulary: int, heads: int = 4, layers: int = 1
) -> dict[str, str]:
    """Tokens attend to those before them and to what the encoder found."""
    length, width = graph.shape(tokens)[1], graph.shape(encoded)[2]
    x = embedded_tokens(graph, tokens, vocabulary, length, width)
    for index in range(layers):
        with graph.scope(f"blocks.{index}"):
            normal = layer_norm(graph, "attn_ln", x, width)
            x = graph.op("Add", x, multi_head(graph, "attn", normal, width, heads, mask=causal_mask(length)))
            normal = layer_norm(graph, "cross_ln", x, width)
            x = graph.op("Add", x, multi_head(graph, "cross", normal, width, heads, memory=encoded, gain=3.0))
            normal = layer_norm(graph, "mlp_ln", x, width)
            x = graph.op("Add", x, feed_forward(graph, "mlp", normal, width, 4 * width))
    x = layer_norm(graph, "ln", x, width)
    return {"logits": linear(graph, "head", x, (width, vocabulary))}


def sinusoids(length: int, width: int) -> np.ndarray:
    """Positions as sines and cosines of wavelengths in a geometric series."""
    scales = np.exp(-np.log(10000.0) * np.arange(width // 2) / (width // 2 - 1))
    angles = np.arange(length)[:, None] * scales[None]
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)[None].astype(np.float32)
