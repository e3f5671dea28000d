"""BroadcastLoads: what all clusters load comes to all of them at once, and DDR moves it once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from compiler import driver
from compiler.options import Options
from compiler.runtime.model import ProgramSegment
from compiler.sim.simulator import prepare, simulate
from compiler.sim.statistics import statistics
from compiler.target import load_chip
from compiler.tir.near import held_in_common, placed_near
from passes.tir.broadcast_loads import BroadcastLoads
from passes.tir.keep_near import KeepNear
from passes.tir.share_loads import ShareLoads
from tests.codegen.kernels import run
from tests.codegen.test_clusters import on_clusters
from tests.passes.tir.rewriting import keeps
from tests.passes.tir.test_share_loads import mapped
from tests.test_driver import model, node

TW1 = load_chip("tw1")
ONE = TW1.one_cluster(4)


@T.prim_func(s_tir=True, private=True)
def own_columns(w: T.Buffer((64, 256), "float16"), o: T.Buffer((2,), "float16")) -> None:
    """Each core loads columns of its own, chunk by chunk."""
    bx = T.launch_thread("blockIdx.x", 2)
    for k in range(4):
        x = T.alloc_buffer((2048,), "float16", scope="shared.l1")
        T.call_extern(
            "void", "tw.ldnz.ddr.fp16", T.address_of(x[0]), T.address_of(w[k * 16, bx * 128]), 16, 128, 256, 16
        )


@T.prim_func(s_tir=True, private=True)
def columns_of_all_clusters(w: T.Buffer((64, 256), "float16"), o: T.Buffer((2,), "float16")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    for k in range(4):
        x = T.alloc_buffer((2048,), "float16", scope="shared.l1")
        T.call_extern("void", "tw.pldnz.fp16", T.address_of(x[0]), T.address_of(w[k * 16, bx * 128]), 16, 128, 256, 16)


@T.prim_func(s_tir=True, private=True)
def rows_to_l1(w: T.Buffer((8, 256), "float16"), n: T.Buffer((1,), "int32"), o: T.Buffer((2,), "float16")) -> None:
    """As many rows as data says."""
    T.launch_thread("blockIdx.x", 2)
    for k in range(n[0]):
        x = T.alloc_buffer((256,), "float16", scope="shared.l1")
        T.call_extern("void", "tw.ld.ddr.l1.fp16.1d", T.address_of(x[0]), 1, T.address_of(w[k, 0]), 1, 256)


@T.prim_func(s_tir=True, private=True)
def row_to_ub(w: T.Buffer((8, 256), "float16"), o: T.Buffer((2,), "float16")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    x = T.alloc_buffer((256,), "float16", scope="local.ub")
    T.call_extern("void", "tw.ld.ddr.ub.fp16.1d", T.address_of(x[0]), 1, T.address_of(w[bx, 0]), 1, 256)


def common(func: Any) -> Any:
    return held_in_common(func, [0])


def test_what_all_clusters_have_comes_to_all_at_once() -> None:
    after = BroadcastLoads().run(common(own_columns), ONE)
    assert after.script() == common(columns_of_all_clusters).script()
    keeps(BroadcastLoads(), after, ONE)


@pytest.mark.parametrize("chip", [TW1, TW1.one_cluster(1), load_chip("tw2"), load_chip("tiny")], ids=lambda c: c.name)
def test_where_nobody_else_loads_it_it_stays(chip: Any) -> None:
    keeps(BroadcastLoads(), common(own_columns), chip)


@pytest.mark.parametrize(
    "kernel", [own_columns, common(placed_near(own_columns, [0], 0)), common(rows_to_l1), common(row_to_ub)]
)
def test_what_differs_or_is_not_known_or_lies_elsewhere_stays(kernel: Any) -> None:
    keeps(BroadcastLoads(), kernel, ONE)


def test_what_cores_share_comes_to_the_llb_of_all() -> None:
    """Of cores in turn, from slots that are used anew or not; a cluster that is late holds up the others only."""
    values = np.random.default_rng(1).random((40, 5, 192), np.float32)
    for part in (lambda bx: 0, lambda bx: bx // 4, lambda bx: bx % 2):
        after = ShareLoads(always=True).run(common(mapped(8, part)), ONE)
        assert "tw.pld.llb.fp32.1d" in after.script() and "tw.ld.ddr" not in after.script()
        program = on_clusters([(after, ("a", "o"))], TW1, {"a": "constant", "o": "output"})
        for seed in range(3):
            output = run(program, TW1, {"a": values}, seed).outputs["o"]
            for core in range(32):
                for i in range(5):
                    expected = np.tile(values[part(core % 8), i, : min(192, 500 - i * 100)], (3, 1))
                    np.testing.assert_array_equal(output[core, :, i, : expected.shape[1]], expected)


def test_what_a_core_keeps_comes_to_the_llb_of_all() -> None:
    after = KeepNear(always=True).run(common(mapped(8, lambda bx: bx)), ONE)
    assert "tw.pld.llb.fp32.1d" in after.script() and "tw.ld.ddr" not in after.script()
    program = on_clusters([(after, ("a", "o"))], TW1, {"a": "constant", "o": "output"})
    values = np.random.default_rng(1).random((40, 5, 192), np.float32)
    for seed in range(3):
        output = run(program, TW1, {"a": values}, seed).outputs["o"]
        np.testing.assert_array_equal(output[31, :, 0], np.tile(values[7, 0], (3, 1)))


@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize(
    ("nodes", "shapes", "weights"),
    [
        ([node("MatMul", "x w", "y")], {"x": (512, 256)}, {"w": (256, 640)}),
        ([node("MatMul", "x w", "y")], {"x": (512, 256), "w": (256, 640)}, {}),  # given with each run
        ([node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("MatMul", "r v", "y")], {"x": (4, 128, 128)},
         {"w": (128, 256), "v": (256, 128)}),
        ([node("Conv", "x w", "y", pads=[1, 1, 1, 1])], {"x": (8, 64, 14, 14)}, {"w": (96, 64, 3, 3)}),
    ],
)  # fmt: skip
def test_clusters_that_divide_a_batch_read_weights_once(nodes: list[Any], shapes: Any, weights: Any) -> None:
    rng = np.random.default_rng(3)
    held = {name: rng.standard_normal(shape).astype(np.float32) / 8 for name, shape in weights.items()}
    given = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    found = driver.compile_model(model(nodes, shapes, ["y"], **held), TW1, Options(precision="fp16"))
    assert found.clusters > 1
    (segment,) = found.model.segments
    assert isinstance(segment, ProgramSegment)
    moved = statistics(prepare(segment.program, TW1))
    assert any(path.path in ("ddr_l1s", "ddr_llbs") for path in moved.paths)
    once = sum(array.size * 2 for array in (*held.values(), *given.values()))
    made = sum(b.size_bytes for b in segment.program.buffers if b.role == "output")
    assert moved.ddr_bytes < 1.2 * (once + made)
    inputs = {f"in{at}": array.astype(np.float16) for at, array in enumerate(given.values())}
    inputs |= {name: array for name, array in found.model.constants.items()}
    outputs = [simulate(segment.program, TW1, inputs, hazards=True, seed=seed) for seed in range(3)]
    assert not any(each.hazards for each in outputs)
    assert len({b"".join(a.tobytes() for a in each.outputs.values()) for each in outputs}) == 1
