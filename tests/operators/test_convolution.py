"""Convolutions and transposed convolutions against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import InvalidError
from compiler.operators import places_at_once, rows_as_channels
from compiler.operators.convolution import conv, convolution_windows
from compiler.operators.phases import by_long_steps, by_phases
from compiler.operators.places_at_once import several_places
from compiler.operators.rows_as_channels import by_kernel_rows
from tests.operators.evaluate import Eager, Known, evaluate
from tests.operators.oracle import floats, onnxruntime_node

Shape = tuple[int, ...]
CONVOLUTIONS: list[tuple[Shape, Shape, dict[str, Any]]] = [
    ((2, 3, 9), (5, 3, 2), {"pads": [2, 1], "dilations": [2]}),
    ((1, 4, 9, 9), (8, 2, 3, 3), {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 3, 7, 5), (1, 3, 1, 1), {}),
    ((1, 6, 8, 7), (6, 1, 3, 2), {"group": 6, "pads": [1, 0, 1, 1], "strides": [1, 2]}),
    ((1, 3, 6, 7), (6, 1, 3, 3), {"group": 3, "dilations": [2, 2], "pads": [1, 2, 3, 0]}),
    ((1, 1, 5, 5), (2, 1, 5, 5), {}),
    ((2, 17, 6, 5), (3, 17, 3, 3), {"auto_pad": "VALID", "strides": [3, 2]}),
    ((1, 2, 5, 6, 4), (3, 2, 2, 3, 1), {"auto_pad": "SAME_LOWER", "strides": [2, 1, 2]}),
    ((2, 3, 8, 24), (5, 3, 4, 8), {"strides": [4, 8]}),  # windows side by side
    ((1, 2, 27), (3, 2, 9), {"strides": [9]}),
    ((2, 1, 4, 3, 16), (2, 1, 2, 3, 8), {"strides": [2, 3, 8]}),
    ((1, 3, 9, 24), (5, 3, 4, 8), {"strides": [4, 8]}),  # a row is left over
    # In longer steps than the cube takes.
    ((2, 1, 700), (3, 1, 200), {"strides": [80]}),
    ((1, 6, 300), (4, 3, 70), {"strides": [64], "group": 2, "pads": [5, 90]}),
    ((1, 4, 400), (4, 1, 3), {"strides": [70], "group": 4, "dilations": [50], "pads": [7, 1]}),
    ((1, 2, 5, 200), (3, 2, 3, 30), {"strides": [2, 65], "pads": [1, 0, 0, 3], "dilations": [1, 2]}),
    ((1, 2, 150, 140), (3, 2, 5, 66), {"strides": [70, 64], "pads": [0, 2, 0, 0]}),
    ((1, 2, 2, 90, 3), (3, 2, 2, 20, 2), {"strides": [1, 65, 1]}),
    ((1, 2, 700), (3, 2, 260), {"strides": [3], "pads": [4, 0]}),  # with a longer kernel
    ((2, 3, 1100), (5, 3, 3), {"dilations": [300], "pads": [300, 301]}),  # with longer holes
    ((1, 4, 800), (4, 2, 2), {"dilations": [256], "group": 2}),
    # Elements that see padding only, of weights that are known.
    ((2, 6, 2, 3), (6, 1, 5, 5), {"group": 6, "pads": [2, 2, 2, 2]}),
    ((1, 4, 5, 7), (3, 4, 3, 3), {"dilations": [6, 4], "pads": [6, 4, 6, 4]}),
    ((2, 3, 3, 9), (4, 3, 4, 2), {"pads": [5, 1, 2, 0], "dilations": [2, 1], "strides": [2, 1]}),
    ((2, 5, 1, 1), (5, 1, 3, 3), {"group": 5, "pads": [1, 1, 1, 1]}),  # one is left of each channel
    ((2, 5, 4, 3), (5, 1, 1, 1), {"group": 5}),
]


@pytest.mark.parametrize("x_shape, w_shape, attributes", CONVOLUTIONS)
@pytest.mark.parametrize("has_bias", [True, False])
def test_conv(x_shape: Shape, w_shape: Shape, attributes: dict[str, Any], has_bias: bool) -> None:
    inputs = [floats(0, *x_shape), floats(1, *w_shape), floats(2, w_shape[0]) if has_bias else None]
    expected = onnxruntime_node("Conv", inputs, **attributes)[0]
    for constants in ((), (1, 2)):
        result = evaluate("Conv", *inputs, constants=constants, **attributes)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("group", [1, 300])
def test_float16_is_summed_in_float32(group: int) -> None:
    x, w = floats(0, 1, 300, 5, dtype="float16"), floats(1, 300, 300 // group, 3, dtype="float16")
    expected = onnxruntime_node("Conv", [x.astype("float32"), w.astype("float32")], group=group)[0]
    result = evaluate("Conv", x, w, group=group)
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-2)


TRANSPOSED: list[tuple[Shape, Shape, dict[str, Any]]] = [
    ((1, 3, 5), (3, 2, 3), {"strides": [2]}),
    ((1, 2, 4, 3), (2, 3, 3, 3), {"strides": [3, 2], "output_padding": [1, 1], "pads": [1, 0, 1, 1]}),
    ((1, 4, 4, 3), (4, 3, 2, 3), {"group": 2, "strides": [2, 2], "dilations": [2, 1]}),
    ((1, 4, 3, 3), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ((1, 1, 3, 3), (1, 2, 3, 3), {"strides": [3, 2], "output_shape": [10, 8]}),
    ((1, 1, 3, 3), (1, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 1, 3, 3), (1, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((1, 1, 5, 5), (1, 1, 2, 2), {"strides": [2, 2], "pads": [2, 2, 2, 2]}),
    ((1, 2, 2, 3, 2), (2, 1, 2, 2, 2), {"strides": [1, 2, 2]}),
    ((2, 3, 4, 5), (3, 2, 2, 2), {"strides": [2, 2]}),  # every phase sees one element
    ((1, 3, 5), (3, 2, 2), {"strides": [5]}),  # three phases see none
    ((1, 2, 7), (2, 3, 3), {"strides": [2], "dilations": [3], "pads": [2, 1]}),
    ((1, 2, 7), (2, 3, 4), {"strides": [3], "pads": [5, 4]}),  # a phase begins behind the first input
    ((1, 4, 2, 3, 2), (4, 1, 3, 2, 3), {"group": 2, "strides": [2, 1, 3]}),
    ((1, 34, 5), (34, 1, 3), {"group": 34, "strides": [2], "output_padding": [1]}),
]


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize(
    "attributes, said",
    [
        ({"strides": [0, 1]}, "must be at least 1; given: strides"),
        ({"dilations": [1, -1]}, "must be at least 1; given: dilations"),
        ({"strides": [1, 2**31]}, "must be at most 2147483647; given: strides"),
        ({"auto_pad": "FULL"}, "must be NOTSET, SAME_UPPER, SAME_LOWER or VALID"),
    ],
)
def test_steps_and_paddings_that_there_are_not(operator: str, attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        evaluate(operator, floats(0, 1, 2, 5, 5), floats(1, 2, 2, 3, 3), **attributes)


@pytest.mark.parametrize("x_shape, w_shape, attributes", TRANSPOSED)
def test_conv_transpose(x_shape: Shape, w_shape: Shape, attributes: dict[str, Any]) -> None:
    outputs = w_shape[1] * int(attributes.get("group", 1))
    inputs = [floats(0, *x_shape), floats(1, *w_shape), floats(2, outputs)]
    expected = onnxruntime_node("ConvTranspose", inputs, **attributes)[0]
    np.testing.assert_allclose(evaluate("ConvTranspose", *inputs, **attributes), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "w_shape, attributes, rule",
    [
        ((4, 2, 3, 3), {}, "x must have 1 times the channels of w"),
        ((4, 1, 3, 3), {"group": 3}, "must divide the 4 output channels"),
        ((4, 3, 3), {}, "x must be .batch, channels"),
        ((4, 3, 3, 3), {"kernel_shape": [2, 2]}, "kernel_shape must be that of w"),
    ],
)
def test_weights_that_do_not_fit_are_refused(w_shape: Shape, attributes: dict[str, Any], rule: str) -> None:
    with pytest.raises(InvalidError, match=rule):
        evaluate("Conv", floats(0, 1, 3, 8, 8), floats(1, *w_shape), **attributes)


BY_PHASES: list[tuple[Shape, Shape, dict[str, Any], Shape]] = [
    ((1, 3, 24, 22), (5, 3, 7, 7), {"pads": [3] * 4, "strides": [2, 2]}, (1, 1)),
    ((2, 3, 8, 12), (6, 3, 4, 4), {"strides": [4, 4]}, (1, 1)),
    ((1, 1, 15, 21), (2, 1, 8, 9), {"pads": [2, 0, 7, 1], "strides": [3, 3]}, (1, 1)),
    ((1, 4, 10, 14), (3, 4, 7, 7), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (1, 1)),
    ((1, 3, 32, 32), (4, 3, 11, 11), {"strides": [4, 4]}, (1, 1)),
    ((1, 1, 9, 16), (17, 1, 3, 16), {"strides": [1, 4]}, (1, 1)),
    ((1, 2, 9, 20), (17, 2, 2, 15), {"strides": [2, 5], "pads": [1, 0, 0, 6], "dilations": [3, 1]}, (2, 1)),
    ((1, 3, 4, 16, 14), (5, 3, 3, 7, 7), {"pads": [1, 3, 3, 1, 3, 2], "strides": [1, 2, 2]}, (1, 1, 1)),
    ((1, 3, 6, 8, 10), (4, 3, 7, 7, 7), {"pads": [3] * 6, "strides": [2, 2, 2]}, (2, 1, 1)),
]


@pytest.mark.parametrize("x_shape, w_shape, attributes, left", BY_PHASES)
def test_steps_over_few_channels_become_channels(
    x_shape: Shape, w_shape: Shape, attributes: dict[str, Any], left: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the weights are known; steps that leave as many blocks, or are those of a kernel with holes, stay."""
    called: list[Any] = []
    call = Eager.call

    def noted(self: Eager, name: str, *values: Any, **given: Any) -> Any:
        called.append((name, given.get("strides")))
        return call(self, name, *values, **given)

    monkeypatch.setattr(Eager, "call", noted)
    x, w, b = (floats(at, *shape, dtype="float16") for at, shape in enumerate((x_shape, w_shape, w_shape[:1])))
    expected = onnxruntime_node("Conv", [array.astype("float32") for array in (x, w, b)], **attributes)[0]
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in attributes.items()}
    result = conv(Eager(), Known(x), Known(w, is_constant=True), Known(b), **given)
    np.testing.assert_allclose(result.array, expected, rtol=2e-3, atol=2e-2)
    assert ("tilewright::Convolution", left) in called


