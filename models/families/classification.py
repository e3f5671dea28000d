"""Image classification by convolutions."""

from __future__ import annotations

from models.architectures.alexnet import alexnet
from models.architectures.convnext import convnext
from models.architectures.densenet import densenet
from models.architectures.digits_cnn import digits_cnn
from models.architectures.efficientnet import efficientnet_b0
from models.architectures.googlenet import googlenet
from models.architectures.mobilenet_v1 import mobilenet_v1
from models.architectures.mobilenet_v2 import mobilenet_v2
from models.architectures.mobilenet_v3 import mobilenet_v3_small
from models.architectures.regnet import regnet_y
from models.architectures.repvgg import repvgg
from models.architectures.resnet import residual_block, resnet
from models.architectures.resnext import resnext
from models.architectures.shufflenet_v2 import shufflenet_v2
from models.architectures.squeezenet import squeezenet
from models.architectures.vgg import vgg
from models.architectures.xception import xception
from models.digits import dataset
from models.draws import Digits
from models.feeds import ALL_CHIPS, image
from models.manifest import Input, Model

RESNET = "He et al., arXiv 1512.03385"
SANDLER = "Sandler et al., arXiv 1801.04381"
MOBILENET = "Howard et al., arXiv 1704.04861"
VGG = "Simonyan and Zisserman, arXiv 1409.1556: half the channels"
VGG11 = ((32,), (64,), (128, 128), (256, 256), (256, 256))

MODELS: tuple[Model, ...] = (
    Model(
        "digits-cnn",
        digits_cnn,
        "LeNet-like, trained by models/train_digits.py on the UCI handwritten digits",
        (Input("image", (30, 1, 8, 8), Digits()),),
        opset=13,
        chips=ALL_CHIPS,
        tier="smoke",
        measured=True,
        held_out=dataset.held_out,
    ),
    Model(
        "resnet-block-16",
        residual_block,
        RESNET,
        image(16, channels=16),
        opset=13,
        chips=ALL_CHIPS,
        tier="smoke",
        measured=True,
    ),
    Model("resnet18-64", resnet, RESNET, image(64), {"blocks": (2, 2, 2, 2)}, opset=13, measured=True),
    Model(
        "resnet50-224",
        resnet,
        RESNET,
        image(224),
        {"blocks": (3, 4, 6, 3), "bottleneck": True},
        opset=13,
        measured=True,
    ),
    Model("mobilenet-v2-96", mobilenet_v2, SANDLER, image(96), opset=13, measured=True),
    Model("squeezenet1.1-112", squeezenet, "Iandola et al., arXiv 1602.07360", image(112), opset=11, measured=True),
    Model("densenet121-64", densenet, "Huang et al., arXiv 1608.06993", image(64), measured=True),
    Model("efficientnet-b0-64", efficientnet_b0, "Tan and Le, arXiv 1905.11946", image(64), measured=True),
    Model("resnet18-32-b4", resnet, RESNET, image(32, batch=4), {"blocks": (2, 2, 2, 2)}, precisions=("fp16",)),
    Model("resnet34-32", resnet, RESNET, image(32), {"blocks": (3, 4, 6, 3)}, precisions=("bf16",)),
    Model(
        "resnet26-32-b4",
        resnet,
        RESNET,
        image(32, batch=4),
        {"blocks": (2, 2, 2, 2), "bottleneck": True},
        precisions=("fp16",),
    ),
    Model("resnet-block-16-b8", residual_block, RESNET, image(16, channels=16, batch=8), chips=ALL_CHIPS),
    Model("resnet-block-17-ragged", residual_block, RESNET, image(17, channels=23), chips=ALL_CHIPS),
    Model("mobilenet-v1-0.25-64", mobilenet_v1, MOBILENET, image(64), {"multiplier": 0.25}, chips=ALL_CHIPS),
    Model("mobilenet-v1-64-b4", mobilenet_v1, MOBILENET, image(64, batch=4), {"multiplier": 0.5}, precisions=("fp16",)),
    Model("mobilenet-v2-32-b4", mobilenet_v2, SANDLER, image(32, batch=4), precisions=("bf16",)),
    Model(
        "mobilenet-v3-small-64",
        mobilenet_v3_small,
        "Howard et al., arXiv 1905.02244: 8 of 11 blocks",
        image(64),
    ),
    Model(
        "shufflenet-v2-64",
        shufflenet_v2,
        "Ma et al., arXiv 1807.11164: half the units",
        image(64),
        opset=13,
    ),
    Model("vgg11-32", vgg, VGG, image(32), {"stages": VGG11}),
    Model("vgg11-32-b8", vgg, VGG, image(32, batch=8), {"stages": VGG11}, precisions=("fp16", "bf16")),
    Model("alexnet-99", alexnet, "Krizhevsky et al., NIPS 2012: a third of the channels", image(99)),
    Model("googlenet-64", googlenet, "Szegedy et al., arXiv 1409.4842: five of nine modules", image(64)),
    Model(
        "convnext-micro-64",
        convnext,
        "Liu et al., arXiv 2201.03545: two stages, narrow",
        image(64),
        {"widths": (40, 80), "depths": (2, 2)},
    ),
    Model(
        "regnet-y-64",
        regnet_y,
        "Radosavovic et al., arXiv 2003.13678: of about 200 MF",
        image(64),
        {"widths": (24, 56, 152), "depths": (1, 1, 2), "group": 8},
    ),
    Model(
        "resnext-64",
        resnext,
        "Xie et al., arXiv 1611.05431: two stages, 8 groups",
        image(64),
        {"widths": (64, 128), "depths": (1, 2), "cardinality": 8},
    ),
    Model(
        "xception-48",
        xception,
        "Chollet, arXiv 1610.02357: narrow, one middle block",
        image(48),
        {"middle": 1},
    ),
    Model(
        "repvgg-32",
        repvgg,
        "Ding et al., arXiv 2101.03697: as it is trained",
        image(32),
        {"widths": (32, 48, 96), "depths": (1, 2, 2)},
        chips=ALL_CHIPS,
    ),
)
