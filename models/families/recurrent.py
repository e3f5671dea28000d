"""Networks with a state that goes from step to step."""

from __future__ import annotations

from models.architectures.lstm import lstm
from models.architectures.recurrent import crnn, elman, gru
from models.draws import Ids
from models.feeds import ALL_CHIPS, signal, tokens
from models.manifest import Input, Model

LSTM = "Hochreiter and Schmidhuber, Neural Computation 9(8), 1997"
GRU = "Cho et al., arXiv 1406.1078"

MODELS: tuple[Model, ...] = (
    Model(
        "lstm-16",
        lstm,
        f"{LSTM}: two layers on numbers",
        signal(4, 16, 32),
        {"hidden": 64, "layers": 2},
        opset=14,
        chips=ALL_CHIPS,
        tier="smoke",
        measured=True,
    ),
    Model(
        "bilstm-tokens-16",
        lstm,
        f"{LSTM}: both directions, on embedded tokens",
        (Input("ids", (4, 16), Ids(1000)),),
        {"hidden": 48, "bidirectional": True, "vocabulary": 1000, "width": 64},
        opset=14,
        chips=ALL_CHIPS,
        measured=True,
    ),
    Model("lstm-8-b16", lstm, f"{LSTM}: one layer", signal(16, 8, 32), {"hidden": 32}, precisions=("bf16", "fp16")),
    Model("gru-16", gru, GRU, signal(4, 16, 32), {"hidden": 48, "layers": 2}, opset=14, chips=ALL_CHIPS),
    Model("gru-8-b16", gru, GRU, signal(16, 8, 24), {"hidden": 32}, precisions=("fp16", "bf16")),
    Model(
        "rnn-tokens-12",
        elman,
        "Elman, Cognitive Science 14(2), 1990",
        tokens(500, 12, batch=4, name="ids"),
        {"vocabulary": 500, "hidden": 48},
        chips=ALL_CHIPS,
    ),
    Model("crnn-16x64", crnn, "Shi et al., arXiv 1507.05717: narrow", signal(1, 1, 16, 64, name="image")),
)
