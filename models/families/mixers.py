"""Networks that mix tokens without attention."""

from __future__ import annotations

from models.architectures.mixers import convmixer, gmlp, mlp_mixer, poolformer
from models.feeds import ALL_CHIPS, image
from models.manifest import Model

MIXER = "Tolstikhin et al., arXiv 2105.01601: 2 layers, 64 wide"

MODELS: tuple[Model, ...] = (
    Model("mlp-mixer-64", mlp_mixer, MIXER, image(64)),
    Model("mlp-mixer-48-b8", mlp_mixer, MIXER, image(48, batch=8), precisions=("fp16", "bf16")),
    Model("gmlp-64", gmlp, "Liu et al., arXiv 2105.08050: 2 layers, 64 wide", image(64)),
    Model(
        "convmixer-32",
        convmixer,
        "Trockman and Kolter, arXiv 2201.09792: 2 layers, 64 wide",
        image(32),
        chips=ALL_CHIPS,
    ),
    Model("poolformer-64", poolformer, "Yu et al., arXiv 2111.11418: 2 blocks of one stage", image(64)),
)
