"""Fused kernels to measure the compiler by: what it makes of small models, drawn by a seeded generator.

A model is a layer or two as exporters write them, with the activations, norms and sums that real ones have beside
them. The driver plans it, so that its kernels are fused, placed and cut as those of a large model would be. As with
single operators, a kernel is either learned from or judged by: the shapes of its tensors decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np

from ci.kernel_shapes import NEAR_BYTES, is_held_out, machine_of, tensor_bytes
from compiler.driver import plan
from compiler.kernel_pool import Job
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.target import Chip
from compiler.tiling.split_k import SWITCH as SPLIT_K
from compiler.tiling.split_rows import SWITCH as SPLIT_ROWS
from compiler.tir.near import near_parameters
from models import layers
from models.attention import attended, encoder_block
from models.graph import Graph
from passes.graph.divide_batch import DivideBatch

OPSET = 17
MOST_MACS, MOST_BYTES = 2e9, 24 << 20  # of a layer, and of the tensors of a kernel: more takes long to time
LENGTHS = (1, 16, 49, 64, 100, 128, 197, 256, 384, 512, 1024)
WIDTHS = (64, 96, 128, 192, 256, 384, 512, 640, 768, 1000, 1024)
CHANNELS = (3, 8, 16, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512)
PLACES = (4, 7, 8, 14, 16, 28, 32, 56, 64, 112)
ACTIVATIONS: tuple[layers.Activation, ...] = (
    layers.relu, layers.relu6, layers.sigmoid, layers.swish, layers.hard_swish, layers.gelu, layers.gelu_tanh,
)  # fmt: skip


Model = tuple[Graph, str]  # and its result


def drawn_fused(count: int, chip: Chip, *, held_out: bool, seed: int = 0) -> list[Job]:
    """Kernels of models of all kinds in turn, each once, that are learned from or that are held out."""
    random, found, turn = Random(seed), dict[str, Job](), 0
    while len(found) < count:
        graph = KINDS[turn % len(KINDS)](random)
        turn += 1
        if graph is None:
            continue
        jobs = [job for job in kernels_of(graph, random.choice(("fp16", "fp16", None)), chip) if _is_small(job)]
        for job in random.sample(jobs, min(len(jobs), 2)):
            if is_held_out(shapes_of(job)) == held_out and len(found) < count:
                found.setdefault(job.name, job)
    return list(found.values())


def kernels_of(model_graph: Model, precision: str | None, chip: Chip) -> Iterator[Job]:
    """What the driver makes of a model: its kernels, named by what they do and the shapes of their tensors."""
    made, result = model_graph
    # Where products and rows are split, and how many clusters run a model, decides what was learned: the same kernels
    # are to be drawn whatever that is.
    observer = Observer(without=frozenset({SPLIT_K, SPLIT_ROWS, DivideBatch.name}))
    model = plan(made.finish({"y": result}).SerializeToString(), chip, Options(precision, cache=False), observer)
    found = dict[Any, Job]()
    for use in model.uses():
        found.setdefault(use.key, use.job)
    for job in found.values():
        if machine_of(job, chip).content_hash == model.chip.content_hash:
            near = sorted(job.func.params.index(param) for param in near_parameters(job.func))
            yield Job(job.func, job.schedule, f"{_kinds(job.name)} {shapes_of(job)}{f' near {near}' if near else ''}")


def _kinds(nodes: str) -> str:
    """The operators of fused nodes: ``/attn/MatMul_1+/attn/Add_3`` is ``MatMul+Add``."""
    return "+".join(node.rpartition("/")[2].partition("_")[0].partition(",")[0] for node in nodes.split("+"))


def shapes_of(job: Job) -> str:
    return " ".join(f"{'x'.join(str(n) for n in param.shape)}:{param.dtype}" for param in job.func.params)


def _is_small(job: Job) -> bool:
    return tensor_bytes(job.func.params) <= MOST_BYTES and tensor_bytes(near_parameters(job.func)) <= NEAR_BYTES


# ---- models ------------------------------------------------------------------------------------------------------


def _graph() -> Graph:
    return Graph("drawn", seed=0, opset=OPSET)


def _some(random: Random, *ranges: tuple[int, ...]) -> list[int]:
    """Of each one; now and then a number between two of them, which no tile fits."""
    return [random.choice(of) if random.random() < 0.8 else random.randint(of[0], of[len(of) // 2]) for of in ranges]


def _convolutions(random: Random) -> Model | None:
    """Two of them, so that the second one finds its input where the first one left it; the second may add its input."""
    inputs, outputs, size = _some(random, CHANNELS, CHANNELS[1:], PLACES)
    kernel, stride = random.choice((1, 1, 3, 3, 3, 5, 7)), random.choice((1, 1, 1, 2))
    adds, activation = random.random() < 0.5, random.choice((*ACTIVATIONS[:5], layers.relu, layers.relu, None))
    groups = outputs if random.random() < 0.15 else 1
    if kernel > size or outputs * max(inputs, outputs) * (kernel * size) ** 2 > MOST_MACS:
        return None
    graph = _graph()
    x = graph.input("x", np.dtype(np.float32), (random.choice((1, 1, 1, 4)), inputs, size, size))
    x = layers.conv_norm(graph, "first", x, (inputs, outputs), kernel, stride=stride, activation=activation)
    y = layers.conv_norm(graph, "second", x, (outputs, outputs), kernel, groups=groups, activation=None)
    return graph, layers.relu(graph, graph.op("Add", y, x) if adds else y)


def _bottleneck(random: Random) -> Model | None:
    """Products of channels around a convolution, beside the input, and a gate before the last one now and then."""
    width, inner, size = _some(random, CHANNELS[5:], CHANNELS[2:], PLACES)
    kernel, stride, activation = random.choice((3, 3, 5)), random.choice((1, 1, 2)), random.choice(ACTIVATIONS[:5])
    groups = inner if random.random() < 0.4 else 1
    if kernel > size or max(width * inner, inner * inner // groups * kernel**2) * size * size > MOST_MACS:
        return None
    graph = _graph()
    x = graph.input("x", np.dtype(np.float32), (1, width, size, size))
    y = layers.conv_norm(graph, "expand", x, (width, inner), 1, activation=activation)
    y = layers.conv_norm(
        graph, "middle", y, (inner, inner), kernel, stride=stride, groups=groups, activation=activation
    )
    if random.random() < 0.3:
        y = layers.squeeze_excitation(graph, "gate", y, inner, max(8, inner // 4), layers.sigmoid)
    y = layers.conv_norm(graph, "project", y, (inner, width), 1, activation=None)
    return graph, y if stride > 1 else graph.op("Add", x, y)


def _dense(random: Random) -> Model | None:
    """Layers behind a norm, with an activation, beside the input where it is as wide."""
    length, width, hidden = _some(random, LENGTHS, WIDTHS, WIDTHS)
    hidden *= random.choice((1, 1, 2, 4))
    if length * width * hidden > MOST_MACS:
        return None
    graph = _graph()
    x = graph.input("x", np.dtype(np.float32), (1, length, width))
    norm = random.choice((layers.layer_norm, layers.rms_norm, None))
    y = norm(graph, "norm", x, width) if norm else x
    y = random.choice(ACTIVATIONS)(graph, layers.linear(graph, "up", y, (width, hidden)))
    y = layers.linear(graph, "down", y, (hidden, width))
    return graph, graph.op("Add", x, y)


def _attention(random: Random) -> Model | None:
    size, heads = random.choice((32, 48, 64, 64, 80)), random.choice((2, 3, 4, 8, 12))
    (length,) = _some(random, LENGTHS)
    width = heads * size
    if length * width * max(length, width) > MOST_MACS:
        return None
    graph = _graph()
    x = graph.input("x", np.dtype(np.float32), (random.choice((1, 1, 2)), length, width))
    return graph, encoder_block(graph, "block", x, width, heads, ratio=random.choice((2, 4)))


def _heads(random: Random) -> Model | None:
    """An attention alone, of as many heads as a batch has."""
    size, heads = random.choice((32, 48, 64, 64, 80)), random.choice((1, 3, 4, 8, 12))
    batch = random.choice((1, 1, 4, 16))
    (length,) = _some(random, LENGTHS)
    if 2 * batch * heads * length * length * size > MOST_MACS:
        return None
    graph = _graph()
    query, key, value = (graph.input(n, np.dtype(np.float32), (batch, heads, length, size)) for n in ("q", "k", "v"))
    return graph, attended(graph, query, key, value, heads * size, size=size)


def _classified(random: Random) -> Model | None:
    """Normalised groups of channels, their mean, classes, and a softmax over these."""
    width, size, classes = _some(random, CHANNELS[5:], PLACES, WIDTHS)
    graph = _graph()
    x = graph.input("x", np.dtype(np.float32), (random.choice((1, 1, 4)), width, size, size))
    if random.random() < 0.4 and width % 8 == 0:
        x = layers.swish(graph, layers.group_norm(graph, "norm", x, width, 8))
    else:
        x = random.choice(ACTIVATIONS)(graph, layers.batch_norm(graph, "norm", x, width))
    if random.random() < 0.5:
        x = graph.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = layers.classifier(graph, "classes", x, (width, classes), pixels=size * size)
    return graph, graph.op("Softmax", y, axis=-1)


KINDS: tuple[Callable[[Random], Model | None], ...] = (
    _convolutions, _dense, _bottleneck, _attention, _heads, _classified,
)  # fmt: skip
