"""What test_handwritten.py does not execute: the text for large matrices, and ragged sizes beside the measured ones."""

from __future__ import annotations

import pytest

from compiler.sim.simulator import simulate
from tests.handwritten import Case
from tests.handwritten.gemm import matmul

SIZES = [
    matmul("gemm_tw2_large.twasm", "tw2", 768, 512, 1280),  # one tile more on some cores than on others
    matmul("gemm_tw2.twasm", "tw2", 1040, 400, 961),
    matmul("gemm_tw2.twasm", "tw2", 961, 1023, 1007),
    matmul("gemm_tw1.twasm", "tw1", 1017, 513, 1023),
    matmul("gemm_tw1.twasm", "tw1", 976, 130, 890),
]


@pytest.mark.parametrize("case", SIZES, ids=lambda case: case.name)
def test_other_sizes_are_right_and_race_free(case: Case) -> None:
    inputs = case.inputs()
    run = simulate(case.program, case.chip, inputs, hazards=True)
    assert not run.hazards, "\n".join(problem.render() for problem in run.hazards[:5])
    case.check(inputs, run.outputs)
