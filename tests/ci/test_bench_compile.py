"""The job that measures compile time: its stacks, its line, and what it calls too slow."""

from __future__ import annotations

import onnx
import pytest

from ci.bench_compile import exponent, faults, model_bytes, table


def test_a_stack_is_as_deep_as_it_says() -> None:
    straight, residual = (onnx.load_model_from_string(model_bytes(f"{kind}-6")) for kind in ("straight", "residual"))
    onnx.checker.check_model(straight, full_check=True)
    onnx.checker.check_model(residual, full_check=True)
    kinds = [node.op_type for node in residual.graph.node]
    assert (kinds.count("Conv"), kinds.count("Add"), len(straight.graph.node)) == (6, 3, 12)


def test_the_exponent_of_a_power() -> None:
    assert exponent([50, 500, 2000], [0.1 * n**1.3 for n in (50, 500, 2000)]) == pytest.approx(1.3)


def test_what_takes_too_long_is_told() -> None:
    fast = {"model": "m", "tvm": 2.0, "cold": 3.0, "times": 1.5, "warm": 1.0}
    line = {"stack": "straight", "layers": [50, 500, 2000, 5000], "seconds": [1.0, 4.0, 9.0, 20.0], "exponent": 0.6}
    served = {"model": "served-m", "cold": 20.0}
    report = {"models": [fast], "served": [served], "stacks": [line]}
    assert not faults(report) and "straight" in table(report)
    slow = {
        "models": [{**fast, "times": 2.5, "warm": 2.5}],
        "served": [{**served, "cold": 61.0}],
        "stacks": [{**line, "exponent": 1.3}],
    }
    assert len(faults(slow)) == 4
