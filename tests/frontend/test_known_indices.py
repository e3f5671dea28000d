"""Indices that a model holds itself, in an axis and outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import InvalidError
from compiler.frontend import import_model
from tests.frontend.models import model, node


def picked(operator: str, indices: Any, updates: Any, attributes: dict[str, int]) -> bytes:
    known = {"i": np.array(indices)} | ({} if updates is None else {"u": np.array(updates, np.float32)})
    inputs = "x i" + (" u" if updates is not None else "")
    return model([node(operator, inputs, "y", name="p", **attributes)], {"x": [3, 4]}, ["y"], known).SerializeToString()


@pytest.mark.parametrize(("operator", "inside", "outside", "updates", "attributes", "said"), [
    ("GatherElements", [[-4, 3]], [[0, -5]], None, {"axis": 1}, "an axis of 4; given: indices=-5"),
    ("GatherND", [[2, -4]], [[2, 3], [3, 0]], None, {}, "an axis of 3; given: indices=3"),
    ("GatherND", [[3], [0], [1]], [[3], [4], [1]], None, {"batch_dims": 1}, "an axis of 4; given: indices=4"),
    ("ScatterElements", [[-3]], [[3]], [[1.0]], {}, "an axis of 3; given: indices=3"),
    ("ScatterND", [[2, -4]], [[2, 4]], [1.0], {}, "an axis of 4; given: indices=4"),
])  # fmt: skip
def test_known_indices_are_in_their_axes(
    operator: str, inside: Any, outside: Any, updates: Any, attributes: dict[str, int], said: str
) -> None:
    import_model(picked(operator, inside, updates, attributes))
    with pytest.raises(InvalidError, match=said) as caught:
        import_model(picked(operator, outside, updates, attributes))
    assert caught.value.problems[0].code == "TW2111" and f"{operator} node 'p'" in str(caught.value)
