"""LSTM, GRU and RNN: those that one core is enough for are one kernel, the others are unrolled over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.operators.graph import Graph, Value
from compiler.operators.recurrent_ends import IDLE_GRU, IDLE_LSTM, IDLE_RNN
from compiler.operators.recurrent_network import Network, States
from compiler.operators.registry import composition

Step = Callable[[Value, States], States]


@composition("LSTM")
def lstm(
    graph: Graph,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    initial_c: Value | None = None,
    p: Value | None = None,
    *,
    hidden_size: int | None = None,
    direction: str = "forward",
    layout: int = 0,
    clip: float = 0.0,
    input_forget: bool = False,
    activations: tuple[str, ...] | None = None,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
) -> tuple[Value, ...]:
    network = Network.of(
        graph,
        (x, w, r, b, sequence_lens),
        4,
        ("Sigmoid", "Tanh", "Tanh"),
        hidden_size=hidden_size,
        direction=direction,
        layout=layout,
        clip=clip,
        activations=activations,
        alphas=activation_alpha,
        betas=activation_beta,
    )
    if p is None and network.is_one_kernel(IDLE_LSTM, initial_h):
        cell = network.all_initial(initial_c)
        return network.in_one_kernel("LstmSteps", IDLE_LSTM, initial_h, cell, input_forget=input_forget)
    runs = []
    for number in range(network.directions):
        attributes = network.cell_attributes(number)
        weights = network.part(r, number)
        peepholes = None if p is None else network.part(p, number)

        def step(product: Value, states: States, own: Any = (weights, peepholes, attributes)) -> States:
            weights, peepholes, attributes = own
            gates = graph.call("Gemm", states[0], weights, product, transB=1)
            cell = graph.call(
                "tilewright::LstmState", gates, states[1], peepholes, input_forget=input_forget, **attributes
            )
            return graph.call("tilewright::LstmOutput", gates, cell, peepholes, **attributes), cell

        products = network.input_products(number, network.summed_bias(number))
        initial = (network.initial(initial_h, number), network.initial(initial_c, number))
        runs.append(network.run(number, products, initial, step))
    return network.collected(runs)


@composition("GRU")
def gru(
    graph: Graph,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    *,
    hidden_size: int | None = None,
    direction: str = "forward",
    layout: int = 0,
    clip: float = 0.0,
    linear_before_reset: bool = False,
    activations: tuple[str, ...] | None = None,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
) -> tuple[Value, ...]:
    network = Network.of(
        graph,
        (x, w, r, b, sequence_lens),
        3,
        ("Sigmoid", "Tanh"),
        hidden_size=hidden_size,
        direction=direction,
        layout=layout,
        clip=clip,
        activations=activations,
        alphas=activation_alpha,
        betas=activation_beta,
    )
    if network.is_one_kernel(IDLE_GRU, initial_h):
        if not linear_before_reset:
            return network.in_one_kernel("GruSteps", IDLE_GRU, initial_h)
        apart = network.bias_behind_product()
        return network.in_one_kernel("GruLinearSteps", IDLE_GRU, initial_h, apart, bias_apart=True)
    make_step = _linear_gru_step if linear_before_reset else _gru_step
    runs = []
    for number in range(network.directions):
        bias, step = make_step(network, number)
        products = network.input_products(number, bias)
        runs.append(network.run(number, products, (network.initial(initial_h, number),), step))
    return network.collected(runs)


def _gru_step(network: Network, number: int) -> tuple[Value | None, Step]:
    """The bias that goes with the inputs, and a step that resets the state before the product."""
    graph, hidden, attributes = network.graph, network.hidden, network.cell_attributes(number)
    gate_weights = network.part(network.r, number, 0, 2 * hidden)
    candidate_weights = network.part(network.r, number, 2 * hidden)

    def step(product: Value, states: States) -> States:
        (state,) = states
        for_gates, for_candidate = graph.call("Split", product, np.array([2 * hidden, hidden]), axis=1)
        gates = graph.call("Gemm", state, gate_weights, for_gates, transB=1)
        kept = graph.call("tilewright::GruReset", gates, state, **attributes)
        candidate = graph.call("Gemm", kept, candidate_weights, for_candidate, transB=1)
        return (graph.call("tilewright::GruOutput", gates, candidate, state, **attributes),)

    return network.summed_bias(number), step


def _linear_gru_step(network: Network, number: int) -> tuple[Value | None, Step]:
    """The bias that goes with the inputs, and a step that resets the product with the state."""
    graph, attributes = network.graph, network.cell_attributes(number)
    weights = network.part(network.r, number)
    pair = network.biases(number)

    def step(product: Value, states: States) -> States:
        from_state = graph.call("Gemm", states[0], weights, None if pair is None else pair[1], transB=1)
        return (graph.call("tilewright::GruLinearOutput", product, from_state, states[0], **attributes),)

    return None if pair is None else pair[0], step


@composition("RNN")
def rnn(
    graph: Graph,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    *,
    hidden_size: int | None = None,
    direction: str = "forward",
    layout: int = 0,
    clip: float = 0.0,
    activations: tuple[str, ...] | None = None,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
) -> tuple[Value, ...]:
    network = Network.of(
        graph,
        (x, w, r, b, sequence_lens),
        1,
        ("Tanh",),
        hidden_size=hidden_size,
        direction=direction,
        layout=layout,
        clip=clip,
        activations=activations,
        alphas=activation_alpha,
        betas=activation_beta,
    )
    if network.is_one_kernel(IDLE_RNN, initial_h):
        return network.in_one_kernel("RnnSteps", IDLE_RNN, initial_h)
    runs = []
    for number in range(network.directions):
        weights, attributes = network.part(r, number), network.cell_attributes(number)

        def step(product: Value, states: States, own: Any = (weights, attributes)) -> States:
            gates = graph.call("Gemm", states[0], own[0], product, transB=1)
            return (graph.call("tilewright::RnnOutput", gates, **own[1]),)

        products = network.input_products(number, network.summed_bias(number))
        runs.append(network.run(number, products, (network.initial(initial_h, number),), step))
    return network.collected(runs)
