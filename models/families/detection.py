"""Detection: boxes and what they hold."""

from __future__ import annotations

from models.architectures.single_shot import anchor_free, detr, retinanet, ssd
from models.architectures.yolo import yolo
from models.feeds import image
from models.manifest import Model

MODELS: tuple[Model, ...] = (
    Model(
        "yolo-128",
        yolo,
        "Redmon and Farhadi, arXiv 1804.02767: two grids, a small backbone",
        image(128),
        {"classes": 20},
        opset=13,
        measured=True,
    ),
    Model("ssd-64", ssd, "Liu et al., arXiv 1512.02325: three levels of a small backbone", image(64)),
    Model("retinanet-64", retinanet, "Lin et al., arXiv 1708.02002: three levels of a small backbone", image(64)),
    Model("yolo-v8-64", anchor_free, "the anchor-free head of YOLO-v8 on a small backbone", image(64)),
    Model("yolo-v8-64-b4", anchor_free, "the same, on four images", image(64, batch=4), precisions=("fp16", "bf16")),
    Model("detr-64", detr, "Carion et al., arXiv 2005.12872: one layer each way, 20 queries", image(64)),
)