@pytest.mark.parametrize(
    "w_shape, step, given, becomes",
    [
        ((2, 1, 3), 64, {"is_known": False}, (2, 64, 1)),  # a longer step than the cube takes
        ((2, 3, 65), 64, {"group": 2, "is_known": False}, (2, 192, 2)),
        ((2, 1, 3), 64, {"hole": 40}, (2, 64, 2)),
        ((2, 1, 3), 63, {}, (2, 1, 3)),
        ((2, 9, 256), 3, {"is_known": False}, (2, 27, 86)),  # a longer kernel
        ((2, 9, 255), 3, {}, (2, 9, 255)),  # as many blocks almost
        ((2, 9, 256), 1, {}, (2, 9, 256)),  # no steps
        ((2, 2, 16), 4, {}, (2, 8, 4)),  # a quarter of the blocks
        ((2, 2, 16), 4, {"is_known": False}, (2, 2, 16)),
        ((2, 2, 16), 4, {"hole": 2}, (2, 2, 16)),
        ((2, 2, 12), 4, {}, (2, 2, 12)),  # of few
    ],
)
def test_steps_along_one_axis_become_channels(w_shape: Shape, step: int, given: dict[str, Any], becomes: Shape) -> None:
    group, hole = given.get("group", 1), given.get("hole", 1)
    x, w = Known(floats(0, 1, w_shape[1] * group, 400)), Known(floats(1, *w_shape), given.get("is_known", True))
    windows = convolution_windows(x, w, (step,), None, (hole,), "NOTSET", group)
    _, weights, after = by_long_steps(Eager(), x, w, windows, group, 8)
    assert weights.shape == becomes
    assert after.outputs == windows.outputs
    assert after.strides == ((step,) if becomes == w_shape else (1,))


