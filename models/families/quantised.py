"""Quantised variants: QDQ pairs in models of the other families, and models of integer operators."""

from __future__ import annotations

from models.architectures.bert import bert
from models.architectures.mlp import mlp
from models.architectures.mobilenet_v1 import mobilenet_v1
from models.architectures.quantised import dynamic_mlp, qlinear_cnn
from models.architectures.resnet import residual_block, resnet
from models.architectures.vit import vit
from models.feeds import ALL_CHIPS, bert_inputs, image, signal
from models.manifest import Model, Tolerance

QDQ = "quantised as by Jacob et al., arXiv 1712.05877, weights per channel"
# A value that is nearly between two steps goes the other way when the sum before it is rounded otherwise.
STEPS = Tolerance(cosine=0.995, elements=False)

MODELS: tuple[Model, ...] = (
    Model(
        "mlp-int8-32",
        mlp,
        f"a classifier of features; {QDQ}",
        signal(32, 100),
        {"sizes": (128, 64)},
        chips=ALL_CHIPS,
        quantised="int8",
        tolerance=STEPS,
    ),
    Model(
        "resnet-block-int8-16",
        residual_block,
        f"He et al., arXiv 1512.03385; {QDQ}",
        image(16, channels=16, batch=2),
        chips=ALL_CHIPS,
        quantised="uint8",
        tolerance=STEPS,
    ),
    Model(
        "resnet18-int8-32",
        resnet,
        f"He et al., arXiv 1512.03385; {QDQ}",
        image(32),
        {"blocks": (1, 1, 1, 1), "classes": 100},
        quantised="int8",
        precisions=("fp16",),
        tolerance=STEPS,
    ),
    Model(
        "mobilenet-v1-int8-32",
        mobilenet_v1,
        f"Howard et al., arXiv 1704.04861; {QDQ}",
        image(32),
        {"multiplier": 0.25},
        quantised="uint8",
        precisions=("fp16",),
        tolerance=STEPS,
    ),
    Model(
        "bert-int8-32",
        bert,
        f"Devlin et al., arXiv 1810.04805: 2 layers, 128 wide; {QDQ}",
        bert_inputs(1, 32, 1000),
        {"vocabulary": 1000, "layers": 2, "width": 128, "heads": 2, "positions": 64},
        quantised="int8",
        precisions=("fp32", "fp16"),
        tolerance=STEPS,
    ),
    Model(
        "vit-int8-32-b2",
        vit,
        f"Dosovitskiy et al., arXiv 2010.11929: 1 layer, 64 wide; {QDQ}",
        image(32, batch=2),
        {"patch": 8, "width": 64, "layers": 1, "heads": 4, "classes": 100},
        quantised="uint8",
        precisions=("fp16",),
        tolerance=STEPS,
    ),
    Model(
        "qlinear-cnn-24",
        qlinear_cnn,
        "Jacob et al., arXiv 1712.05877: integers from the first node to the last",
        image(24, batch=2),
        chips=ALL_CHIPS,
        tolerance=STEPS,
    ),
    Model(
        "dynamic-mlp-16",
        dynamic_mlp,
        "as onnxruntime's dynamic quantisation writes products",
        signal(16, 96),
        {"sizes": (64, 48)},
        chips=ALL_CHIPS,
        tolerance=STEPS,
    ),
)
