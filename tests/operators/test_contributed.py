"""Operators of onnxruntime's own domain, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import compiler
from compiler.errors import TilewrightError, UnsupportedError
from compiler.frontend import import_model
from models import checks
from tests.frontend.cpu import run

pytestmark = pytest.mark.usefixtures("as_planned")

DOMAIN = "com.microsoft"
RNG = np.random.default_rng(11)
Array = np.ndarray[Any, Any]


def floats(*shape: int, scale: float = 1.0) -> Array:
    return (scale * RNG.standard_normal(shape)).astype(np.float32)


def model(
    operator: str,
    given: Sequence[tuple[str, Array] | None],
    outputs: Sequence[str] = ("y",),
    constants: Sequence[str] = (),
    model_opset: int = 17,
    domain: str = DOMAIN,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """One node, and what it is fed with."""
    arrays = {name: array for name, array in filter(None, given)}
    names = ["" if one is None else one[0] for one in given]
    node = helper.make_node(operator, names, list(outputs), "node", domain=domain, **attributes)
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in arrays.items()}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in arrays.items() if n not in constants],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
        [numpy_helper.from_array(arrays[name], name) for name in constants],
    )
    opsets = [helper.make_opsetid("", model_opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), {
        name: array for name, array in arrays.items() if name not in constants
    }


def check(*given: Any, off: float = 0.0, **options: Any) -> None:
    """``off``: by how much a rounded number may differ."""
    proto, feeds = model(*given, **options)
    imported = import_model(proto.SerializeToString())
    expected: Mapping[str, Array] = checks.run(proto, feeds)
    for port, found, wanted in zip(imported.outputs, run(imported, feeds), expected.values(), strict=True):
        assert found.shape == wanted.shape, port.name
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=1e-4 + off)


# ---- floats ------------------------------------------------------------------------------------------------------


X, BIAS = ("x", floats(2, 5, 8)), ("b", floats(8))


@pytest.mark.parametrize(
    ("operator", "given", "attributes"),
    [
        ("Gelu", [X], {}),
        ("BiasGelu", [X, BIAS], {}),
        ("FastGelu", [X], {}),
        ("FastGelu", [X, BIAS], {}),
        ("QuickGelu", [X], {}),
        ("QuickGelu", [X], {"alpha": 1.3}),
    ],
)
def test_activations(operator: str, given: list[Any], attributes: dict[str, Any]) -> None:
    check(operator, given, **attributes)


GAMMA, BETA, SKIP = ("gamma", floats(8)), ("beta", floats(8)), ("skip", floats(2, 5, 8))


@pytest.mark.parametrize("beta", [BETA, None])
@pytest.mark.parametrize("bias", [BIAS, None])
@pytest.mark.parametrize("outputs", [["y"], ["y", "", "", "sum"]])
def test_norms_of_sums(beta: Any, bias: Any, outputs: list[str]) -> None:
    given = [X, SKIP, GAMMA, beta, bias] if bias else [X, SKIP, GAMMA, beta] if beta else [X, SKIP, GAMMA]
    check("SkipLayerNormalization", given, outputs, epsilon=1e-5)
    own = [X, SKIP, GAMMA, bias] if bias else [X, SKIP, GAMMA]
    check("SkipSimplifiedLayerNormalization", own, outputs, epsilon=1e-5)


def test_norms_by_the_root_of_the_mean_square() -> None:
    check("SimplifiedLayerNormalization", [X, GAMMA], domain="", epsilon=1e-6, axis=-1, stash_type=1)


@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("channels_last", [0, 1])
def test_norms_of_groups_of_channels(activation: int, channels_last: int) -> None:
    """Which onnxruntime has for other processors only: ONNX's own is the reference."""
    x, gamma, beta = floats(2, 8, 3, 4), floats(8), floats(8)
    plain, feeds = model("GroupNormalization", [("x", x), ("g", gamma), ("b", beta)], model_opset=21, domain="",
                         num_groups=4, epsilon=1e-4)  # fmt: skip
    (wanted,) = checks.run(plain, feeds).values()
    wanted = wanted / (1 + np.exp(-wanted)) if activation else wanted
    turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if channels_last else x
    proto, feeds = model("GroupNorm", [("x", turned), ("g", gamma), ("b", beta)], groups=4, epsilon=1e-4,
                         activation=activation, channels_last=channels_last)  # fmt: skip
    (found,) = run(import_model(proto.SerializeToString()), feeds)
    found = found.transpose(0, 3, 1, 2) if channels_last else found
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("positions", [True, False])
def test_embeddings(segments: bool, positions: bool) -> None:
    words = ("ids", RNG.integers(0, 20, (2, 5)).astype(np.int32))
    segment_ids = ("segment_ids", RNG.integers(0, 2, (2, 5)).astype(np.int32)) if segments else None
    given = [
        words, segment_ids, ("words", floats(20, 8)), ("positions", floats(9, 8)),
        ("segments", floats(2, 8)) if segments else None, GAMMA, BETA,
        ("mask", np.array([[1, 1, 1, 1, 1], [1, 1, 2, 0, 0]], np.int32)),
        *([("position_ids", RNG.integers(0, 9, (2, 5)).astype(np.int32))] if positions else []),
    ]  # fmt: skip
    check("EmbedLayerNormalization", given, ["y", "mask_index"], mask_index_type=1)
    check("EmbedLayerNormalization", given, ["y", "mask_index"])


