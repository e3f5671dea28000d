"""Bounds of single operators, worked out by hand."""

from compiler.report.bounds import (
    Bound,
    Work,
    attention_bound,
    bound,
    convolution_bound,
    elementwise_bound,
    move_bound,
    normalization_bound,
    product_bound,
    reduction_bound,
)
from compiler.target import load_chip

TW1, TW2, TINY = load_chip("tw1"), load_chip("tw2"), load_chip("tiny")


def test_the_slowest_of_the_four_is_the_bound() -> None:
    assert (Bound(3, 2, 1).cycles, Bound(3, 2, 1).by) == (3, "cube")
    assert (Bound(1, 3, 2).cycles, Bound(1, 3, 2).by) == (3, "vector")
    assert (Bound(1, 2, 3).cycles, Bound(1, 2, 3).by) == (3, "ddr")
    assert (Bound(1, 2, 3, 4).cycles, Bound(1, 2, 3, 4).by, Bound(1, 2, 3, 4).of_rates) == (4, "latency", 3)


def test_rates_are_those_of_the_whole_chip() -> None:
    found = bound(TW1, macs=2048 * 32 * 10, vector_bytes=128 * 32 * 7, ddr_bytes=119_400)
    assert found == Bound(10, 7, 1000)


def test_a_part_of_a_cycle_counts_as_one() -> None:
    assert bound(TW1, macs=1, vector_bytes=1, ddr_bytes=1) == Bound(1, 1, 1)
    assert bound(TW1) == Bound(0, 0, 0)


def test_types_that_the_cube_lacks_are_the_vector_units() -> None:
    assert bound(TINY, macs=64, dtype="int32") == Bound(0, 64 * 4 // (32 * 2), 0)
    assert bound(TINY, macs=128 * 2 * 5, dtype="uint8") == Bound(5, 0, 0)


def test_work_adds_up_by_type() -> None:
    both = Work({"fp16": 2048 * 32}, 5, 6) + Work({"fp16": 2048 * 32, "fp32": 512 * 32}, 1, 2)
    assert both == Work({"fp16": 2 * 2048 * 32, "fp32": 512 * 32}, 6, 8)
    assert both.bound(TW1).cube_cycles == 3


def test_product() -> None:
    found = product_bound(TW2, 1024, 1024, 1024)
    assert found.cube_cycles == -(-(1024**3) // (4096 * 20))
    assert found.ddr_cycles == -(-3 * 2 * 1024**2 * 1000 // 888_889)
    assert (
        product_bound(TW2, 8, 8, 8, batch=3, shared_weights=True).ddr_cycles
        <= product_bound(TW2, 8, 8, 8, batch=3).ddr_cycles
    )


def test_padding_is_no_work() -> None:
    """Of the 9 taps on each of 16 outputs, those of the border fall outside: (2 + 3 + 3 + 2)^2 are left."""
    padded = convolution_bound(TINY, (1, 64, 4, 4), (64, 64, 3, 3), pads=(1, 1, 1, 1))
    assert padded.cube_cycles == -(-64 * 64 * 100 // (64 * 2))


def test_what_strides_skip_is_not_read() -> None:
    """A 1 x 1 kernel that takes every second position reads a quarter of the image."""
    strided = convolution_bound(TINY, (1, 1, 8, 8), (1, 1, 1, 1), strides=(2, 2), dtype="fp32")
    assert strided.ddr_cycles == move_bound(TINY, 16 + 1, 16, dtype="fp32").ddr_cycles


def test_grouped_convolution() -> None:
    whole = convolution_bound(TINY, (1, 64, 8, 8), (64, 64, 3, 3))
    depthwise = convolution_bound(TINY, (1, 64, 8, 8), (64, 1, 3, 3))
    assert whole.cube_cycles == 64 * depthwise.cube_cycles


def test_the_scores_of_attention_stay_on_the_chip() -> None:
    found = attention_bound(TW1, 512, 512, 64, batch=12)
    assert found.ddr_cycles == -(-12 * 4 * 512 * 64 * 2 * 1000 // 119_400)
    assert found.vector_cycles == 12 * 512 * 512 * 2 // (128 * 32)
    assert found.cube_cycles == 12 * 512 * 512 * 128 // (2048 * 32)


def test_passes() -> None:
    assert elementwise_bound(TW1, (4096, 1024), inputs=2).ddr_cycles == -(-3 * 4096 * 1024 * 2 * 1000 // 119_400)
    assert reduction_bound(TW1, (4096, 32), 4096).vector_cycles == 4096 * 31 * 2 // (128 * 32)
    assert normalization_bound(TW1, (64, 64), parameters=128).ddr_cycles == -(-(2 * 4096 + 128) * 2000 // 119_400)
