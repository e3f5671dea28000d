"""Normalisations against onnxruntime and float64."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from compiler.errors import InvalidError, UnsupportedError
from compiler.operators import normalization
from compiler.operators.normalization import channel_normalization, layer_normalization
from compiler.tiling import vector
from tests.operators.evaluate import evaluate
from tests.operators.oracle import floats, onnxruntime_node
from tests.tiling.kernels import run


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("has_bias", [True, False])
def test_layer_normalization_with_its_statistics(axis: int, has_bias: bool) -> None:
    x = floats(0, 2, 3, 5)
    scale = floats(1, *x.shape[axis:])
    bias = floats(2, *x.shape[axis:]) if has_bias else None
    expected = onnxruntime_node("LayerNormalization", [x, scale, bias], outputs=3, axis=axis, epsilon=1e-3)
    results = evaluate("LayerNormalization", x, scale, bias, axis=axis, epsilon=1e-3)
    for result, array in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, array, rtol=2e-5, atol=2e-6)


def test_rows_of_float16_are_normalised_in_float32() -> None:
    x, one = floats(0, 2, 777, dtype="float16") + np.float16(100), np.ones(777, np.float16)
    wide = x.astype("float64")
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(evaluate("LayerNormalization", x, one, outputs=1), expected, rtol=2e-3, atol=2e-3)


def hard_rows(columns: int) -> np.ndarray:
    """Rows of different spread and offset in fp16: large, alike, nearly alike, and far from zero."""
    rng = np.random.default_rng(3)
    spread = np.exp(rng.uniform(np.log(0.01), np.log(100), (16, 1)))
    rows = [rng.standard_normal((16, columns)) * spread + rng.uniform(-1, 1, (16, 1)) * spread]
    rows += [np.full((1, columns), 3.0), rng.uniform(-6e4, 6e4, (1, columns)), rng.choice([-6e4, 6e4], (1, columns))]
    rows += [rng.standard_normal((1, columns)) * spread for spread in (1e-6, 1e-5, 1e-4, 140, 1000, 1e4)]
    rows += [np.full((1, columns), value) for value in (0, 0.1, -3e4, 65504)]
    rows += [1000 + rng.choice([0, 0.5], (1, columns)), np.where(np.arange(columns), 1e-3, 6e4)[np.newaxis]]
    return np.concatenate([*rows, 2040 + rng.choice([-1, 0, 1, 2], (1, columns))]).astype(np.float16)


@pytest.fixture
def few_rows_in_fp16(monkeypatch: pytest.MonkeyPatch) -> None:
    """What many rows do beside a small epsilon."""
    monkeypatch.setattr(normalization, "_FEW_ELEMENTS", 0)
    monkeypatch.setattr(normalization, "_FEW_FOR_OWN_FACTORS", 0)


# Four roundings to fp16 reach a result: the difference, the factor of its row, their product, and with scale and bias.
@pytest.mark.usefixtures("few_rows_in_fp16")
@pytest.mark.parametrize("chip", [None, "tw1", "tw2"])
@pytest.mark.parametrize(
    ("columns", "epsilons"),
    [
        (1, (1e-5, 1e-9, 1e-12)),
        (17, (1e-9, 1e-12, 1e-5)),
        (64, (1e-12, 1e-5, 1e-9)),
        (777, (1e-5, 1e-12, 1e-9)),
        (1024, (1e-9, 1e-5, 1e-12)),
        (4096, (1e-12, 1e-9, 1e-5)),
    ],
)
def test_layer_normalization_in_float16(chip: str | None, columns: int, epsilons: tuple[float, ...]) -> None:
    x, epsilon = hard_rows(columns), epsilons[(None, "tw1", "tw2").index(chip)]
    rng = np.random.default_rng(4)
    scale = rng.uniform(0.5, 1.5, columns).astype(np.float16)
    bias = (0.1 * rng.standard_normal(columns)).astype(np.float16)
    wide = x.astype("float64")
    rest = wide - wide.mean(1, keepdims=True)
    expected = rest / np.sqrt(np.square(rest).mean(1, keepdims=True) + epsilon) * scale.astype("float64") + bias
    if chip is None:
        result = evaluate("LayerNormalization", x, scale, bias, outputs=1, epsilon=epsilon)
    else:
        inputs = {"x": x, "scale": scale, "bias": bias}
        result = run(
            vector.schedule, chip, inputs, lambda *given: layer_normalization(*given, epsilon=epsilon)[0]
        ).output
    np.testing.assert_allclose(result.astype("float64"), expected, rtol=2e-3, atol=1e-3)


@pytest.mark.usefixtures("few_rows_in_fp16")
@pytest.mark.parametrize("chip", [None, "tw1", "tw2", "tiny"])
@pytest.mark.parametrize(
    ("channels", "epsilons"),
    [
        (1, (1e-5, 1e-9, 1e-14, 1e-5)),
        (17, (1e-9, 1e-14, 1e-5, 1e-9)),
        (64, (1e-14, 1e-5, 1e-9, 1e-14)),
        (300, (1e-5, 1e-14, 1e-9, 1e-9)),
    ],
)
def test_norms_of_channels_in_float16(chip: str | None, channels: int, epsilons: tuple[float, ...]) -> None:
    epsilon = epsilons[(None, "tw1", "tw2", "tiny").index(chip)]
    x = np.stack([hard_rows(channels).T, hard_rows(channels).T[::-1]])
    rng = np.random.default_rng(4)
    scale = rng.uniform(0.5, 1.5, channels).astype(np.float16)
    bias = (0.1 * rng.standard_normal(channels)).astype(np.float16)
    wide = x.astype("float64")
    rest = wide - wide.mean(1, keepdims=True)
    normalised = rest / np.sqrt(np.square(rest).mean(1, keepdims=True) + epsilon)
    expected = normalised * scale[:, np.newaxis].astype("float64") + bias[:, np.newaxis]
    if chip is None:
        result = evaluate("tilewright::ChannelNormalization", x, scale, bias, epsilon=epsilon)
    else:
        inputs = {"x": x, "scale": scale, "bias": bias}
        found = run(vector.schedule, chip, inputs, lambda *given: channel_normalization(*given, epsilon=epsilon))
        assert chip == "tiny" or str(found.func.script()).count("tw.ld.ddr.ub") == 3  # each input once
        result = found.output
    np.testing.assert_allclose(result.astype("float64"), expected, rtol=2e-3, atol=1e-3)


@pytest.mark.usefixtures("few_rows_in_fp16")
@pytest.mark.parametrize("epsilon", [1e-5, 1e-12])
def test_statistics_of_float16_rows(epsilon: float) -> None:
    x, one = hard_rows(777), np.ones(777, np.float16)
    wide = x.astype("float64")
    _, mean, inverse = evaluate("LayerNormalization", x, one, epsilon=epsilon)
    rounded = 2.0**-24 * np.abs(wide).max(1, keepdims=True)  # what each step of a sum is rounded by, over its elements
    np.testing.assert_array_less(np.abs(mean - wide.mean(1, keepdims=True)), rounded + 1e-9)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(wide.var(1, keepdims=True) + epsilon), rtol=2e-3)


def test_an_epsilon_as_attributes_hold_it_lets_float16_rows_be_narrow() -> None:
    for rows, columns, epsilon, dtype in (
        (1024, 64, 1e-6, "float16"),
        (1024, 64, 1e-7, "float32"),
        (512, 64, 1e-6, "float32"),  # so few that converting them once takes fewer instructions
        (2048, 64, 1e-12, "float16"),
        (2048, 64, 0, "float32"),
        (4, 1 << 16, 1e-6, "float16"),
        (4, 1 << 16, 1e-12, "float32"),  # no factor of fp16 is large enough for rows of which few elements differ
    ):
        x, one = te.placeholder((rows, columns), "float16"), te.placeholder((columns,), "float16")
        normalised = layer_normalization(x, one, epsilon=float(np.float32(epsilon)))[0]
        stages = te.create_prim_func([x, one, normalised]).script()
        assert f'centred = T.sblock_alloc_buffer(({rows}, {columns}), "{dtype}")'.replace(', "float32")', ")") in stages


@pytest.mark.usefixtures("few_rows_in_fp16")
@pytest.mark.parametrize("epsilon", [0.0, 1e-12])
def test_a_row_that_hardly_differs_is_normalised(epsilon: float) -> None:
    x, one = np.full((1, 64), 3, np.float16), np.ones(64, np.float16)
    x[0, 0] += np.float16(0.002)
    wide = x.astype("float64")
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + epsilon)
    result = evaluate("LayerNormalization", x, one, outputs=1, epsilon=epsilon)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.usefixtures("few_rows_in_fp16")
def test_rows_are_copied_once_however_often_they_are_read() -> None:
    rows, one = hard_rows(1024), np.ones(1024, np.float16)
    found = run(vector.schedule, "tw2", {"x": rows, "scale": one}, lambda *given: layer_normalization(*given)[0])
    small = run(
        vector.schedule, "tw2", {"x": rows, "scale": one}, lambda *given: layer_normalization(*given, epsilon=1e-12)[0]
    )
    loads = [str(each.func.script()).count("tw.ld.ddr.ub") for each in (found, small)]
    assert loads == [2, 2]  # the rows, and their scale


@pytest.mark.parametrize("chip", [None, "tw1", "tw2"])
def test_a_normalised_value_is_rounded_before_scale_and_bias_of_float16(chip: str | None) -> None:
    """Rows in fp32: the normalised value and the result are rounded."""
    x = hard_rows(777)[:16]
    epsilon = 1e-14  # too small for rows in fp16
    scale, bias = (floats(seed, 777, dtype="float16") for seed in (1, 2))
    wide = x.astype("float64")
    rest = wide - wide.mean(1, keepdims=True)
    expected = rest / np.sqrt(np.square(rest).mean(1, keepdims=True) + epsilon) * scale.astype("float64") + bias

    def define(*given: te.Tensor) -> te.Tensor:
        return layer_normalization(*given, epsilon=epsilon)[0]

    if chip is None:
        result = evaluate("LayerNormalization", x, scale, bias, outputs=1, epsilon=epsilon)
    else:
        found = run(vector.schedule, chip, {"x": x, "scale": scale, "bias": bias}, define)
        assert "vmadd.fp16" in found.func.script()
        result = found.output
    np.testing.assert_allclose(result.astype("float64"), expected, rtol=1e-3, atol=1e-3)


def test_rms_normalization() -> None:
    x, scale = floats(0, 3, 5, dtype="float16"), floats(1, 5, dtype="float16")
    wide = x.astype("float64")
    expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(evaluate("RMSNormalization", x, scale), expected, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(2, 3, 7), (1, 2, 3, 5)])
def test_instance_normalization(shape: tuple[int, ...]) -> None:
    x, scale, bias = floats(0, *shape), floats(1, shape[1]), floats(2, shape[1])
    expected = onnxruntime_node("InstanceNormalization", [x, scale, bias])[0]
    np.testing.assert_allclose(evaluate("InstanceNormalization", x, scale, bias), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("opset", [18, 21])
def test_group_normalization(groups: int, opset: int) -> None:
    x = floats(0, 2, 6, 3, 5)
    extent = groups if opset == 18 else 6
    scale, bias = floats(1, extent), floats(2, extent)
    wide = x.reshape(2, groups, -1).astype("float64")
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    per_channel = [np.repeat(v, 6 // extent).reshape(6, 1, 1) for v in (scale, bias)]
    expected = normal.reshape(x.shape) * per_channel[0] + per_channel[1]
    result = evaluate("GroupNormalization", x, scale, bias, num_groups=groups)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_batch_normalization_is_a_factor_and_a_shift_per_channel() -> None:
    x = floats(0, 2, 3, 4, 5)
    terms = [floats(seed, 3, low=0.2) for seed in range(1, 5)]
    expected = onnxruntime_node("BatchNormalization", [x, *terms], epsilon=1e-3)[0]
    np.testing.assert_allclose(evaluate("BatchNormalization", x, *terms, epsilon=1e-3), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(UnsupportedError, match="TW2112"):
        evaluate("BatchNormalization", x, *terms, spatial=0)
    with pytest.raises(InvalidError, match="TW2108"):
        evaluate("BatchNormalization", x, terms[0][:2], *terms[1:])


def test_batch_normalization_terms_may_be_wider_than_x() -> None:
    x, terms = floats(0, 2, 3, 5, dtype="float16"), [floats(seed, 3, low=0.2) for seed in range(1, 5)]
    scale, bias, mean, variance = (term.reshape(3, 1).astype("float64") for term in terms)
    expected = (x - mean) / np.sqrt(variance + 1e-5) * scale + bias
    np.testing.assert_allclose(evaluate("BatchNormalization", x, *terms), expected, rtol=5e-3, atol=5e-3)


def test_mean_variance_normalization() -> None:
    x = floats(0, 3, 2, 5)
    wide = x.astype("float64")
    expected = (wide - wide.mean((0, 2), keepdims=True)) / wide.std((0, 2), keepdims=True)
    np.testing.assert_allclose(evaluate("MeanVarianceNormalization", x, axes=[0, -1]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_lp_normalization(p: int, axis: int) -> None:
    x = floats(0, 3, 7)
    expected = onnxruntime_node("LpNormalization", [x], axis=axis, p=p)[0]
    np.testing.assert_allclose(evaluate("LpNormalization", x, axis=axis, p=p), expected, rtol=1e-5)
    np.testing.assert_array_equal(evaluate("LpNormalization", np.zeros((2, 3), np.float32), p=p), np.zeros((2, 3)))


@pytest.mark.parametrize("size", [1, 3, 4, 2**40])
def test_local_response_normalization(size: int) -> None:
    x = floats(0, 2, 5, 3, 3)
    squares = np.zeros(x.shape)
    for channel in range(5):
        near = slice(max(0, channel - (size - 1) // 2), min(5, channel + size // 2 + 1))
        squares[:, channel] = (x[:, near].astype("float64") ** 2).sum(axis=1)
    expected = x / (1.5 + 0.3 / size * squares) ** 0.6
    np.testing.assert_allclose(evaluate("LRN", x, size=size, alpha=0.3, beta=0.6, bias=1.5), expected, rtol=1e-5)