# ---- products ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_products_of_turned_matrices(turned: tuple[int, int]) -> None:
    a, b = floats(2, 3, 4, 6), floats(2, 3, 6, 5)
    a, b = (np.ascontiguousarray(x.swapaxes(2, 3)) if turn else x for x, turn in zip((a, b), turned, strict=True))
    check("FusedMatMul", [("a", a), ("b", b)], transA=turned[0], transB=turned[1], alpha=0.3)
    with pytest.raises(TilewrightError, match="transBatchA"):
        import_model(model("FusedMatMul", [("a", a), ("b", b)], transBatchA=1)[0].SerializeToString())


ACTIVATIONS: list[tuple[str, list[float]]] = [
    ("Relu", []), ("Tanh", []), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.3, 0.4]), ("Clip", [-0.5, 0.75]),
]  # fmt: skip


@pytest.mark.parametrize(("activation", "parameters"), ACTIVATIONS)
def test_convolutions_with_what_follows(activation: str, parameters: list[float]) -> None:
    given = [
        ("x", floats(1, 3, 6, 6)),
        ("w", floats(4, 3, 3, 3, scale=0.3)),
        ("b", floats(4)),
        ("z", floats(1, 4, 6, 6)),
    ]
    options: dict[str, Any] = {"activation_params": parameters} if parameters else {}
    # onnxruntime adds a fourth input before Relu only.
    check("FusedConv", given if activation == "Relu" else given[:3], activation=activation, pads=[1] * 4, **options)


@pytest.mark.parametrize(("activation", "parameters"), ACTIVATIONS[:3])
def test_products_with_what_follows(activation: str, parameters: list[float]) -> None:
    options: dict[str, Any] = {"activation_alpha": parameters[0]} if parameters else {}
    given = [("a", floats(4, 6)), ("b", floats(5, 6)), ("c", floats(5))]
    check("FusedGemm", given, transB=1, alpha=0.5, beta=2.0, activation=activation, **options)


