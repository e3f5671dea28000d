"""The passes together: what real schedules and random nests make comes to nest form and computes the same."""

from __future__ import annotations

import pytest

from compiler.tir.nests import in_nest_form
from compiler.tir_check import differs
from tests.passes.tir.random_nests import random_kernel
from tests.passes.tir.rewriting import nest_form
from tests.passes.tir.schedules import SCHEDULES


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_come_to_nest_form(name: str) -> None:
    before = SCHEDULES[name]()
    after = nest_form(before)
    assert in_nest_form(after) == []
    assert differs(before, after, seed=1) is None
    assert nest_form(after).same_as(after)


@pytest.mark.parametrize("seed", range(40))
def test_random_nests_compute_the_same(seed: int) -> None:
    before = random_kernel(seed)
    assert differs(before, nest_form(before), seed=seed) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 160))
def test_many_random_nests_compute_the_same(seed: int) -> None:
    before = random_kernel(seed)
    assert differs(before, nest_form(before), seed=seed) is None
