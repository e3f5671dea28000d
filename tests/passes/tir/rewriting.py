"""Running one pass on a kernel and comparing the result with the kernel it should be."""

from __future__ import annotations

from typing import Any

import tvm

from compiler.target import Chip, load_chip
from passes.base import Pass
from passes.tir.if_promotion import IfPromotion
from passes.tir.loop_collapse import LoopCollapse
from passes.tir.loop_fission import LoopFission
from passes.tir.loop_partition import LoopPartition
from passes.tir.loop_shift import LoopShift
from passes.tir.loop_split import LoopSplit

TINY = load_chip("tiny")

TO_NEST_FORM: tuple[Pass, ...] = (
    LoopShift(),
    LoopFission(),
    IfPromotion(),
    LoopSplit(),
    LoopPartition(),
    LoopShift(),
    LoopFission(),
    IfPromotion(),
    LoopCollapse(),
)


def rewrites(rewrite: Pass, before: Any, after: Any) -> None:
    """The pass turns ``before`` into ``after``, and leaves that as it is."""
    result = rewrite.run(before, TINY)
    tvm.ir.assert_structural_equal(result, after)
    tvm.tirx.analysis.verify_well_formed(result)
    assert rewrite.run(result, TINY).same_as(result)


def keeps(rewrite: Pass, kernel: Any, chip: Chip = TINY) -> None:
    """The pass returns the very same kernel."""
    assert rewrite.run(kernel, chip).same_as(kernel)


def nest_form(kernel: Any) -> Any:
    for rewrite in TO_NEST_FORM:
        kernel = rewrite.run(kernel, TINY)
        tvm.tirx.analysis.verify_well_formed(kernel)
    return kernel
