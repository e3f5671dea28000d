"""What the sinh cases rely on: shares that cover the data once, and special values that keep their sign."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.sim.simulator import simulate
from tests.handwritten.sinh import BLOCK_ELEMS, CASES, SPECIALS, TOTALS, tiling


@pytest.mark.parametrize("cores", [1, 20, 32])
@pytest.mark.parametrize("total", [1, 15, 16, 17, *TOTALS.values()])
def test_shares_cover_the_data_once_and_differ_by_a_block(total: int, cores: int) -> None:
    words = tiling(total, cores)
    blocks = [words["TAIL_ELEMS"] // BLOCK_ELEMS + (core < words["FORMER_CORES"]) for core in range(cores)]
    assert sum(blocks) == -(-total // BLOCK_ELEMS)
    assert max(blocks) - min(blocks) <= 1


def test_the_code_is_the_same_for_every_size() -> None:
    for chip_name in ("tw1", "tw2"):
        for mode in ("double", "single"):
            found = [c for c in CASES if c.chip_name == chip_name and c.name.endswith(mode)]
            assert len(found) == len(TOTALS)
            assert len({c.program.instrs for c in found}) == 1


@pytest.mark.parametrize("case", [c for c in CASES if "8x64" in c.name or "1x48" in c.name], ids=lambda case: case.name)
def test_zeros_keep_their_sign_and_subnormals_their_value(case) -> None:
    y = simulate(case.program, case.chip, case.inputs()).outputs["y"][: len(SPECIALS)]
    small = np.abs(SPECIALS.astype(np.float64)) < 1e-6
    np.testing.assert_array_equal(y[small].view(np.uint16), SPECIALS[small].view(np.uint16))