@pytest.mark.parametrize("zero_points", ["none", "packed"])
@pytest.mark.parametrize(("k", "block"), [(64, 32), (80, 16), (40, 32)])
def test_weights_of_four_bits(k: int, block: int, zero_points: str) -> None:
    n, blocks = 24, -(-k // block)
    b = RNG.integers(0, 256, (n, blocks, block // 2)).astype(np.uint8)
    given = [("a", floats(3, k)), ("b", b), ("scales", np.abs(floats(n * blocks, scale=0.1)))]
    if zero_points == "packed":
        given.append(("zero", RNG.integers(0, 256, n * -(-blocks // 2)).astype(np.uint8)))
    constants = [name for name, _ in given[1:]]
    check("MatMulNBits", given, constants=constants, K=k, N=n, bits=4, block_size=block, off=1e-3)
    if zero_points == "none":
        with pytest.raises(TilewrightError, match="not known when the model is compiled"):
            import_model(model("MatMulNBits", given, K=k, N=n, bits=4, block_size=block)[0].SerializeToString())


# ---- attention ---------------------------------------------------------------------------------------------------


MASKS = {
    "none": None,
    "lengths": ("mask", np.array([5, 3], np.int32)),
    "keys": ("mask", np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)),
    "queries": ("mask", np.tril(np.ones((2, 5, 5), np.int32))),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_of_one_product(mask: str, unidirectional: int) -> None:
    given = [X, ("w", floats(8, 24, scale=0.3)), ("bias", floats(24)), MASKS[mask]]
    check("Attention", given[: 4 if MASKS[mask] else 3], num_heads=2, unidirectional=unidirectional)


def test_attention_with_a_past() -> None:
    given = [X, ("w", floats(8, 24, scale=0.3)), ("bias", floats(24)), None, ("past", floats(2, 2, 2, 3, 4))]
    check("Attention", given, ["y", "present"], num_heads=2, unidirectional=1)


def test_attention_of_queries_keys_and_values() -> None:
    q, k, v = ("q", floats(2, 5, 8)), ("k", floats(2, 7, 8)), ("v", floats(2, 7, 8))
    check("MultiHeadAttention", [q, k, v], num_heads=2)
    check("MultiHeadAttention", [q, k, v, ("bias", floats(24))], num_heads=2, scale=0.3)
    check("MultiHeadAttention", [q, k, v, ("bias", floats(24))], constants=["bias"], num_heads=2)
    padding = ("padding", np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32))
    check("MultiHeadAttention", [q, k, v, None, padding], num_heads=2)
    check("MultiHeadAttention", [q, k, v, None, None, ("added", floats(1, 2, 5, 7))], num_heads=2)
    of_heads = [q, ("k", floats(2, 2, 7, 4)), ("v", floats(2, 2, 7, 4))]
    check("MultiHeadAttention", of_heads, num_heads=2)


def test_attention_with_past_keys_and_values() -> None:
    q, k, v = (("q", floats(2, 1, 8)), ("k", floats(2, 1, 8)), ("v", floats(2, 1, 8)))
    past = [("past_key", floats(2, 2, 6, 4)), ("past_value", floats(2, 2, 6, 4))]
    outputs = ["y", "present_key", "present_value"]
    check("MultiHeadAttention", [q, k, v, None, None, None, *past], outputs, num_heads=2)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [[2], [[3, 0, 1, 4, 2], [0, 1, 2, 3, 4]]])
def test_rotary_embedding(interleaved: int, positions: Any) -> None:
    tables = [("cos", floats(9, 2)), ("sin", floats(9, 2))]
    at = ("at", np.array(positions, np.int64))
    check("RotaryEmbedding", [X, at, *tables], interleaved=interleaved)
    check("RotaryEmbedding", [("x", floats(2, 3, 5, 4)), at, *tables], interleaved=interleaved)


# ---- quantised ---------------------------------------------------------------------------------------------------


def quantised(name: str, *shape: int, kind: Any = np.uint8) -> list[tuple[str, Array]]:
    limits = np.iinfo(kind)
    return [
        (name, RNG.integers(limits.min, limits.max + 1, shape).astype(kind)),
        (f"{name}_scale", np.array(RNG.uniform(0.01, 0.05), np.float32)),
        (f"{name}_zero", np.array(RNG.integers(limits.min // 2, limits.max // 2), kind)),
    ]


def result(kind: Any = np.uint8, scale: float = 0.03) -> list[tuple[str, Array]]:
    return [("y_scale", np.array(scale, np.float32)), ("y_zero", np.array(7, kind))]


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_two_quantised_tensors(operator: str, kind: Any) -> None:
    given = [*quantised("a", 2, 3, 4, kind=kind), *quantised("b", 3, 1, kind=kind), *result(kind, 0.08)]
    check(operator, given, constants=[name for name, array in given if not array.shape], off=1)


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearGlobalAveragePool", {}),
        ("QLinearAveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ],
)
def test_one_quantised_tensor(operator: str, attributes: dict[str, Any]) -> None:
    given = [*quantised("x", 1, 3, 4, 6), *result(scale=1 / 255 if operator == "QLinearSigmoid" else 0.03)]
    check(operator, given, constants=[name for name, array in given if not array.shape], off=1, **attributes)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_the_greatest_of_windows_of_a_quantised_tensor_with_channels_last(kind: Any) -> None:
    x = quantised("x", 1, 6, 7, 5, kind=kind)[:1]
    check("NhwcMaxPool", x, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    check("NhwcMaxPool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)


@pytest.mark.parametrize(("axis", "opset"), [(-1, 13), (1, 13), (1, 11), (-1, 11)])
def test_softmax_of_a_quantised_tensor(axis: int, opset: int) -> None:
    scale = ("y_scale", np.array(1 / 256, np.float32))
    given = [*quantised("x", 2, 3, 4), scale, ("y_zero", np.array(0, np.uint8))]
    constants = [name for name, array in given if not array.shape]
    check("QLinearSoftmax", given, constants=constants, off=1, axis=axis, opset=opset)


def test_elements_of_either_quantised_tensor() -> None:
    condition = ("condition", RNG.integers(0, 2, (3, 1)).astype(bool))
    given = [condition, *quantised("a", 2, 3, 4), *quantised("b", 3, 4), *result()]
    check("QLinearWhere", given, constants=[name for name, array in given if not array.shape], off=1)


def test_rounding_to_four_bits_is_refused() -> None:
    zero = ("zero", np.array(0, ml_dtypes.int4))
    proto, _ = model("QuantizeLinear", [X, ("scale", np.array(1, np.float32)), zero], constants=["scale", "zero"])
    with pytest.raises(UnsupportedError, match="int4 results"):
        import_model(proto.SerializeToString())


def test_quantised_tensors_one_behind_another() -> None:
    given = [*result(), *quantised("a", 1, 3, 4), *quantised("b", 1, 2, 4)]
    check("QLinearConcat", given, constants=[name for name, array in given if not array.shape], axis=1, off=1)


@pytest.mark.parametrize("columns", [True, False])
def test_products_of_integers_as_floats(columns: bool) -> None:
    b = ("b", RNG.integers(-128, 128, (6, 5)).astype(np.int8))
    b_scale = ("b_scale", np.abs(floats(5, scale=0.1)) if columns else np.array(0.05, np.float32))
    a = [("a", RNG.integers(0, 256, (4, 6)).astype(np.uint8)), ("a_scale", np.array(0.02, np.float32))]
    zeros = [("a_zero", np.array(120, np.uint8)), ("b_zero", np.zeros(5 if columns else (), np.int8))]
    constants = ["b", "b_scale", "b_zero"]
    check("MatMulIntegerToFloat", [a[0], b, a[1], b_scale, *zeros, ("c", floats(5))], constants=constants)
    check("DynamicQuantizeMatMul", [("a", floats(4, 6)), b, b_scale, zeros[1], ("c", floats(5))], constants=constants)


@pytest.mark.parametrize("rounds", [True, False])
def test_general_products_of_integers(rounds: bool) -> None:
    a, b = quantised("a", 4, 6), quantised("b", 5, 6, kind=np.int8)
    c = ("c", RNG.integers(-1000, 1000, 5).astype(np.int32))
    given = [*a, *b, c, *(result(scale=0.4) if rounds else [])]
    constants = [name for name, array in given if not array.shape]
    check("QGemm", given, constants=[*constants, "b", "c"], transB=1, alpha=0.5, off=1.0 if rounds else 0.0)


def test_they_run_on_the_chip() -> None:
    proto, feeds = model("SkipLayerNormalization", [X, SKIP, GAMMA, BETA], ["y", "", "", "sum"], epsilon=1e-5)
    found = compiler.compile(proto.SerializeToString(), chip="tiny").run(feeds, hazards=True)
    for name, wanted in checks.run(proto, feeds).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-3, atol=1e-4)
