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
    assert Windows.of((3,), (4,), (2,), None, None, ceil_mode=True).outputs == (1,)  # also if it is the only one


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


@pytest.mark.parametrize(
    "extent, kernel, stride, dilation, begin, end, expected",
    [
        (2, 5, 1, 1, 2, 2, (3, 1, 1)),  # the first and the last element never leave the padding
        (1, 3, 1, 1, 1, 1, (1, 0, 0)),
        (14, 3, 1, 18, 18, 18, (1, 0, 0)),
        (14, 3, 1, 12, 12, 12, None),
        (4, 3, 2, 3, 3, 3, (2, 0, 3)),
        (3, 4, 2, 2, 5, 2, (2, 1, 2)),
        (14, 3, 1, 18, 16, 20, (2, 16, 2)),  # without the first one, which meets nothing either, it would begin inside
        (2, 3, 1, 1, -1, 4, (1, -1, 2)),
        (1, 2, 2, 2, 1, 2, None),  # nothing meets anything
    ],
)
def test_sides_of_windows_that_meet_only_padding_are_left_out(
    extent: int, kernel: int, stride: int, dilation: int, begin: int, end: int, expected: tuple[int, int, int] | None
) -> None:
    windows = Windows((extent,), (kernel,), (stride,), (dilation,), (begin,), (end,))
    meeting = windows.meeting()
    assert (None if meeting is None else (meeting.kernel[0], meeting.begins[0], meeting.ends[0])) == expected
    if meeting is None:
        return
    assert meeting.outputs == windows.outputs
    seen = [
        sorted({place for k in range(each.kernel[0]) if 0 <= (place := each.positions((o,), (k,))[0]) < extent})
        for each in (windows, meeting)
        for o in range(each.outputs[0])
    ]
    assert seen[: windows.outputs[0]] == seen[windows.outputs[0] :]
