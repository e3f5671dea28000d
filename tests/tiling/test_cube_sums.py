"""Norms whose rows the matrix unit sums, on the emulated chip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

from compiler.operators.normalization import layer_normalization, rms_normalization
from compiler.target import Chip, load_chip
from compiler.tiling import cube_sums, vector
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tiling.vector import Tile
from tests.tiling.kernels import random, run

RNG = np.random.default_rng(11)
TW1, TW2 = load_chip("tw1"), load_chip("tw2")


def picked(rows: int, steps: int) -> Callable[..., Tiled]:
    """The template that takes the tile of so many rows."""

    def template(func: Any, chip: Chip, attempt: int) -> Tiled:
        del attempt
        space = cube_sums.space(func, chip)
        return space.apply(next(t for t in space.tiles() if t.steps == steps and rows in t.extents[:-1]))

    return template


def normalised(x: Any, scale: Any, bias: Any, epsilon: float = 1e-5) -> Any:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon) * scale + bias


def affine(columns: int) -> dict[str, Any]:
    return {
        "scale": RNG.uniform(0.5, 1.5, columns).astype(np.float16),
        "bias": random(RNG, "float16", columns),
    }


def tensor(epsilon: float) -> Callable[..., te.Tensor]:
    return lambda x, scale, bias: layer_normalization(x, scale, bias, epsilon=epsilon)[0]


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
@pytest.mark.parametrize(("shape", "rows", "steps", "epsilon"), [
    ((640, 256), 16, 1, 1e-5),
    ((333, 128), 24, 2, 1e-5),  # rows that are no whole fractals, and a last tile of fewer
    ((5, 77, 768), 16, 3, 1e-5),  # of several matrices as one
    ((700, 1024), 8, 2, 1e-5),
    ((64, 144), 48, 1, 1e-5),
    ((640, 256), 16, 1, 1e-12),  # each row is brought to where fp16 holds it by a factor of its own first
    ((5, 77, 768), 16, 3, 1e-12),
])  # fmt: skip
def test_layer_norms(chip: str, shape: tuple[int, ...], rows: int, steps: int, epsilon: float) -> None:
    x = (random(RNG, "float16", *shape) * 3 + 5).astype(np.float16)
    inputs = {"x": x, **affine(shape[-1])}
    result = run(picked(rows, steps), chip, inputs, tensor(epsilon))
    assert "rows summed by the cube" in result.description
    np.testing.assert_allclose(result.output, normalised(*inputs.values(), epsilon), rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_root_mean_squares(chip: str) -> None:
    """Squares of what was loaded: nothing is subtracted before."""
    x, scale = random(RNG, "float16", 500, 512), affine(512)["scale"]
    result = run(picked(16, 2), chip, {"x": x, "scale": scale}, lambda x, scale: rms_normalization(x, scale))
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(result.output, expected, rtol=4e-3, atol=4e-3)


def test_rows_of_one_value_and_of_great_ones() -> None:
    """Sums in fp32 leave nothing of a row of one value, and hold the squares of the greatest numbers."""
    x = random(RNG, "float16", 320, 256)
    x[:16] = 1000
    x[16:32] = RNG.choice([-65504, 65504], (16, 256))
    x[32:48] = RNG.choice([1000, 1000.5], (16, 256))
    inputs = {"x": x, **affine(256)}
    result = run(picked(16, 1), "tw1", inputs, tensor(1e-5))
    np.testing.assert_allclose(result.output, normalised(*inputs.values()), rtol=1e-2, atol=1e-2)


def func_of(define: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float16") -> Any:
    tensors = [te.placeholder(shape, dtype, f"t{at}") for at, shape in enumerate(shapes)]
    return te.create_prim_func([*tensors, define(*tensors)])


@pytest.mark.parametrize(("shape", "dtype"), [((640, 64), "float16"), ((640, 250), "float16"), ((640, 256), "float32")])
def test_short_rows_and_such_as_are_no_matrices_of_fp16_are_left_to_the_vector_unit(
    shape: tuple[int, ...], dtype: str
) -> None:
    func = func_of(tensor(1e-5), shape, shape[-1:], shape[-1:], dtype=dtype)
    with pytest.raises(NoFeasibleTile):
        cube_sums.space(func, TW1)


def test_sums_without_rows_of_a_result_are_left_to_the_vector_unit() -> None:
    def total(x: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, 256), "k")
        return te.compute((640,), lambda i: te.sum(x[i, k].astype("float32"), axis=k), "total")

    with pytest.raises(NoFeasibleTile):
        cube_sums.space(func_of(total, (640, 256)), TW2)


def test_the_vector_unit_is_thought_to_do_less_and_the_others_more() -> None:
    func = func_of(tensor(1e-5), (4096, 768), (768,), (768,))
    on_cube, alone = cube_sums.space(func, TW1), vector.space(func, TW1)
    tile = Tile((16, 768), 0, 2)
    assert tile in on_cube.tiles()
    mine, other = on_cube.work(tile), alone.work(Tile((16, 768)))
    assert mine.vector_cycles < 0.6 * other.vector_cycles
    assert mine.cube_cycles > other.cube_cycles == 0
    assert mine.mte3_cycles > other.mte3_cycles
