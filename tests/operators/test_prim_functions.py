"""PrimFuncs made of nests: what a schedule and the lowering find in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir, s_tir, tirx
from tvm_ffi import structural_walk

from compiler.operators import TensorType, find_called

LOWERING = (
    "LowerInitBlock",
    "PlanAndUpdateBufferAllocationLocation",
    "ConvertBlocksToOpaque",
    "CompactBufferAllocation",
    "LowerMatchBuffer",
    "LowerOpaqueBlock",
)
X = TensorType((4, 6, 10), "float32")


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


REGIONS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "concat": ("Concat", [X, TensorType((4, 3, 10), "float32")], {"axis": 1}),
    "pad": ("Pad", [X, ints(0, 1, 2, 0, 2, 1)], {}),
    "reflect": ("Pad", [X, ints(0, 1, 2, 0, 2, 1)], {"mode": "reflect"}),
    "interpolate": (
        "tilewright::Interpolate",
        [
            X,
            np.array([[0, 0], [0, 1], [0, 1], [1, 2]]),
            np.array([[1, 0], [0.25, 0.75], [0.75, 0.25], [0.25, 0.75]]),
            np.zeros(4),
        ],
        {"axis": 1, "dtype": "float32"},
    ),
}
LOOPS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "insert": ("tilewright::BestOfBlocks", [TensorType((6, 10), "float32")], {"block": 4, "k": 2}),
    "merge": ("tilewright::TopKByLoops", [X], {"k": 10, "axis": 2}),
    "cumsum": ("tilewright::Running", [TensorType((6, 10), "float16")], {"what": "Sum"}),
    "scatter": ("ScatterND", [X, TensorType((2, 1), "int32"), TensorType((2, 6, 10), "float32")], {}),
    "nms": (
        "tilewright::PickBoxes",
        [TensorType((1, 5, 4), "float32"), TensorType((1, 2, 5), "float32")],
        {"most": 3, "iou_limit": 0.5},
    ),
    "nms_rows": ("tilewright::CollectBoxes", [TensorType((2, 3, 3), "int32"), TensorType((2,), "int32")], {}),
    "roi": (
        "tilewright::RoiAlignByLoops",
        [TensorType((1, 2, 6, 6), "float32"), TensorType((3, 4), "float32"), TensorType((3,), "int32")],
        {"mode": "avg", "bins": (1, 1), "spatial_scale": 1.0, "half_pixel": True},
    ),
}


def function(case: tuple[str, list[Any], dict[str, Any]]) -> Any:
    name, inputs, attributes = case
    return find_called(name).prim_func(inputs, attributes)


def scopes(schedule: Any) -> list[list[Any]]:
    """The blocks of each region of the result."""
    return [schedule.get_child_blocks(scope) for scope in schedule.get_child_blocks(schedule.get_sblock("root"))]


@pytest.mark.parametrize("case", REGIONS)
def test_each_region_can_be_tiled_and_staged(case: str) -> None:
    # A copy: s_tir.Schedule changes nested blocks of the function that it is given.
    schedule = s_tir.Schedule(ir.IRModule({"main": s_tir.renew_defs(function(REGIONS[case]))}))
    regions = scopes(schedule)
    assert len(regions) > 1
    for blocks in regions:
        loop = schedule.get_loops(blocks[-1])[0]
        if len(blocks) == 2:  # a value, and the copy of it to its place
            schedule.compute_at(blocks[0], loop)
            schedule.set_scope(blocks[0], 0, "local.ub")
        else:
            staged = schedule.cache_read(blocks[-1], 0, "local.ub")
            schedule.compute_at(staged, loop)
        schedule.bind(loop, "blockIdx.x")
    assert lowered_stores(schedule.mod) == 2 * len(regions)


@pytest.mark.parametrize("case", LOOPS)
def test_loops_are_lowered_without_blocks(case: str) -> None:
    assert lowered_stores(ir.IRModule({"main": function(LOOPS[case])})) > 0


@pytest.mark.parametrize("case", [*REGIONS, *LOOPS])
def test_names_are_unique(case: str) -> None:
    names: list[str] = []
    structural_walk(function((REGIONS | LOOPS)[case]).body, (s_tir.SBlock, lambda b: names.append(b.name_hint)))
    assert len(set(names)) == len(names)


def lowered_stores(module: Any) -> int:
    for name in LOWERING:
        module = getattr(s_tir.transform, name)()(module)
    stores: list[Any] = []
    blocks: list[Any] = []
    structural_walk(module["main"].body, (tirx.BufferStore, stores.append), (s_tir.SBlock, blocks.append))
    assert not blocks
    return len(stores)
