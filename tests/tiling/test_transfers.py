"""What boxes of DDR cost."""

from __future__ import annotations

import pytest

from compiler.tiling.transfers import transfer


@pytest.mark.parametrize(
    ("box", "line_bytes", "instructions"),
    [
        ((4, 64), 4 * 256, 1),  # whole rows
        ((4, 16), 4 * 128, 1),  # half a line of each
        ((4, 48), 4 * 256, 1),  # three quarters of a row begin where they may
        ((64, 64), 64 * 256, 1),
    ],
)
def test_boxes_touch_whole_lines(box: tuple[int, ...], line_bytes: float, instructions: int) -> None:
    found = transfer(box, (64, 64), 4, 128)
    assert found.line_bytes == line_bytes
    assert found.instructions == instructions


def test_more_than_three_dimensions_take_several_instructions() -> None:
    assert transfer((2, 3, 4, 5), (9, 9, 9, 9), 4, 128).instructions == 2