@pytest.mark.parametrize(
    "x_shape, w_shape, attributes",
    [
        ((1, 3, 23, 22), (5, 3, 7, 7), {"strides": (2, 2)}),  # steps do not cover the image
        ((1, 3, 24, 22), (5, 3, 3, 3), {"strides": (2, 2)}),  # as many blocks almost
        ((1, 3, 24, 24), (5, 3, 7, 7), {"strides": (2, 3)}),
        ((1, 16, 24, 24), (5, 16, 7, 7), {"strides": (2, 2)}),  # blocks are full
    ],
)
def test_steps_that_stay(x_shape: Shape, w_shape: Shape, attributes: dict[str, Any]) -> None:
    x, w = Known(floats(0, *x_shape)), Known(floats(1, *w_shape), is_constant=True)
    windows = convolution_windows(x, w, attributes["strides"], None, None, "NOTSET", 1)
    assert by_phases(Eager(), x, w, windows, 16) == (x, w, windows)


AT_ONCE: list[tuple[Shape, Shape, dict[str, Any], Shape]] = [
    ((1, 1, 700), (1, 1, 256), {"strides": [2]}, (16,)),
    ((2, 1, 301), (2, 1, 63), {"pads": [7, 40], "strides": [3]}, (8,)),
    ((1, 1, 900), (1, 1, 300), {}, (16,)),  # longer than the cube takes
    ((1, 3, 900), (20, 3, 300), {}, (2,)),
    ((1, 1, 4, 900), (20, 1, 2, 520), {"strides": [2, 1]}, (1, 3)),
    ((1, 4, 9, 40), (8, 4, 3, 39), {"pads": [1, 19, 1, 19]}, (1, 2)),
    ((1, 32, 11, 13), (1, 32, 7, 3), {"pads": [3, 1, 3, 1]}, (11, 1)),
    ((2, 3, 10, 9), (1, 3, 4, 9), {"pads": [1, 3, 0, 4], "strides": [1, 2]}, (4, 4)),
    ((1, 2, 6, 7, 8), (1, 2, 3, 4, 5), {"auto_pad": "SAME_UPPER"}, (2, 2, 4)),
]


