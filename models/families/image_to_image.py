"""From image to image: super-resolution, generators."""

from __future__ import annotations

from models.architectures.generators import cyclegan, dcgan
from models.architectures.super_resolution import edsr, espcn, esrgan, fsrcnn, srcnn
from models.feeds import ALL_CHIPS, image, signal
from models.manifest import Model

SRCNN = "Dong et al., arXiv 1501.00092: half the filters"
ESPCN = "Shi et al., arXiv 1609.05158"
EDSR = "Lim et al., arXiv 1707.02921: 32 of 256 channels"

MODELS: tuple[Model, ...] = (
    Model("srcnn-24", srcnn, SRCNN, image(24, channels=1)),
    Model("fsrcnn-24", fsrcnn, "Dong et al., arXiv 1608.00367: two of four mapping layers", image(24, channels=1)),
    Model("espcn-32", espcn, ESPCN, image(32), chips=ALL_CHIPS),
    Model("espcn-32-b4", espcn, ESPCN, image(32, batch=4), precisions=("fp16", "bf16")),
    Model("edsr-32", edsr, f"{EDSR}, 4 of 16 blocks", image(32)),
    Model("edsr-24-b4", edsr, f"{EDSR}, 2 of 16 blocks", image(24, batch=4), {"blocks": 2}, precisions=("fp16",)),
    Model("esrgan-24", esrgan, "Wang et al., arXiv 1809.00219: 1 of 23 blocks", image(24)),
    Model("dcgan-32", dcgan, "Radford et al., arXiv 1511.06434", signal(4, 64, 1, 1, name="noise")),
    Model("cyclegan-48", cyclegan, "Zhu et al., arXiv 1703.10593: 2 of 9 blocks", image(48)),
)
