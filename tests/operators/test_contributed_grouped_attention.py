"""GroupQueryAttention against onnxruntime: prompts, single tokens and chunks, with caches that grow or have room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.errors import UnsupportedError
from compiler.frontend import import_model
from models import checks
from tests.frontend.cpu import run
from tests.operators.test_contributed import Array, check, floats, model

pytestmark = pytest.mark.usefixtures("as_planned")

OPERATOR, OUTPUTS = "GroupQueryAttention", ["y", "present_key", "present_value"]
HEADS, GROUPS, WIDTH = 4, 2, 16
COUNTS = {"num_heads": HEADS, "kv_num_heads": GROUPS}
Given = list[tuple[str, Array] | None]


def inputs(
    queries: int,
    ends: Sequence[int],
    total: int,
    past: int | None = None,
    is_packed: bool = False,
    turned: int = 0,
    **others: Array,
) -> Given:
    """``ends`` are the lengths of the sequences; ``turned`` is of how many elements of a head rotary embedding is."""
    batch = len(ends)
    widths = [HEADS * WIDTH, GROUPS * WIDTH, GROUPS * WIDTH]
    given: Given = [(name, floats(batch, queries, width)) for name, width in zip("qkv", widths, strict=True)]
    if is_packed:
        given = [("q", floats(batch, queries, sum(widths))), None, None]
    for name in ("past_key", "past_value"):
        given.append(None if past is None else (name, floats(batch, GROUPS, past, WIDTH)))
    given.append(("last", np.array(ends, np.int32) - 1))
    given.append(("total", np.array([total], np.int32)))
    angles = np.arange(max(total, past or 0) + 2)[:, None] * (0.3 * np.arange(1, turned // 2 + 1))
    for name, table in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
        given.append((name, table.astype(np.float32)) if turned else None)
    names = ["position_ids", "bias", "sink", "k_scale", "v_scale", "q_norm", "k_norm"]
    given += [(name, others[name]) if name in others else None for name in names]
    while given[-1] is None:
        given.pop()
    return given


def known(given: Given, *names: str) -> list[str]:
    return [one[0] for one in given if one is not None and one[0] in names]


PROMPTS: dict[str, tuple[Any, ...]] = {
    "all of a length": (inputs(5, [5, 5], 5, turned=16), {}),
    "padded": (inputs(5, [5, 3], 5, turned=16), {}),
    "empty past": (inputs(5, [5, 4], 5, past=0), {}),
    "room": (inputs(5, [5, 3], 5, past=9, turned=16), {"rotary_interleaved": 1}),
    "packed": (inputs(5, [5, 5], 5, is_packed=True, turned=16), {}),
    "window": (inputs(5, [5, 5], 5), {"local_window_size": 2}),
    "both directions": (inputs(5, [5, 3], 5), {"causal": 0}),
    "softcap": (inputs(5, [5, 5], 5), {"softcap": 1.5, "scale": 0.4}),
    "smooth": (inputs(5, [5, 4], 5, past=7), {"smooth_softmax": 1}),
    "sink": (inputs(5, [5, 5], 5, sink=floats(HEADS)), {"local_window_size": 2}),
    "bias": (inputs(5, [5, 5], 5, bias=floats(1, 1, 5, 5)), {}),
    "bias by head": (inputs(5, [5, 3], 5, past=8, bias=floats(2, HEADS, 5, 5)), {}),
    "positions": (inputs(5, [5, 5], 5, turned=16, position_ids=np.array([[1, 5, 2, 2, 0], [0, 1, 2, 3, 4]])), {}),
}
TOKENS: dict[str, tuple[Any, ...]] = {
    "growing": (inputs(1, [7, 7], 7, past=6, turned=16), {}),
    "of lengths": (inputs(1, [7, 4], 7, past=6, turned=16), {"rotary_interleaved": 1}),
    "room": (inputs(1, [7, 4], 7, past=12, turned=16), {}),
    "packed": (inputs(1, [7, 7], 7, past=12, is_packed=True, turned=16), {}),
    "window": (inputs(1, [9, 5], 9, past=8), {"local_window_size": 3, "softcap": 2.0}),
    "smooth": (inputs(1, [9, 5], 9, past=8), {"smooth_softmax": 1, "local_window_size": 3}),
    "sink": (inputs(1, [9, 5], 9, past=12, sink=floats(HEADS)), {}),
    "bias": (inputs(1, [9, 5], 9, past=12, bias=floats(2, HEADS, 1, 9)), {}),
    "positions": (inputs(1, [9, 5], 9, past=8, turned=16, position_ids=np.array([[3], [4]])), {}),
    "chunk": (inputs(3, [8], 8, past=5, turned=16), {}),
    "chunk in a room": (inputs(3, [8], 8, past=12, turned=16), {"local_window_size": 4}),
    "chunk with less before": (inputs(3, [6], 8, past=12, turned=16), {}),
    "chunk in both directions": (inputs(3, [8], 8, past=5), {"causal": 0}),
}


# Lengths are known when compiling or not; both where heads are turned, and otherwise in turn.
@pytest.mark.parametrize(
    ("kind", "case", "lengths_are_known"),
    [
        (kind, name, is_known)
        for kind, cases in (("prompt", PROMPTS), ("token", TOKENS))
        for at, (name, (given, _)) in enumerate(cases.items())
        for is_known in ((False, True) if known(given, "cos") else (at % 2 == 0,))
    ],
)
def test_prompts_and_tokens_behind_a_past(kind: str, case: str, lengths_are_known: bool) -> None:
    given, attributes = (PROMPTS if kind == "prompt" else TOKENS)[case]
    constants = known(given, "total", "cos", "sin", *(["last"] if lengths_are_known else []))
    do_rotary = int("cos" in constants)
    check(OPERATOR, given, OUTPUTS, constants, do_rotary=do_rotary, **COUNTS, **attributes)


@pytest.mark.parametrize("total", [3, 8])
@pytest.mark.parametrize("queries", [1, 3])
def test_whether_there_is_a_past_may_be_known_when_it_runs_only(total: int, queries: int) -> None:
    positions = np.arange(queries)[None] + total - queries
    for others in ({}, {"position_ids": positions}):
        given = inputs(queries, [total], total, past=8, turned=16, **others)
        check(OPERATOR, given, OUTPUTS, known(given, "cos", "sin"), do_rotary=1, **COUNTS)


def test_heads_are_normalised_before_they_are_turned() -> None:
    """Which onnxruntime does on other processors only: it is given what is normalised."""
    given = inputs(5, [5, 4], 5, turned=16, q_norm=floats(WIDTH), k_norm=floats(WIDTH))
    constants = known(given, "total", "cos", "sin")
    normed, feeds = model(OPERATOR, given, OUTPUTS, constants, do_rotary=1, qk_norm_epsilon=1e-5, **COUNTS)
    plain, _ = model(OPERATOR, given[:9], OUTPUTS, constants, do_rotary=1, **COUNTS)
    other = {name: array for name, array in feeds.items() if not name.endswith("norm")}
    for name in "qk":
        by_head = feeds[name].reshape(2, 5, -1, WIDTH)
        root = np.sqrt(np.square(by_head).mean(-1, keepdims=True) + 1e-5)
        other[name] = (by_head / root * feeds[f"{name}_norm"]).reshape(feeds[name].shape)
    found = run(import_model(normed.SerializeToString()), feeds)
    for result, wanted in zip(found, checks.run(plain, other).values(), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


def test_a_quantised_cache_is_refused() -> None:
    for options in ({"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}, {"kv_cache_bit_width": 8}):
        proto, _ = model(OPERATOR, inputs(1, [7], 7, past=6), OUTPUTS, ["total"], **COUNTS, **options)
        with pytest.raises(UnsupportedError, match="quantised keys and values"):
            import_model(proto.SerializeToString())


@pytest.mark.parametrize("case", [PROMPTS["padded"], TOKENS["of lengths"], TOKENS["chunk in a room"]])
def test_it_runs_on_the_chip(case: Any) -> None:
    given, attributes = case
    constants = known(given, "total", "cos", "sin")
    proto, feeds = model(OPERATOR, given, OUTPUTS, constants, do_rotary=1, **COUNTS, **attributes)
    found = compiler.compile(proto.SerializeToString(), chip="tiny").run(feeds, hazards=True)
    for name, wanted in checks.run(proto, feeds).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-3, atol=1e-4)
