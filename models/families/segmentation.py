"""Segmentation: a class for every pixel."""

from __future__ import annotations

from models.architectures.segmenters import deeplab, fcn, pspnet
from models.architectures.unet import unet
from models.architectures.unet3d import unet3d
from models.feeds import image, signal
from models.manifest import Model, Tolerance

UNET = "Ronneberger et al., arXiv 1505.04597, padded and with batch norm"

MODELS: tuple[Model, ...] = (
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
        measured=True,
    ),
    Model("unet-resize-64", unet, UNET, image(64), {"width": 16, "transposed": False}, opset=13, measured=True),
    Model("unet-32-b4", unet, UNET, image(32, batch=4), {"width": 8, "depth": 2}, precisions=("fp16", "bf16")),
    Model("unet-24-tiny", unet, UNET, image(24, channels=1), {"width": 4, "depth": 2}, chips=("tiny",)),
    Model("fcn-64", fcn, "Long et al., arXiv 1411.4038: a small backbone", image(64)),
    Model("deeplab-v3-64", deeplab, "Chen et al., arXiv 1706.05587: a small backbone", image(64)),
    Model("pspnet-64", pspnet, "Zhao et al., arXiv 1612.01105: a small backbone", image(64)),
    Model("unet3d-12", unet3d, "Cicek et al., arXiv 1606.06650: one level", signal(1, 1, 12, 12, 12, name="volume")),
)
