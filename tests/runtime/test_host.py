"""Functions for the host survive as JSON, and compute what they computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.artifact import model_to_bytes
from compiler.errors import CorruptError, InvalidError
from compiler.runtime.host import HostFunction, to_json
from compiler.runtime.loaded import load
from compiler.runtime.model import HostSegment
from tests.artifact import models

tvm = pytest.importorskip("tvm")


def softmax() -> Any:
    from tvm import te, tirx

    x = te.placeholder((3, 5), "float32", "x")
    k, j = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, 5), "j")
    largest = te.compute((3,), lambda i: te.max(x[i, k], axis=k), "largest")
    powers = te.compute((3, 5), lambda i, c: te.exp(x[i, c] - largest[i]), "powers")
    total = te.compute((3,), lambda i: te.sum(powers[i, j], axis=j), "total")
    result = te.compute((3, 5), lambda i, c: tirx.if_then_else(c < 4, powers[i, c] / total[i], -1.0), "result")
    return te.create_prim_func([x, result])


def test_a_function_comes_back_as_it_was() -> None:
    function = softmax()
    read = tvm.ir.load_json(to_json(function))
    tvm.ir.assert_structural_equal(function, read, map_free_vars=True)


def test_the_same_function_gives_the_same_text() -> None:
    assert to_json(softmax()) == to_json(softmax())


def test_a_function_runs_on_buffers_of_the_same_bytes() -> None:
    segment = HostSegment("softmax", "", to_json(softmax()), ("t0", "t1"), ("t1",))
    given = np.random.default_rng(1).standard_normal((15,), np.float32)
    (result,) = HostFunction(segment).run({"t0": given}).values()
    powers = np.exp(given.reshape(3, 5) - given.reshape(3, 5).max(1, keepdims=True))
    expected = np.where(np.arange(5) < 4, powers / powers.sum(1, keepdims=True), -1.0)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_buffers_of_other_bytes_are_refused() -> None:
    segment = HostSegment("softmax", "", to_json(softmax()), ("t0", "t1"), ("t1",))
    for wrong in (np.zeros(15, np.float16), np.zeros(14, np.float32)):
        with pytest.raises(InvalidError, match=r"host kernel softmax wants float32 \[3, 5\] in t0"):
            HostFunction(segment).run({"t0": wrong})


def test_bools_are_bytes() -> None:
    from tvm import te

    x = te.placeholder((4,), "bool", "x")
    function = to_json(te.create_prim_func([x, te.compute((4,), lambda i: te.all(x[i], i < 3), "y")]))
    (result,) = (
        HostFunction(HostSegment("and", "", function, ("a", "b"), ("b",))).run({"a": np.ones(4, np.uint8)}).values()
    )
    assert result.tolist() == [1, 1, 1, 0] and result.dtype == np.uint8


def test_a_model_with_a_host_kernel_between_two_programs() -> None:
    model = load(model_to_bytes(models.model(models.add_one())))
    for _ in range(2):
        outputs = model.run(models.inputs(), hazards=True)
        np.testing.assert_allclose(outputs["z"], models.expected(models.inputs()), rtol=1e-6)
    assert len(model.statistics) == 2


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"root_index":0,"nodes":[{"type":"int","data":1}]}'])
def test_what_is_no_function_is_refused(text: str) -> None:
    with pytest.raises(CorruptError, match="host kernel f cannot be compiled"):
        HostFunction(HostSegment("f", "", text, ("a",), ("a",))).set_up()
