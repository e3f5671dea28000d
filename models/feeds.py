"""Inputs as families of models share them."""

from __future__ import annotations

from models.draws import Ids, Normal, Padding
from models.manifest import Draw, Input

ALL_CHIPS = ("tiny", "tw1", "tw2")
BATCH = {0: "batch"}


def image(size: int, *, channels: int = 3, batch: int = 1) -> tuple[Input, ...]:
    return (Input("image", (batch, channels, size, size), Normal()),)


def signal(*shape: int, name: str = "x") -> tuple[Input, ...]:
    """Numbers of any shape, the batch first."""
    return (Input(name, shape, Normal()),)


def tokens(vocabulary: int, length: int, *, batch: int = 1, name: str = "input_ids") -> tuple[Input, ...]:
    return (Input(name, (batch, length), Ids(vocabulary)),)


def bert_inputs(batch: int, length: int, vocabulary: int) -> tuple[Input, ...]:
    draws: dict[str, Draw] = {"input_ids": Ids(vocabulary), "attention_mask": Padding(), "token_type_ids": Ids(2)}
    return tuple(Input(name, (batch, length), draw, BATCH) for name, draw in draws.items())


def clicks(batch: int, dense: int, rows: tuple[int, ...], lookups: int = 1) -> tuple[Input, ...]:
    """What a recommender reads: numbers, and ids of each of several tables."""
    sparse = (Input(f"ids{index}", (batch, lookups), Ids(count)) for index, count in enumerate(rows))
    return (Input("dense", (batch, dense), Normal()), *sparse)
