"""Layer norms between transpositions."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.frontend import Imported, import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node
from tests.frontend.test_affine_folding import operators

RNG = np.random.default_rng(23)
NORM, MOVED = "tilewright::ChannelNormalization", "Reshape"
THERE, BACK = [0, 2, 3, 1], [0, 3, 1, 2]


def imported_of(
    *,
    shape: tuple[int, ...] = (2, 6, 5, 4),
    there: list[int] = THERE,
    back: list[int] = BACK,
    axis: int = -1,
    width: int = 6,
    also: str = "",
) -> Imported:
    nodes = [
        node("Transpose", "x", "t", **({"perm": there} if there else {})),
        node("LayerNormalization", "t s b", "n", axis=axis, epsilon=1e-3),
        node("Transpose", "n", "y", **({"perm": back} if back else {})),
        *([node("Neg", also, "z")] if also else []),
    ]
    known = {"s": RNG.uniform(0.5, 2, width).astype(np.float32), "b": RNG.standard_normal(width).astype(np.float32)}
    given = model(nodes, {"x": list(shape)}, ["y", "z"] if also else ["y"], known, opset=17)
    imported = import_model(given.SerializeToString())
    check(given, imported, {"x": RNG.standard_normal(shape).astype(np.float32)}, rtol=1e-3, atol=1e-4)
    return imported


@pytest.mark.parametrize("axis", [-1, 3])
def test_one_is_over_the_axis_as_it_lies(axis: int) -> None:
    imported = imported_of(axis=axis)
    assert [name for name in operators(imported) if name != MOVED] == [NORM]
    assert {len(each) for each in imported.nodes.values()} == {3}


def test_the_axis_may_be_any() -> None:
    imported = imported_of(shape=(6, 2, 9, 4), there=[1, 2, 3, 0], back=[3, 0, 1, 2])
    assert [name for name in operators(imported) if name != MOVED] == [NORM]


def test_axes_in_the_opposite_order() -> None:
    imported = imported_of(shape=(6, 2, 9), there=[], back=[])
    assert [name for name in operators(imported) if name != MOVED] == [NORM]


def test_an_axis_that_stays_the_last_is_normalised_as_it_is() -> None:
    assert operators(imported_of(there=[0, 2, 1, 3], back=[0, 2, 1, 3], width=4)) == ["LayerNormalization"]


def test_what_is_read_on_the_way_stays() -> None:
    assert sorted(operators(imported_of(also="n"))) == ["LayerNormalization", "Neg", "Transpose", "Transpose"]


def test_what_others_read_in_the_other_order_is_moved_for_them_only() -> None:
    left = [name for name in operators(imported_of(also="t")) if name != MOVED]
    assert sorted(left) == ["Neg", "Transpose", NORM]


@pytest.mark.parametrize(
    "given",
    [
        {"back": [0, 3, 2, 1]},
        {"back": [0, 1, 2, 3]},
        {"shape": (1, 300, 8, 8), "width": 300},  # so many that they are better moved
        {"axis": 2, "shape": (2, 1, 5, 6), "there": [0, 2, 3, 1], "width": 1},
    ],
)
def test_others_stay(given: dict[str, object]) -> None:
    assert "LayerNormalization" in operators(imported_of(**given))  # type: ignore[arg-type]
