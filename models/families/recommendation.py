"""Recommenders and other networks on tables: embeddings, products of features, MLPs."""

from __future__ import annotations

from models.architectures.dlrm import dlrm
from models.architectures.mlp import mlp
from models.architectures.recommenders import dcn, deepfm, din, ncf, wide_and_deep
from models.architectures.structures import gcn, pointnet, vae
from models.draws import Edges, Ids, Normal
from models.feeds import ALL_CHIPS, BATCH, clicks, signal, tokens
from models.manifest import Input, Model

DLRM = "Naumov et al., arXiv 1906.00091"
ROWS = (1000, 200, 4000, 50, 800, 16)

MODELS: tuple[Model, ...] = (
    Model(
        "mlp-256",
        mlp,
        "Rumelhart et al., Nature 323, 1986; the size of an MNIST classifier",
        (Input("x", (16, 784), Normal(), BATCH),),
        {"sizes": (256, 256)},
        opset=13,
        chips=ALL_CHIPS,
        tier="smoke",
        measured=True,
    ),
    Model(
        "dlrm-64",
        dlrm,
        f"{DLRM}: six small tables",
        clicks(64, 13, ROWS),
        {"rows": ROWS},
        opset=13,
        chips=ALL_CHIPS,
        tier="smoke",
    ),
    Model(
        "dlrm-multi-hot-32",
        dlrm,
        f"{DLRM}: four rows of each table are summed",
        clicks(32, 13, ROWS, lookups=4),
        {"rows": ROWS, "width": 32, "bottom": (128, 64), "top": (128, 64)},
        opset=13,
    ),
    Model("dlrm-4", dlrm, f"{DLRM}: four samples", clicks(4, 13, ROWS), {"rows": ROWS}, chips=ALL_CHIPS),
    Model(
        "mlp-wide-64",
        mlp,
        "a classifier of features, in bf16",
        signal(64, 100),
        {"sizes": (300, 200), "classes": 7},
        chips=ALL_CHIPS,
        precisions=("bf16",),
    ),
    Model("wide-deep-32", wide_and_deep, "Cheng et al., arXiv 1606.07792", clicks(32, 13, ROWS), {"rows": ROWS}),
    Model("deepfm-32", deepfm, "Guo et al., arXiv 1703.04247", clicks(32, 13, ROWS), {"rows": ROWS}),
    Model("dcn-v2-32", dcn, "Wang et al., arXiv 2008.13535", clicks(32, 13, ROWS), {"rows": ROWS}, chips=ALL_CHIPS),
    Model(
        "din-16",
        din,
        "Zhou et al., arXiv 1706.06978",
        (*tokens(800, 1, batch=16, name="item"), *tokens(800, 20, batch=16, name="history")),
        {"count": 800},
    ),
    Model(
        "ncf-64",
        ncf,
        "He et al., arXiv 1708.05031",
        (Input("user", (64, 1), Ids(600)), Input("item", (64, 1), Ids(900))),
        {"users": 600, "items": 900},
        chips=ALL_CHIPS,
    ),
    Model("pointnet-24", pointnet, "Qi et al., arXiv 1612.00593: narrow", signal(2, 3, 24, name="points")),
    Model(
        "gcn-100",
        gcn,
        "Kipf and Welling, arXiv 1609.02907",
        (*signal(100, 50, name="nodes"), Input("adjacency", (100, 100), Edges(0.05))),
        chips=ALL_CHIPS,
    ),
    Model(
        "vae-16",
        vae,
        "Kingma and Welling, arXiv 1312.6114",
        (*signal(16, 144), *signal(16, 12, name="noise")),
        chips=ALL_CHIPS,
    ),
)
