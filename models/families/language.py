"""Language: encoders and decoders over tokens."""

from __future__ import annotations

from models.architectures.bert import bert
from models.architectures.decoders import bloom, llama, mixture, neox
from models.architectures.encoders import albert, encoder, fnet, t5_encoder, translation_decoder
from models.architectures.gpt2 import gpt2
from models.draws import Ids
from models.feeds import ALL_CHIPS, BATCH, bert_inputs, signal, tokens
from models.manifest import Input, Model

BERT = "Devlin et al., arXiv 1810.04805"
LLAMA = "Touvron et al., arXiv 2302.13971; shared keys: Ainslie et al., arXiv 2305.13245"

MODELS: tuple[Model, ...] = (
    Model(
        "bert-base-128",
        bert,
        f"{BERT}: 4 of 12 layers, 8192 of 30522 tokens",
        bert_inputs(1, 128, 8192),
        {"vocabulary": 8192, "layers": 4},
        opset=14,
        measured=True,
    ),
    Model(
        "gpt2-64",
        gpt2,
        "Radford et al., Language Models are Unsupervised Multitask Learners, 2019: 2 of 12 layers, 4096 tokens",
        (Input("input_ids", (1, 64), Ids(4096), BATCH),),
        {"vocabulary": 4096, "layers": 2},
        opset=14,
        measured=True,
    ),
    Model(
        "bert-tiny-64",
        bert,
        f"{BERT}; Turc et al., arXiv 1908.08962: 2 layers, 128 wide",
        bert_inputs(1, 64, 2000),
        {"vocabulary": 2000, "layers": 2, "width": 128, "heads": 2, "positions": 128},
        opset=14,
        chips=ALL_CHIPS,
    ),
    Model(
        "bert-tiny-32-b4",
        bert,
        f"{BERT}; Turc et al., arXiv 1908.08962: 2 layers, 128 wide",
        bert_inputs(4, 32, 2000),
        {"vocabulary": 2000, "layers": 2, "width": 128, "heads": 2, "positions": 128},
        opset=14,
        precisions=("bf16", "fp16"),
    ),
    Model(
        "bert-small-128",
        bert,
        f"{BERT}; Turc et al., arXiv 1908.08962: 1 of 4 layers, 512 wide",
        bert_inputs(1, 128, 2000),
        {"vocabulary": 2000, "layers": 1, "width": 512, "heads": 8},
        precisions=("fp16",),
    ),
    Model(
        "gpt2-tiny-32-b2",
        gpt2,
        "Radford et al., 2019: 2 layers, 128 wide",
        tokens(1000, 32, batch=2),
        {"vocabulary": 1000, "layers": 2, "width": 128, "heads": 4, "positions": 64},
        opset=14,
        precisions=("fp16", "bf16"),
    ),
    Model(
        "encoder-32",
        encoder,
        "Sanh et al., arXiv 1910.01108: 2 of 6 layers, 96 wide, norms first",
        tokens(1000, 32),
        {"vocabulary": 1000, "width": 96, "heads": 4, "layers": 2, "classes": 20},
        chips=ALL_CHIPS,
    ),
    Model(
        "albert-32",
        albert,
        "Lan et al., arXiv 1909.11942: 3 layers of the same weights, 128 wide",
        tokens(1000, 32),
        {"vocabulary": 1000, "factor": 32, "width": 128, "heads": 4, "layers": 3},
    ),
    Model(
        "t5-encoder-32",
        t5_encoder,
        "Raffel et al., arXiv 1910.10683: 2 layers, 96 wide",
        tokens(1000, 32),
        {"vocabulary": 1000, "width": 96, "heads": 4, "layers": 2},
    ),
    Model(
        "fnet-32",
        fnet,
        "Lee-Thorp et al., arXiv 2105.03824: 2 layers, 64 wide",
        tokens(1000, 32),
        {"vocabulary": 1000, "width": 64, "layers": 2},
    ),
    Model(
        "translation-decoder-16",
        translation_decoder,
        "Vaswani et al., arXiv 1706.03762: 2 layers, 64 wide",
        (*tokens(800, 16), *signal(1, 20, 64, name="memory")),
        {"vocabulary": 800, "heads": 4, "layers": 2},
    ),
    Model(
        "llama-32",
        llama,
        f"{LLAMA}: 2 layers, 128 wide, 8 heads in 2 groups",
        tokens(1000, 32),
        {"vocabulary": 1000, "width": 128, "heads": 8, "groups": 2, "layers": 2},
    ),
    Model(
        "llama-16-b4",
        llama,
        f"{LLAMA}: 1 layer, 128 wide, 4 heads in 2 groups",
        tokens(1000, 16, batch=4),
        {"vocabulary": 1000, "width": 128, "heads": 4, "groups": 2, "layers": 1},
        precisions=("bf16", "fp16"),
    ),
    Model(
        "bloom-32",
        bloom,
        "Le Scao et al., arXiv 2211.05100: 2 layers, 96 wide",
        tokens(1000, 32),
        {"vocabulary": 1000, "width": 96, "heads": 4, "layers": 2},
    ),
    Model(
        "gpt-neox-32",
        neox,
        "Black et al., arXiv 2204.06745: 2 layers, 96 wide",
        tokens(1000, 32),
        {"vocabulary": 1000, "width": 96, "heads": 4, "layers": 2},
    ),
    Model(
        "mixture-16",
        mixture,
        "Jiang et al., arXiv 2401.04088: one layer, two of four experts, 64 wide",
        tokens(500, 16),
        {"vocabulary": 500, "width": 64, "heads": 4, "experts": 4},
    ),
)
