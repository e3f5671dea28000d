"""Attention against float64. ONNX's own cases of it are in test_onnx_node_cases.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import InvalidError
from tests.operators.evaluate import evaluate
from tests.operators.oracle import Array, floats


def reference(q: Array, k: Array, v: Array, bias: Any = 0.0, scale: float | None = None) -> Array:
    repeats = q.shape[1] // k.shape[1]
    q, k, v = q.astype("float64"), k.astype("float64").repeat(repeats, 1), v.astype("float64").repeat(repeats, 1)
    scores = q @ k.swapaxes(2, 3) * (scale or 1 / np.sqrt(q.shape[3])) + bias
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    result: Array = powers / powers.sum(-1, keepdims=True) @ v
    return result


def heads(seed: int, count: int, length: int, width: int = 5, dtype: str = "float32") -> Array:
    return floats(seed, 2, count, length, width, dtype=dtype)


@pytest.mark.parametrize("q_heads, kv_heads", [(3, 3), (6, 2), (4, 1)])
@pytest.mark.parametrize("is_causal", [0, 1])
def test_groups_of_queries_share_keys(q_heads: int, kv_heads: int, is_causal: int) -> None:
    q, k, v = heads(0, q_heads, 4), heads(1, kv_heads, 7), heads(2, kv_heads, 7, 3)
    bias = np.where(np.arange(7) <= np.arange(4)[:, None], 0, -np.inf) if is_causal else 0.0
    result = evaluate("Attention", q, k, v, is_causal=is_causal)[0]
    np.testing.assert_allclose(result, reference(q, k, v, bias), rtol=1e-4, atol=1e-5)


def test_float16() -> None:
    q, k, v = heads(0, 2, 3, 32, "float16"), heads(1, 2, 33, 32, "float16"), heads(2, 2, 33, 32, "float16")
    result = evaluate("Attention", q, k, v)[0]
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, reference(q, k, v), rtol=2e-2, atol=5e-3)


@pytest.mark.parametrize("shape", [(4, 7), (3, 4, 7), (2, 1, 4, 7), (1, 7)])
def test_a_mask_broadcasts_to_the_scores(shape: tuple[int, ...]) -> None:
    q, k, v = heads(0, 3, 4), heads(1, 3, 7), heads(2, 3, 7)
    sees = floats(3, *shape) > -1.5
    sees[..., 0] = True
    expected = reference(q, k, v, np.where(sees, 0, -np.inf))
    np.testing.assert_allclose(evaluate("Attention", q, k, v, sees)[0], expected, rtol=1e-4, atol=1e-5)
    added = floats(4, *shape)
    expected = reference(q, k, v, added)
    np.testing.assert_allclose(evaluate("Attention", q, k, v, added)[0], expected, rtol=1e-4, atol=1e-5)


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    q, k, v = heads(0, 1, 2), heads(1, 1, 3), heads(2, 1, 3)
    sees = np.array([[True, False, True], [False, False, False]])
    result = evaluate("Attention", q, k, v, sees)[0]
    np.testing.assert_array_equal(result[:, :, 1], np.zeros((2, 1, 5)))
    assert np.isfinite(result).all() and result[:, :, 0].any()


def test_the_past_comes_before_the_keys() -> None:
    q, k, v, past_k, past_v = (heads(n, 2, length) for n, length in enumerate((2, 2, 2, 3, 3)))
    all_k, all_v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    bias = np.where(np.arange(5) <= np.arange(2)[:, None] + 3, 0, -np.inf)
    result, keys, values, _ = evaluate("Attention", q, k, v, None, past_k, past_v, is_causal=1)
    np.testing.assert_array_equal(keys, all_k)
    np.testing.assert_array_equal(values, all_v)
    np.testing.assert_allclose(result, reference(q, all_k, all_v, bias), rtol=1e-4, atol=1e-5)


def test_heads_may_lie_side_by_side() -> None:
    q, k, v = heads(0, 4, 3), heads(1, 2, 6), heads(2, 2, 6)
    flat = [x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) for x in (q, k, v)]
    result = evaluate("Attention", *flat, q_num_heads=4, kv_num_heads=2, scale=0.3)[0]
    expected = reference(q, k, v, scale=0.3).transpose(0, 2, 1, 3).reshape(2, 3, -1)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_heads_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidError, match=r"TW2108.*multiple of k's"):
        evaluate("Attention", heads(0, 3, 4), heads(1, 2, 7), heads(2, 2, 7))
    with pytest.raises(InvalidError, match="TW2103"):
        evaluate("Attention", *(floats(n, 2, 3, 8) for n in range(3)))
    with pytest.raises(InvalidError, match="TW2108"):
        evaluate("Attention", *(floats(n, 2, 3) for n in range(3)))
    with pytest.raises(InvalidError, match=r"TW2108.*come together"):
        evaluate("Attention", *(heads(n, 2, 3) for n in range(3)), None, heads(3, 2, 3))
