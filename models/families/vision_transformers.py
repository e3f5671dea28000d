"""Vision transformers."""

from __future__ import annotations

from models.architectures.hybrids import clip, mobilevit, pvt, segformer
from models.architectures.swin import swin
from models.architectures.vit import vit
from models.feeds import image, tokens
from models.manifest import Model

VIT = "Dosovitskiy et al., arXiv 2010.11929"

MODELS: tuple[Model, ...] = (
    Model("vit-tiny-224", vit, f"{VIT}; Touvron et al., arXiv 2012.12877", image(224), measured=True),
    Model(
        "vit-micro-32-b4",
        vit,
        f"{VIT}: 2 layers, 64 wide",
        image(32, batch=4),
        {"patch": 8, "width": 64, "layers": 2, "heads": 4, "classes": 100},
        precisions=("fp16", "bf16"),
    ),
    Model(
        "vit-small-64",
        vit,
        f"{VIT}: 2 of 12 layers of the small network",
        image(64),
        {"patch": 8, "width": 384, "layers": 2, "heads": 6},
    ),
    Model("swin-micro-32", swin, "Liu et al., arXiv 2103.14030: two stages, windows of 4 x 4", image(32)),
    Model("mobilevit-32", mobilevit, "Mehta and Rastegari, arXiv 2110.02178: one block", image(32)),
    Model("pvt-32", pvt, "Wang et al., arXiv 2102.12122: two stages of one block", image(32)),
    Model("segformer-32", segformer, "Xie et al., arXiv 2105.15203: two stages of one block", image(32)),
    Model(
        "clip-32",
        clip,
        "Radford et al., arXiv 2103.00020: one layer each, 64 wide",
        (*image(32, batch=3), *tokens(500, 12, batch=3, name="ids")),
        {"vocabulary": 500},
    ),
)
