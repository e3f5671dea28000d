"""The models of the regression zoo: which architecture, at which size, fed with what, expected to do what.

A name is ``<architecture>-<size>``. Another configuration is another line: sizes and batches are in the inputs, the
rest in the options of the architecture.
"""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import numpy as np
import onnx

from compiler.errors import Problem, UsageError
from models.architectures.bert import bert
from models.architectures.densenet import densenet
from models.architectures.digits_cnn import digits_cnn
from models.architectures.efficientnet import efficientnet_b0
from models.architectures.gpt2 import gpt2
from models.architectures.lstm import lstm
from models.architectures.mlp import mlp
from models.architectures.mobilenet_v2 import mobilenet_v2
from models.architectures.resnet import residual_block, resnet
from models.architectures.squeezenet import squeezenet
from models.architectures.unet import unet
from models.architectures.vit import vit
from models.architectures.yolo import yolo
from models.digits import dataset
from models.draws import Digits, Ids, Normal, Padding
from models.graph import Graph
from models.manifest import Draw, Input, Model, Tolerance

ALL_CHIPS = ("tiny", "tw1", "tw2")
BATCH = {0: "batch"}

RESNET = "He et al., arXiv 1512.03385"
UNET = "Ronneberger et al., arXiv 1505.04597, padded and with batch norm"
LSTM = "Hochreiter and Schmidhuber, Neural Computation 9(8), 1997"


def image(size: int, *, channels: int = 3, batch: int = 1) -> tuple[Input, ...]:
    return (Input("image", (batch, channels, size, size), Normal()),)


def _bert_inputs(batch: int, length: int, vocabulary: int) -> tuple[Input, ...]:
    draws: dict[str, Draw] = {"input_ids": Ids(vocabulary), "attention_mask": Padding(), "token_type_ids": Ids(2)}
    return tuple(Input(name, (batch, length), draw, BATCH) for name, draw in draws.items())


MODELS: tuple[Model, ...] = (
    Model(
        "mlp-256",
        mlp,
        "Rumelhart et al., Nature 323, 1986; the size of an MNIST classifier",
        (Input("x", (16, 784), Normal(), BATCH),),
        {"sizes": (256, 256)},
        opset=13,
        chips=ALL_CHIPS,
    ),
    Model(
        "digits-cnn",
        digits_cnn,
        "LeNet-like, trained by models/train_digits.py on the UCI handwritten digits",
        (Input("image", (30, 1, 8, 8), Digits()),),
        opset=13,
        chips=ALL_CHIPS,
        held_out=dataset.held_out,
    ),
    Model("resnet-block-16", residual_block, RESNET, image(16, channels=16), opset=13, chips=ALL_CHIPS),
    Model("resnet18-64", resnet, RESNET, image(64), {"blocks": (2, 2, 2, 2)}, opset=13),
    Model("resnet50-224", resnet, RESNET, image(224), {"blocks": (3, 4, 6, 3), "bottleneck": True}, opset=13),
    Model("mobilenet-v2-96", mobilenet_v2, "Sandler et al., arXiv 1801.04381", image(96), opset=13),
    Model("squeezenet1.1-112", squeezenet, "Iandola et al., arXiv 1602.07360", image(112), opset=11),
    Model("densenet121-64", densenet, "Huang et al., arXiv 1608.06993", image(64)),
    Model("efficientnet-b0-64", efficientnet_b0, "Tan and Le, arXiv 1905.11946", image(64)),
    Model(
        "unet-transpose-64",
        unet,
        UNET,
        image(64),
        {"width": 16},
        opset=13,
        # Logits near zero are what is left of sums over 23 layers, in another order for each way to compute them:
        # onnxruntime with and without its optimisations differs by 1.26 times the tolerance with 1e-4.
        tolerance=Tolerance(atol=2e-4),
    ),
    Model("unet-resize-64", unet, UNET, image(64), {"width": 16, "transposed": False}, opset=13),
    Model(
        "bert-base-128",
        bert,
        "Devlin et al., arXiv 1810.04805: 4 of 12 layers, 8192 of 30522 tokens",
        _bert_inputs(1, 128, 8192),
        {"vocabulary": 8192, "layers": 4},
        opset=14,
    ),
    Model("vit-tiny-224", vit, "Dosovitskiy et al., arXiv 2010.11929; Touvron et al., arXiv 2012.12877", image(224)),
    Model(
        "gpt2-64",
        gpt2,
        "Radford et al., Language Models are Unsupervised Multitask Learners, 2019: 2 of 12 layers, 4096 tokens",
        (Input("input_ids", (1, 64), Ids(4096), BATCH),),
        {"vocabulary": 4096, "layers": 2},
        opset=14,
    ),
    Model(
        "lstm-16",
        lstm,
        f"{LSTM}: two layers on numbers",
        (Input("x", (4, 16, 32), Normal()),),
        {"hidden": 64, "layers": 2},
        opset=14,
        chips=ALL_CHIPS,
    ),
    Model(
        "bilstm-tokens-16",
        lstm,
        f"{LSTM}: both directions, on embedded tokens",
        (Input("ids", (4, 16), Ids(1000)),),
        {"hidden": 48, "bidirectional": True, "vocabulary": 1000, "width": 64},
        opset=14,
        chips=ALL_CHIPS,
    ),
    Model(
        "yolo-128",
        yolo,
        "Redmon and Farhadi, arXiv 1804.02767: two grids, a small backbone",
        image(128),
        {"classes": 20},
        opset=13,
    ),
)

_BY_NAME = {model.name: model for model in MODELS}


def names() -> tuple[str, ...]:
    return tuple(_BY_NAME)


def manifest(name: str) -> Model:
    """The manifest entry of the model ``name``."""
    if name not in _BY_NAME:
        raise UsageError(Problem("TW0002", f"no model is named {name!r}", hint="`python -m models list` shows them"))
    return _BY_NAME[name]


def batched(name: str, times: int) -> Model:
    """The model ``name`` fed with so many times its batch: the first axis of every input."""
    model = manifest(name)
    return replace(model, inputs=tuple(replace(i, shape=(i.shape[0] * times, *i.shape[1:])) for i in model.inputs))


def build(which: str | Model, seed: int = 0) -> onnx.ModelProto:
    """The model as ONNX; the same name, inputs and seed give the same bytes."""
    model = manifest(which) if isinstance(which, str) else which
    graph = Graph(model.name, seed=seed, opset=model.opset)
    values = [graph.input(each.name, each.draw.dtype, each.declared) for each in model.inputs]
    return graph.finish(model.architecture(graph, *values, **model.options))


def inputs(which: str | Model, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of a model by name, drawn as its manifest says."""
    found = {}
    for each in (manifest(which) if isinstance(which, str) else which).inputs:
        rng = np.random.default_rng([seed, crc32(each.name.encode())])
        found[each.name] = each.draw(rng, each.shape)
    return found
