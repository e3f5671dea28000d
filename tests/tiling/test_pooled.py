"""A convolution in one kernel with what pools its result, against numpy in float64; and what is none such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import compiler
from ci.random_cases import CHIPS
from compiler.operators.convolution import convolution
from compiler.operators.reduction import MAX
from compiler.target import load_chip
from compiler.tiling import pooled
from compiler.tiling.search import analytical_cycles, analytical_cycles_of_all, works_in, works_of
from compiler.tiling.template import NoFeasibleTile
from tests.test_driver import model, node
from tests.tiling.random_pooled import WHOLE, Case, check, one_kernel

CASES: list[tuple[str, Case]] = [
    ("tw1", Case(1, 16, 28, 28, 64)),
    ("tw1", Case(2, 32, 14, 14, 20, 1, 1, 0, window=WHOLE, sums=True, kept=True)),
    ("tw1", Case(1, 1, 7, 7, 1, 3, 1, 1, 48, "silu", WHOLE, sums=True, kept=True, keeps_axes=False)),
    ("tw2", Case(1, 48, 9, 33, 32, window=(3, 2), steps=(3, 3), kept=True)),
    ("tw2", Case(3, 16, 5, 8, 16, 1, 2, 0, 2, "", (2, 2), (2, 2), sums=True)),
    ("tiny", Case(1, 16, 12, 12, 32, behind="clip")),
]
TILES = 2  # of each case
SHAPE = (1, 16, 12, 12)


@pytest.mark.parametrize("part", range(TILES))
@pytest.mark.parametrize(("chip", "case"), CASES, ids=str)
def test_it_is_what_the_stages_are_apart(chip: str, case: Case, part: int) -> None:
    """By the best tile of the space, and by others."""
    result, error = one_kernel(chip, case, lambda count: part * count // TILES)
    assert error <= 2e-3
    assert result.description.endswith("pooled in UB")
    assert len(result.outputs) == 1 + case.kept


@pytest.mark.parametrize("seed", range(9))
def test_random_ones_are_free_of_hazards_and_right(seed: int) -> None:
    assert check(seed, CHIPS[seed % 3]).text == ""


def test_nothing_is_stored_but_what_is_pooled() -> None:
    func = str(one_kernel("tw1", CASES[0][1], lambda _: 0)[0].func)
    assert func.count("tw.st.") == 1
    assert func.count("tw.vmaxpool") == 1


def _space(
    pool: Callable[[te.Tensor], te.Tensor], before: Callable[[te.Tensor], te.Tensor] | None = None
) -> pooled.PooledSpace:
    x, w = te.placeholder(SHAPE, "float16", "x"), te.placeholder((1, 1, 1, 3, 3, 16, 16), "float16", "w")
    windows: dict[str, Any] = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1)}
    made = convolution(x, w, channels=16, outputs=16, kernel=(3, 3), **windows)
    result = pool(before(made) if before else made)
    return pooled.space(te.create_prim_func([x, w, result]), load_chip("tw1"))


def _pool(size: int, step: int, apart: int = 1) -> Callable[[te.Tensor], te.Tensor]:
    def pool(x: te.Tensor) -> te.Tensor:
        i, j = te.reduce_axis((0, size), "i"), te.reduce_axis((0, size), "j")
        shape = (*SHAPE[:2], *((int(n) - (size - 1) * apart - 1) // step + 1 for n in x.shape[2:]))
        at = lambda n, c, h, w: x(n, c, h * step + i * apart, w * step + j * apart)  # noqa: E731
        return te.compute(shape, lambda *place: MAX.reducer(at(*place), axis=[i, j]), "pool")

    return pool


def _padded(x: te.Tensor) -> te.Tensor:
    inside = lambda h, w: tirx.all(h >= 1, h < 13, w >= 1, w < 13)  # noqa: E731
    shape, none = (*SHAPE[:2], 14, 14), tirx.const(-1, "float16")
    return te.compute(shape, lambda n, c, h, w: tirx.if_then_else(inside(h, w), x(n, c, h - 1, w - 1), none), "padded")


def _of_channels(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, 16), "k")
    return te.compute((1, 12, 12), lambda n, h, w: MAX.reducer(x(n, k, h, w), axis=k), "of_channels")


@pytest.mark.parametrize(
    ("pool", "before"),
    [(_pool(3, 2), None), (_pool(2, 2, 2), None), (_pool(2, 2), _padded), (_of_channels, None)],
    ids=["overlapping", "dilated", "padded", "channels"],
)
def test_other_windows_have_no_tile(pool: Callable[..., te.Tensor], before: Callable[..., te.Tensor] | None) -> None:
    assert _space(_pool(2, 2)).tiles()
    with pytest.raises(NoFeasibleTile):
        _space(pool, before)


def test_the_work_of_a_tile_does_not_depend_on_the_tiles_beside_it() -> None:
    chip, space = load_chip("tw1"), _space(_pool(2, 2))
    columns = works_of(space, space.tiles())
    works = [space.work(tile) for tile in space.tiles()]
    assert len(set(works)) > 1
    assert works_in(columns) == works
    assert analytical_cycles_of_all(columns, chip).tolist() == [analytical_cycles(work, chip) for work in works]


@pytest.mark.parametrize(
    ("pool", "chips"),
    [
        ("MaxPool", ("tw1", "tw2")),
        ("AveragePool", ("tw2", "tw1")),
        ("GlobalAveragePool", ("tw1", "tw2")),
        ("GlobalMaxPool", ("tw2", "tw1")),
    ],
)
@pytest.mark.parametrize("read_again", [False, True])
def test_models_have_one_kernel_of_both(pool: str, read_again: bool, chips: tuple[str, str]) -> None:
    """Where that takes fewer cycles; what others read comes out of it, too."""
    rng = np.random.default_rng(7)
    w, x = (rng.standard_normal(shape).astype(np.float32) / 4 for shape in ((256, 32, 1, 1), (1, 32, 8, 8)))
    windows = {} if pool.startswith("Global") else {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "r"), node(pool, "r", "y", **windows)]
    outputs = ["y"]
    if read_again:
        nodes, outputs = [*nodes, node("Neg", "r", "z")], ["y", "z"]
    source = model(nodes, {"x": x.shape}, outputs, w=w)
    artifact = compiler.compile(source, chip=chips[read_again], precision="fp16")
    assert len(artifact.report.kernels) == len(outputs)
    results = artifact.run({"x": x}, hazards=True)
    whole = np.maximum(np.einsum("oc,nchw->nohw", w[:, :, 0, 0], x), 0)
    cut = whole.reshape(1, 256, 4, 2, 4, 2) if windows else whole.reshape(1, 256, 1, 8, 1, 8)
    expected = cut.max(axis=(3, 5)) if "Max" in pool else cut.mean(axis=(3, 5))
    np.testing.assert_allclose(results["y"], expected, rtol=4e-3, atol=4e-3)
    if read_again:
        np.testing.assert_allclose(results["z"], -whole, rtol=4e-3, atol=4e-3)
