"""Mixtures of experts of onnxruntime's own domain, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.operators.test_contributed import RNG, check, floats

EXPERTS, HIDDEN, INNER = 4, 32, 48


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "swiglu", "identity"])
@pytest.mark.parametrize(("tokens", "k"), [(5, 2), (1, 2), (3, 1)])
@pytest.mark.parametrize("normalised", [0, 1])
def test_some_experts_for_each_token(activation: str, tokens: int, k: int, normalised: int) -> None:
    gates = 2 if activation == "swiglu" else 1
    given: list[Any] = [("x", floats(tokens, HIDDEN)), ("router", floats(tokens, EXPERTS))]
    given += [("fc1", floats(EXPERTS, gates * INNER, HIDDEN, scale=0.2)), ("b1", floats(EXPERTS, gates * INNER))]
    given += [("fc2", floats(EXPERTS, HIDDEN, INNER, scale=0.2)), ("b2", floats(EXPERTS, HIDDEN))]
    options: dict[str, Any] = {"k": k, "activation_type": activation, "normalize_routing_weights": normalised}
    if activation == "swiglu":
        options |= {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 2.0}
    check("MoE", given, constants=["fc1", "b1", "fc2", "b2"], off=1e-3, **options)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("zero_points", [True, False])
def test_experts_with_weights_of_few_bits(bits: int, block: int, zero_points: bool) -> None:
    packed = 8 // bits
    given: list[Any] = [("x", floats(1, 2, HIDDEN)), ("router", floats(2, EXPERTS))]
    zeros = []
    for name, outputs, inputs in (("fc1", 2 * INNER, HIDDEN), ("fc2", HIDDEN, INNER)):
        given.append((name, RNG.integers(0, 256, (EXPERTS, outputs, inputs // packed)).astype(np.uint8)))
        shape = (EXPERTS, outputs, inputs // block) if block else (EXPERTS, outputs)
        given.append((f"{name}_scales", abs(floats(*shape, scale=0.02 if bits == 4 else 0.002))))
        given.append((f"{name}_bias", floats(EXPERTS, outputs)))
        own = (*shape[:-1], -(-shape[-1] // packed))
        zeros.append((f"{name}_zero", RNG.integers(0, 256, own).astype(np.uint8)))
    constants = [name for name, _ in given[2:]]
    if zero_points:
        given += [None, None, None, *zeros]
        constants += [name for name, _ in zeros]
    options: dict[str, Any] = {"block_size": block} if block else {}
    off = 0.1 if block and bits == 8 else 5e-3  # onnxruntime rounds activations to bytes there
    options |= {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0, "swiglu_fusion": 1}
    check(
        "QMoE", given, constants=constants, k=2, expert_weight_bits=bits, activation_type="swiglu",
        normalize_routing_weights=1, off=off, **options,
    )  # fmt: skip