@pytest.mark.parametrize("x_shape, w_shape, attributes, counts", AT_ONCE)
@pytest.mark.parametrize("has_bias", [True, False])
def test_few_outputs_are_made_of_several_places_at_once(
    x_shape: Shape,
    w_shape: Shape,
    attributes: dict[str, Any],
    counts: Shape,
    has_bias: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of small maps, for which another kernel would take too long."""
    monkeypatch.setattr(places_at_once, "KERNEL_CYCLES", 0)
    x, w, *b = (floats(at, *shape) for at, shape in enumerate((x_shape, w_shape, w_shape[:1])[: 2 + has_bias]))
    expected = onnxruntime_node("Conv", [x, w, *b], **attributes)[0]
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in attributes.items()}
    operands = Known(x), Known(w, is_constant=True), *map(Known, b)
    result = conv(Eager(), *operands, **given)
    assert result.array.shape == expected.shape
    np.testing.assert_allclose(result.array, expected, rtol=1e-4, atol=1e-4)
    of_rank = [given.get(name) for name in ("strides", "pads", "dilations")]
    windows = convolution_windows(*operands[:2], *of_rank, given.get("auto_pad", "NOTSET"), 1)
    assert several_places(Eager(), *operands[:2], None, windows, 8)[-1] == counts


@pytest.mark.parametrize(
    "x_shape, w_shape, known",
    [
        ((1, 1, 90000), (1, 1, 255), False),
        ((1, 16, 90, 90), (9, 16, 3, 3), True),
        ((1, 64, 90, 90), (1, 64, 1, 1), True),
        ((1, 1, 700), (1, 1, 255), True),
    ],
)
def test_others_are_made_one_by_one(x_shape: Shape, w_shape: Shape, known: bool) -> None:
    """Of weights that are not known; of many outputs; of single elements, moved along in zeros; and of few places."""
    x, w = Known(floats(0, *x_shape)), Known(floats(1, *w_shape), is_constant=known)
    windows = convolution_windows(x, w, None, None, None, "NOTSET", 1)
    assert several_places(Eager(), x, w, None, windows, 8)[-1] == (1,) * windows.rank


OF_ROWS: list[tuple[Shape, Shape, dict[str, Any], Shape]] = [
    ((1, 1, 20, 17), (18, 1, 9, 9), {"pads": [4] * 4}, (9, 1, 9)),
    ((2, 3, 11, 14), (17, 3, 5, 3), {"pads": [2, 0, 1, 2], "strides": [1, 2]}, (15, 1, 3)),
    ((1, 2, 15, 9), (20, 2, 4, 2), {"dilations": [3, 2], "pads": [3, 1, 0, 1]}, (8, 1, 2)),
    ((1, 1, 6, 8), (17, 1, 6, 5), {}, (6, 1, 5)),
    ((2, 1, 9, 8), (32, 1, 3, 3), {"pads": [-1, 0, 2, 1]}, (3, 1, 3)),
    ((1, 1, 6, 9, 8), (18, 1, 3, 3, 3), {"pads": [1] * 6}, (9, 1, 1, 3)),
    ((2, 3, 6, 7, 5), (17, 3, 3, 2, 3), {"pads": [1, 0, 1, 2, 1, 0], "dilations": [2, 1, 1]}, (9, 1, 2, 3)),
    ((1, 2, 9, 8, 7), (17, 2, 4, 3, 2), {"strides": [2, 1, 3]}, (6, 4, 1, 2)),
]


@pytest.mark.parametrize("x_shape, w_shape, attributes, of_rows", OF_ROWS)
def test_rows_of_a_kernel_over_few_channels_become_channels(
    x_shape: Shape, w_shape: Shape, attributes: dict[str, Any], of_rows: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of small maps, for which another kernel would take too long."""
    monkeypatch.setattr(rows_as_channels, "KERNEL_CYCLES", 0)
    monkeypatch.setattr(rows_as_channels, "PASS_CYCLES", 0)
    x, w, b = (floats(at, *shape) for at, shape in enumerate((x_shape, w_shape, w_shape[:1])))
    expected = onnxruntime_node("Conv", [x, w, b], **attributes)[0] if min(attributes.get("pads", [0])) >= 0 else None
    given = {name: tuple(value) for name, value in attributes.items()}
    operands = Known(x), Known(w, is_constant=True)
    windows = convolution_windows(
        *operands, *(given.get(name) for name in ("strides", "pads", "dilations")), "NOTSET", 1
    )
    _, weights, single = by_kernel_rows(Eager(), *operands, windows, 16)
    assert weights.shape == (w_shape[0], *of_rows)
    assert single.outputs == windows.outputs
    result = conv(Eager(), *operands, Known(b), **given).array
    if expected is None:
        monkeypatch.setattr(rows_as_channels, "KERNEL_CYCLES", 1 << 40)
        expected = conv(Eager(), *operands, Known(b), **given).array
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "x_shape, w_shape, strides, known",
    [
        ((1, 1, 64, 64), (64, 1, 9, 9), (1, 1), False),
        ((1, 1, 64, 64), (64, 1, 9, 9), (2, 1), True),
        ((1, 16, 64, 64), (64, 16, 9, 9), (1, 1), True),
        ((1, 3, 224, 224), (64, 3, 3, 3), (1, 1), True),
        ((1, 1, 12, 12), (16, 1, 5, 5), (1, 1), True),
        ((1, 1, 500), (64, 1, 9), (1,), True),
    ],
    ids=["unknown", "steps", "full blocks", "short kernel", "few places", "one axis"],
)
def test_rows_stay_where_that_does_not_pay(x_shape: Shape, w_shape: Shape, strides: Shape, known: bool) -> None:
    x, w = Known(floats(0, *x_shape)), Known(floats(1, *w_shape), is_constant=known)
    windows = convolution_windows(x, w, strides, None, None, "NOTSET", 1)
    assert by_kernel_rows(Eager(), x, w, windows, 16) == (x, w, windows)
