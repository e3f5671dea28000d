"""Diffusion models: blocks of their networks, a small one whole, and the decoder of the latents."""

from __future__ import annotations

from models.architectures.diffusion import dit, unet_attention, unet_residual, unet_small, vae_decoder
from models.draws import Normal, Steps
from models.feeds import signal
from models.manifest import Input, Model, Tolerance

LATENT = "Rombach et al., arXiv 2112.10752"
STEPS = Tolerance(cosine=0.998)  # in fp16 the angles of a step of up to 999 are off by up to a quarter


def latents(channels: int, side: int, *, batch: int = 1) -> tuple[Input, ...]:
    return signal(batch, channels, side, side, name="latent")


MODELS: tuple[Model, ...] = (
    Model(
        "diffusion-residual-16",
        unet_residual,
        f"{LATENT}: a residual block, a fifth of the channels",
        (*latents(64, 16), *signal(1, 256, name="time")),
        {"outputs": 128},
    ),
    Model(
        "diffusion-attention-16",
        unet_attention,
        f"{LATENT}: a spatial transformer, a fifth of the channels",
        (*latents(64, 16), *signal(1, 20, 96, name="context")),
    ),
    Model(
        "diffusion-unet-16",
        unet_small,
        f"{LATENT}: one level",
        (*latents(4, 16), Input("step", (1,), Steps(1000)), *signal(1, 20, 96, name="context")),
        tolerance=STEPS,
    ),
    Model(
        "diffusion-unet-16-b2",
        unet_small,
        f"{LATENT}: one level, with and without the text",
        (*latents(4, 16, batch=2), Input("step", (2,), Steps(1000)), *signal(2, 20, 96, name="context")),
        precisions=("fp16",),  # a step of 999 is none in bf16
        tolerance=STEPS,
    ),
    Model("vae-decoder-16", vae_decoder, f"{LATENT}: two levels of the decoder", latents(4, 16)),
    Model(
        "dit-block-64",
        dit,
        "Peebles and Xie, arXiv 2212.09748: one block, narrow",
        (Input("tokens", (2, 64, 96), Normal()), Input("condition", (2, 96), Normal())),
    ),
)
