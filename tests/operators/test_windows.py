"""How often a window stands, and where; against counting."""

from __future__ import annotations

import pytest

from compiler.operators.windows import Windows


@pytest.mark.parametrize("extent", [1, 5, 8])
@pytest.mark.parametrize("kernel, stride, dilation, begin, end", [(1, 1, 1, 0, 0), (3, 2, 1, 1, 1), (2, 3, 2, 2, 0)])
def test_windows_stand_wherever_they_fit(
    extent: int, kernel: int, stride: int, dilation: int, begin: int, end: int
) -> None:
    windows = Windows.of((extent,), (kernel,), (stride,), (begin, end), (dilation,))
    span = (kernel - 1) * dilation + 1
    starts = [start for start in range(-begin, extent + end) if start + span <= extent + end]
    assert windows.outputs == (len(starts[::stride]),)


def test_the_last_window_may_hang_over_the_end_if_it_starts_inside() -> None:
    assert Windows.of((6,), (3,), (2,), None, None, ceil_mode=True).outputs == (3,)
    assert Windows.of((6,), (2,), (3,), (0, 1), None, ceil_mode=True).outputs == (2,)  # the third would start at 6


@pytest.mark.parametrize("auto_pad, pads", [("SAME_UPPER", (0, 1)), ("SAME_LOWER", (1, 0)), ("VALID", (0, 0))])
def test_automatic_padding(auto_pad: str, pads: tuple[int, int]) -> None:
    windows = Windows.of((4,), (2,), None, (7, 7), None, auto_pad)
    assert windows.pads == pads


@pytest.mark.parametrize("begin", [-1, 0, 1])
@pytest.mark.parametrize("end", [-1, 0, 1])
def test_conditions_are_asked_only_where_windows_leave_the_input(begin: int, end: int) -> None:
    windows = Windows.of((5,), (2,), (2,), (begin, end), None)
    positions = [windows.positions((o,), (k,))[0] for o in range(windows.outputs[0]) for k in range(2)]
    expected = (min(positions) < 0) + (max(positions) >= 5)
    assert len(windows.inside([0])) == expected
