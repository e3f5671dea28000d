"""Speech and sound: frames of features, or samples."""

from __future__ import annotations

from models.architectures.conformer import conformer
from models.architectures.convolutional_speech import ds_cnn, quartznet, tcn, wavenet
from models.architectures.recurrent import deepspeech2
from models.architectures.transformer_speech import wav2vec2, whisper_decoder, whisper_encoder
from models.feeds import ALL_CHIPS, signal, tokens
from models.manifest import Model

CONFORMER = "Gulati et al., arXiv 2005.08100"
WHISPER = "Radford et al., arXiv 2212.04356"

MODELS: tuple[Model, ...] = (
    Model(
        "conformer-small-128",
        conformer,
        f"{CONFORMER}: 2 of 16 layers, 64 of 144 wide, with learned positions",
        signal(1, 128, 40, name="features"),
        {"width": 64, "heads": 4, "layers": 2, "classes": 32},
    ),
    Model(
        "conformer-block-144",
        conformer,
        f"{CONFORMER}: one block of the small network",
        signal(2, 100, 144, name="features"),
        {"width": 144, "heads": 4, "layers": 1, "kernel": 31, "subsampled": False},
    ),
    Model(
        "conformer-small-64-b4",
        conformer,
        f"{CONFORMER}: 1 of 16 layers, 64 of 144 wide, with learned positions",
        signal(4, 64, 40, name="features"),
        {"width": 64, "heads": 4, "layers": 1, "classes": 32},
        precisions=("bf16", "fp16"),
    ),
    Model(
        "deepspeech2-32", deepspeech2, "Amodei et al., arXiv 1512.02595: narrow", signal(1, 1, 40, 32, name="features")
    ),
    Model(
        "quartznet-64",
        quartznet,
        "Kriman et al., arXiv 1910.10261: 2 of 15 blocks",
        signal(1, 40, 64, name="features"),
    ),
    Model("tcn-64", tcn, "Bai et al., arXiv 1803.01271: 4 levels", signal(4, 16, 64), chips=ALL_CHIPS),
    Model("wavenet-64", wavenet, "van den Oord et al., arXiv 1609.03499: 5 of 30 layers", signal(2, 24, 64)),
    Model(
        "ds-cnn-49",
        ds_cnn,
        "Zhang et al., arXiv 1711.07128: the small network",
        signal(1, 1, 49, 10, name="features"),
        {"blocks": 2},
        chips=ALL_CHIPS,
    ),
    Model("wav2vec2-1000", wav2vec2, "Baevski et al., arXiv 2006.11477: narrow, 1 of 12 layers", signal(1, 1, 1000)),
    Model(
        "whisper-encoder-64",
        whisper_encoder,
        f"{WHISPER}: 2 of 4 layers, 64 of 384 wide",
        signal(1, 40, 64, name="features"),
    ),
    Model(
        "whisper-decoder-16",
        whisper_decoder,
        f"{WHISPER}: 1 of 4 layers, 64 of 384 wide",
        (*tokens(1000, 16, name="tokens"), *signal(1, 32, 64, name="encoded")),
        {"vocabulary": 1000},
    ),
)
