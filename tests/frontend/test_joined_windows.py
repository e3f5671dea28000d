"""Windows that are cut out one by one and joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.frontend import import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node
from tests.frontend.test_affine_folding import operators

RNG = np.random.default_rng(13)


def unfolded(
    shape: tuple[int, ...], starts: list[int], length: int, dim: int, *, turns: bool = True, own: int | None = None
) -> Any:
    """As torch writes ``x.unfold(dim, length, step)``; the windows are counted along axis ``own``."""
    at, nodes, names = dim if own is None else own, [], []
    perm = [axis for axis in range(len(shape)) if axis != dim] + [dim]
    known = {"dim": np.array([dim]), "at": np.array([at])}
    for i, start in enumerate(starts):
        known |= {f"start{i}": np.array([start]), f"end{i}": np.array([start + length or 1 << 40])}
        nodes.append(node("Slice", f"x start{i} end{i} dim", f"part{i}"))
        if turns:
            nodes.append(node("Transpose", f"part{i}", f"turned{i}", perm=perm))
        nodes.append(node("Unsqueeze", f"{'turned' if turns else 'part'}{i} at", f"apart{i}"))
        names.append(f"apart{i}")
    return model([*nodes, node("Concat", " ".join(names), "y", axis=at)], {"x": list(shape)}, ["y"], known)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("turns, own", [(True, None), (False, None), (True, 0), (False, 3)])
def test_they_are_picked_at_once(dim: int, turns: bool, own: int | None) -> None:
    shape = tuple(23 if axis == dim else 3 + axis for axis in range(3))
    given = unfolded(shape, list(range(0, 20, 2)), 4, dim, turns=turns, own=own)
    imported = import_model(given.SerializeToString())
    assert set(operators(imported)) <= {"Gather", "Transpose"}
    check(given, imported, {"x": RNG.standard_normal(shape).astype(np.float32)}, rtol=0, atol=0)


@pytest.mark.parametrize(
    "starts, picked",
    [
        (list(range(7)), False),  # few
        ([0, 1, 2, 3, 4, 5, 6, 8], False),
        ([9, 8, 7, 6, 5, 4, 3, 2], True),
        ([-10, -9, -8, -7, -6, -5, -4, -3], True),
    ],
)
def test_what_is_joined_otherwise_stays(starts: list[int], picked: bool) -> None:
    given = unfolded((2, 12), starts, 3, 1)
    imported = import_model(given.SerializeToString())
    assert ("Gather" in operators(imported)) == picked
    check(given, imported, {"x": RNG.standard_normal((2, 12)).astype(np.float32)}, rtol=0, atol=0)


def test_the_first_operator_set_says_no_axis_for_the_second_one() -> None:
    nodes = []
    for i in range(8):
        nodes.append(node("Slice", "x", f"part{i}", axes=[2], starts=[i], ends=[i + 3]))
        nodes.append(node("Unsqueeze", f"part{i}", f"apart{i}", axes=[1]))
    nodes.append(node("Concat", " ".join(f"apart{i}" for i in range(8)), "y"))
    given = model(nodes, {"x": [1, 2, 12]}, ["y"], {}, opset=1)
    assert "Gather" in operators(import_model(given.SerializeToString()))
