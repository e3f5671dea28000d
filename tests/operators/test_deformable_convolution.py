"""Convolutions with an offset for each element of a window, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import TilewrightError
from tests.operators.evaluate import evaluate
from tests.operators.oracle import floats, onnxruntime_node


def operands(kernel: tuple[int, int] = (3, 2), group: int = 1, parts: int = 1) -> list[np.ndarray[Any, Any]]:
    """x, w, offset, b and mask of windows in steps of (2, 1), with pads (1, 0, 2, 1), over 7 x 6 elements."""
    batch, channels, outputs = 2, 4, 6
    height, width = (7 + 3 - kernel[0]) // 2 + 1, (6 + 1 - kernel[1]) + 1
    elements = kernel[0] * kernel[1]
    return [
        floats(1, batch, channels, 7, 6),
        floats(2, outputs, channels // group, *kernel),
        floats(3, batch, parts * elements * 2, height, width, low=-3, high=3),
        floats(4, outputs),
        floats(5, batch, parts * elements, height, width, low=0, high=1),
    ]


ATTRIBUTES = {"strides": (2, 1), "pads": (1, 0, 2, 1)}


@pytest.mark.parametrize(("group", "parts"), [(1, 1), (2, 1), (1, 2), (2, 4)])
def test_windows_take_elements_where_offsets_say(group: int, parts: int) -> None:
    inputs = operands(group=group, parts=parts)
    attributes = {**ATTRIBUTES, "group": group, "offset_group": parts}
    expected = onnxruntime_node("DeformConv", inputs, opset=22, **attributes)[0]
    np.testing.assert_allclose(evaluate("DeformConv", *inputs, **attributes), expected, atol=2e-5)


def test_bias_and_mask_may_be_left_out() -> None:
    x, w, offset, *_ = operands()
    expected = onnxruntime_node("DeformConv", [x, w, offset], opset=22, **ATTRIBUTES)[0]
    np.testing.assert_allclose(evaluate("DeformConv", x, w, offset, **ATTRIBUTES), expected, atol=2e-5)


def test_without_offsets_it_is_a_convolution() -> None:
    x, w, offset, b, _ = operands(kernel=(2, 2))
    attributes = {"strides": (2, 1), "pads": (1, 0, 2, 1)}
    expected = onnxruntime_node("Conv", [x, w, b], **attributes)[0]
    np.testing.assert_allclose(evaluate("DeformConv", x, w, 0 * offset, b, **attributes), expected, atol=2e-5)


def test_holes_and_places_far_outside() -> None:
    x, w, b = floats(1, 1, 2, 9, 8), floats(2, 3, 2, 3, 3), floats(4, 3)
    offset = floats(3, 1, 18, 5, 4, low=-1e9, high=1e9)
    offset[:, :, ::2] = floats(5, 1, 18, 3, 4)
    expected = onnxruntime_node("DeformConv", [x, w, offset, b], opset=22, dilations=(2, 2))[0]
    np.testing.assert_allclose(evaluate("DeformConv", x, w, offset, b, dilations=(2, 2)), expected, atol=2e-5)


def test_offsets_of_another_shape_are_refused() -> None:
    x, w, offset, *_ = operands()
    with pytest.raises(TilewrightError, match="offset must be"):
        evaluate("DeformConv", x, w, offset[:, :-2], **ATTRIBUTES)
    with pytest.raises(TilewrightError, match="must divide the 4 channels"):
        evaluate("DeformConv", x, w, offset, **ATTRIBUTES, offset_group=3)
