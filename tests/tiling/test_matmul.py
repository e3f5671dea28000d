"""Products of matrices, as tiled for every chip, against numpy in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te, tirx

import compiler
from ci.tile_samples import code_of
from compiler import pipeline
from compiler.isa.dtypes import Queue
from compiler.operators.matmul import gemm, matmul, uncast_product
from compiler.runtime.model import ProgramSegment
from compiler.target import Chip, load_chip
from compiler.tiling import matmul as template
from compiler.tiling.grids import Grid
from compiler.tiling.matmul_problem import Problem, Tile
from compiler.tiling.matmul_tiles import candidates
from compiler.tiling.matmul_work import work_of
from compiler.tiling.template import NoFeasibleTile
from tests.frontend.models import model, node
from tests.tiling.kernels import exact, random, run

CHIPS = ("tw1", "tw2", "tiny")
# One rounding of a sum of K products of numbers around one.
TOLERANCE = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}


def check(chip: str, arrays: dict[str, Any], define: Any, expected: Any, tolerance: float, attempt: int = 0) -> Any:
    result = run(template.schedule, chip, arrays, define, attempt)
    wanted = expected(*exact(list(arrays.values())))
    assert result.output.shape == wanted.shape
    np.testing.assert_allclose(result.output.astype(np.float64), wanted, rtol=tolerance, atol=tolerance * 8)
    return result


SHAPES = [(1, 1, 1), (1, 64, 50), (50, 64, 1), (37, 29, 41), (17, 1, 19), (64, 128, 48)]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("number", range(len(SHAPES)))
@pytest.mark.parametrize("turn", [0, 1])
def test_shapes(chip: str, number: int, turn: int) -> None:
    """On each chip in two of the types."""
    (m, k, n), dtype = SHAPES[number], ("float32", "float16", "bfloat16")[(number + turn + CHIPS.index(chip)) % 3]
    rng = np.random.default_rng(m * k * n)
    of = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    arrays = {"a": random(rng, of, m, k), "b": random(rng, of, k, n)}
    check(chip, arrays, matmul, np.matmul, TOLERANCE[dtype])


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("transposed", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_transposed(chip: str, transposed: tuple[bool, bool], dtype: str) -> None:
    rng = np.random.default_rng(1)
    a = random(rng, dtype, *((29, 37) if transposed[0] else (37, 29)))
    b = random(rng, dtype, *((41, 29) if transposed[1] else (29, 41)))

    def define(a: Any, b: Any) -> Any:
        return uncast_product(a, b, transpose_a=transposed[0], transpose_b=transposed[1])

    def expected(a: Any, b: Any) -> Any:
        return (a.T if transposed[0] else a) @ (b.T if transposed[1] else b)

    check(chip, {"a": a, "b": b}, define, expected, 0 if dtype == "int8" else 2e-6)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 37, 20), (3, 20, 33)),
        ((2, 3, 17, 20), (20, 33)),
        ((2, 1, 17, 20), (3, 20, 33)),
        ((17, 20), (5, 20, 33)),
        ((20,), (20, 33)),
        ((33, 20), (20,)),
        ((20,), (20,)),
    ],
)
def test_batches_and_vectors(chip: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(2)
    arrays = {"a": random(rng, "float16", *shapes[0]), "b": random(rng, "float16", *shapes[1])}
    check(chip, arrays, matmul, np.matmul, TOLERANCE["float16"])


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("shapes", [((37, 3, 20), (20, 33)), ((70, 12, 64), (64, 48)), ((37, 3, 20), (3, 20, 33))])
def test_what_counts_matrices_may_stand_between_rows_and_columns(chip: str, shapes: tuple[Any, Any]) -> None:
    rng = np.random.default_rng(13)
    arrays = {"a": random(rng, "float16", *shapes[0]), "b": random(rng, "float16", *shapes[1])}

    def define(a: Any, b: Any) -> Any:
        (m, batch, depth), n = shapes[0], shapes[1][-1]
        k = te.reduce_axis((0, depth), "k")

        def sum_of_products(g: Any, i: Any, j: Any) -> Any:
            right = b[k, j] if len(shapes[1]) == 2 else b[g, k, j]
            return te.sum(a[i, g, k].astype("float32") * right.astype("float32"), axis=k)

        return te.compute((batch, m, n), sum_of_products, "matmul", attrs={"tw.role": "matmul"})

    result = check(chip, arrays, define, lambda a, b: np.matmul(a.transpose(1, 0, 2), b), TOLERANCE["float16"])
    assert "tw.mad" in result.func.script()


@pytest.mark.parametrize("chip", CHIPS)
def test_int8_is_exact(chip: str) -> None:
    rng = np.random.default_rng(3)
    arrays = {"a": random(rng, "int8", 29, 100), "b": random(rng, "int8", 100, 41)}
    check(chip, arrays, uncast_product, np.matmul, 0)


@pytest.mark.parametrize("chip", CHIPS)
def test_slaves_follow_in_ub(chip: str) -> None:
    rng = np.random.default_rng(4)
    arrays = {
        "a": random(rng, "float16", 50, 37),
        "b": random(rng, "float16", 37, 70),
        "row": random(rng, "float16", 70),
        "residual": random(rng, "float16", 50, 70),
    }

    def define(a: Any, b: Any, row: Any, residual: Any) -> Any:
        product = matmul(a, b)
        biased = te.compute(product.shape, lambda i, j: product[i, j] + row[j], "biased")
        added = te.compute(product.shape, lambda i, j: biased[i, j] + residual[i, j], "added")
        return te.compute(product.shape, lambda i, j: tirx.max(added[i, j], tirx.const(0, "float16")), "relu")

    check(chip, arrays, define, lambda a, b, row, residual: np.maximum(a @ b + row + residual, 0), 2e-3)


@pytest.mark.parametrize("chip", CHIPS)
def test_gemm(chip: str) -> None:
    rng = np.random.default_rng(5)
    arrays = {name: random(rng, "float32", *s) for name, s in (("a", (29, 37)), ("b", (37, 41)), ("c", (29, 1)))}
    check(chip, arrays, gemm, lambda a, b, c: a @ b + c, 2e-6)


@pytest.mark.parametrize("chip", CHIPS)
def test_transposed_result(chip: str) -> None:
    rng = np.random.default_rng(6)
    arrays = {"a": random(rng, "float16", 50, 37), "b": random(rng, "float16", 37, 70)}

    def define(a: Any, b: Any) -> Any:
        product = matmul(a, b)
        return te.compute((70, 50), lambda i, j: product[j, i], "transposed")

    check(chip, arrays, define, lambda a, b: (a @ b).T, TOLERANCE["float16"])


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_a_result_that_nothing_but_a_transposition_follows_is_one_of_the_cube(precision: str) -> None:
    """The fixpipe rounds it, but does not turn it: that takes its way through UB."""
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((1, 4, 64)).astype(np.float32), rng.standard_normal((64, 128)).astype(np.float32)
    nodes = [node("MatMul", "a b", "m"), node("Transpose", "m", "y", perm=[0, 2, 1])]
    network = model(nodes, {"a": a.shape}, ["y"], {"b": b})
    artifact = compiler.compile(network, "tw2", precision=precision, host_kernels=False)
    result = artifact.run({"a": a}, hazards=True)["y"]
    np.testing.assert_allclose(result.astype(np.float32), (a @ b).transpose(0, 2, 1), rtol=1e-2, atol=5e-2)
    (segment,) = artifact.model.segments
    assert isinstance(segment, ProgramSegment)
    assert any(instr.row.queue is Queue.M for instr in segment.program.instrs)


@pytest.mark.parametrize("chip", ["tiny", "tw1", "tw2"])
def test_columns_of_a_map_with_channels_last_are_its_channels(chip: str) -> None:
    """As ConvNeXt writes the last product of a block."""
    rng = np.random.default_rng(9)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 9, 7, 32), (32, 24)))
    nodes = [node("MatMul", "a b", "m"), node("Transpose", "m", "y", perm=[0, 3, 1, 2])]
    artifact = compiler.compile(model(nodes, {"a": a.shape}, ["y"], {"b": b}), chip, precision="fp16", cache=False)
    result = artifact.run({"a": a}, hazards=True)["y"]
    np.testing.assert_allclose(result.astype(np.float32), (a @ b).transpose(0, 3, 1, 2), rtol=1e-2, atol=5e-2)
    assert len(artifact.report.kernels) == 1


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_results_leave_in_groups_of_columns(chip: str) -> None:
    """Where UB holds less than L0C, with what is added to the product."""
    rng = np.random.default_rng(8)
    arrays = {
        "a": random(rng, "float16", 200, 48),
        "b": random(rng, "float16", 48, 1000),
        "row": random(rng, "float16", 1000),
    }

    def define(a: Any, b: Any, row: Any) -> Any:
        product = matmul(a, b)
        return te.compute(product.shape, lambda i, j: product[i, j] + row[j], "biased")

    check(chip, arrays, define, lambda a, b, row: a @ b + row, 2e-3)


def test_later_attempts_take_less() -> None:
    rng = np.random.default_rng(7)
    arrays = {"a": random(rng, "float16", 1000, 64), "b": random(rng, "float16", 64, 960)}
    tiles = {check("tw1", arrays, matmul, np.matmul, 1e-3, attempt).description for attempt in range(3)}
    assert len(tiles) == 3


def test_no_tile_is_said_so() -> None:
    a, b = te.placeholder((32, 32), "float16", "a"), te.placeholder((32, 32), "float16", "b")
    with pytest.raises(NoFeasibleTile, match="no tile fits"):
        template.schedule(te.create_prim_func([a, b, matmul(a, b)]), load_chip("tiny"), 50)


@pytest.mark.parametrize("chip_name", CHIPS)
def test_every_candidate_fits(chip_name: str) -> None:
    chip = load_chip(chip_name)
    problem = Problem((2,), ("",), 333, 700, 1001, "fp16", 8)
    tiles = candidates(problem, chip)
    assert tiles
    for tile in tiles:
        assert tile.grid.count <= chip.cores
        assert all(taken <= chip.memory_bytes(name) for name, taken in tile.bytes_of(problem).items())
        assert tile.step % problem.k0 == 0


@pytest.mark.parametrize("chip_name", ["tw1", "tw2"])
def test_the_work_of_a_tile_is_at_least_the_least_there_is(chip_name: str) -> None:
    """All products, and every byte of both operands and the result once."""
    chip = load_chip(chip_name)
    problem = Problem((), (), 512, 768, 256, "fp16", 2, result_bytes=2)
    for tile in candidates(problem, chip):
        work = work_of(tile, problem, chip)
        assert work.cube_cycles * work.cores >= 512 * 768 * 256 / chip.macs_per_cycle("fp16")
        assert work.ddr_bytes >= (512 * 256 + 256 * 768 + 512 * 768) * 2
        assert work.first_cycles > 0
        assert work.last_cycles >= 0


def test_a_product_bound_by_ddr_keeps_to_few_clusters() -> None:
    """Every cluster more reads one of the operands again."""
    problem = Problem((), (), 256, 256, 256, "fp16", 2, result_bytes=2)
    best = candidates(problem, load_chip("tw1"))[0]
    assert best.grid.count <= load_chip("tw1").cores_per_cluster


def test_tiles_share_what_they_read_in_the_room_that_a_kernel_has() -> None:
    """Eight cores read the same columns: through slots that fit, or each all of them."""
    chip = TW1.one_cluster()
    problem = Problem((8,), ("a",), 128, 3072, 768, "fp16", 2, result_bytes=2, near=frozenset("ac"))
    whole = 3072 * 768 * 2
    for room, most in ((chip.memory.llb_bytes, 1.1), (256 << 10, 1.1), (1 << 10, 9)):
        best = candidates(replace(problem, room_bytes=room), chip)[0]
        assert whole <= work_of(best, replace(problem, room_bytes=room), chip).ddr_bytes < most * whole
    large = candidates(replace(problem, room_bytes=chip.memory.llb_bytes), chip)[0]
    large = replace(large, steps=24)
    alone = work_of(large, replace(problem, room_bytes=256 << 10), chip)
    assert alone.ddr_bytes > 7 * whole


def test_many_columns_leave_tiles_whose_results_take_turns_in_l0c() -> None:
    problem = Problem((8,), ("a",), 128, 3072, 768, "fp16", 8, result_bytes=2, near=frozenset("ac"), room_bytes=1 << 18)
    assert any((tile.m, tile.n) == (128, 256) for tile in candidates(problem, TW1.one_cluster()))


def test_ragged_rows_are_kept_out_of_most_loads() -> None:
    """777 columns of a would be loaded at half the rate as a whole: chunks leave the odd ones to the last."""
    problem = Problem((), (), 1000, 1024, 777, "fp16", 0, result_bytes=2)
    best = candidates(problem, load_chip("tw2"))[0]
    assert best.step * best.steps < 777


# ---- operands of which a part is held --------------------------------------------------------------------------------

TW1 = load_chip("tw1")
SMALL = replace(TW1, memory=replace(TW1.memory, l1_bytes=96 << 10, l0c_bytes=32 << 10, llb_bytes=1 << 20))


def in_part(func: Any, chip: Chip, attempt: int) -> Any:
    """By the best tile that holds a part of an operand, or a later one."""
    space = template.space(func, chip)
    return space.apply([tile for tile in space.tiles() if tile.is_held_in_part][attempt])


@pytest.mark.parametrize(
    ("clusters", "attempt", "dtype"), [(2, 0, "float16"), (4, 7, "float16"), (2, 7, "float32"), (4, 0, "float32")]
)
@pytest.mark.parametrize("shape", [(512, 1024, 512), (500, 777, 500), (1000, 1030, 300)])
def test_a_part_of_an_operand_is_held(clusters: int, attempt: int, dtype: str, shape: tuple[int, int, int]) -> None:
    (m, k, n), rng = shape, np.random.default_rng(9)
    arrays = {"a": random(rng, dtype, m, k), "b": random(rng, dtype, k, n)}
    result = run(in_part, replace(SMALL, clusters=clusters), arrays, uncast_product, attempt)
    np.testing.assert_allclose(result.output, np.matmul(*exact(list(arrays.values()))), rtol=2e-5, atol=2e-4)
    assert "_kept" in result.func.script()


@pytest.mark.parametrize("transposed", [(True, False), (False, True)])
def test_a_part_of_a_transposed_operand_is_held(transposed: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(10)
    dtype = "int8" if transposed[0] else "float16"
    a = random(rng, dtype, *((777, 500) if transposed[0] else (500, 777)))
    b = random(rng, dtype, *((500, 777) if transposed[1] else (777, 500)))

    def define(a: Any, b: Any) -> Any:
        return uncast_product(a, b, transpose_a=transposed[0], transpose_b=transposed[1])

    result = run(in_part, SMALL, {"a": a, "b": b}, define)
    wide_a, wide_b = exact([a, b])
    expected = (wide_a.T if transposed[0] else wide_a) @ (wide_b.T if transposed[1] else wide_b)
    np.testing.assert_allclose(result.output, expected, rtol=2e-5, atol=2e-4)


def test_large_products_hold_what_they_can() -> None:
    """The columns of b that a cluster works on fit in its LLB and L1 together, but in none of them alone."""
    problem = Problem((), (), 6144, 6144, 6144, "fp16", 2, result_bytes=2)
    best = candidates(problem, TW1)[0]
    assert best.is_held_in_part
    whole = [tile for tile in candidates(problem, TW1) if not tile.is_held_in_part]
    assert work_of(best, problem, TW1).ddr_bytes < 0.7 * work_of(whole[0], problem, TW1).ddr_bytes


def test_loads_run_ahead_beside_what_is_held() -> None:
    """One flag tells of both operands; one more would have to be waited for before it is set for the next turn."""
    chip, tile = load_chip("tw2"), Tile(128, 64, 128, 1, (), 1, 2, "a", Grid((), (1, 1), (1, 16)))
    a, b = te.placeholder((128, 512), "float16", "a"), te.placeholder((512, 2048), "float16", "b")
    space = template.space(te.create_prim_func([a, b, matmul(a, b)]), chip)
    lowered = pipeline.run(pipeline.kernel_passes(), space.apply(tile).func, chip, pipeline.Observer())
    assert lowered.script().count("tw.set_flag.mte2.mte1") == 1


@pytest.mark.parametrize(("chip_name", "slave_bytes"), [("tw1", 2), ("tw2", 0)])
def test_a_result_may_leave_in_halves(chip_name: str, slave_bytes: int) -> None:
    """One half is stored while the other one leaves the cube; each in whole lines of DDR."""
    chip = load_chip(chip_name)
    problem = Problem((), (), 1024, 1024, 1024, "fp16", slave_bytes, result_bytes=2)
    found = set(candidates(problem, chip))
    halves = [tile for tile in found if tile.columns and replace(tile, columns=2 * tile.columns) in found]
    assert halves
    assert all(tile.columns * problem.result_bytes % chip.transfer.ddr_line_bytes == 0 for tile in halves)


def test_what_is_held_comes_at_once_where_chunks_would_cut_lines() -> None:
    """Half a line of each row of a: the cube would wait for all of a."""
    problem = Problem((), (), 1024, 768, 768, "fp16", 2, result_bytes=2, near=frozenset({"a"}))
    grid = Grid((), (1, 1), (8, 1))
    short = Tile(128, 256, 32, 1, (), 1, 3, "a", grid, columns=128)
    works = [work_of(replace(short, steps=steps), problem, TW1) for steps in (1, 2)]
    assert works[0].first_cycles > works[1].first_cycles + 128 * 768 * 2 / 110


def test_rows_that_end_within_a_block_slow_a_core_and_not_ddr() -> None:
    grid = Grid((), (1, 1), (1, 8))
    tile = Tile(128, 128, 64, 3, (), 8, 1, "b", grid, columns=128)
    even, ragged = (work_of(tile, Problem((), (), 1024, n, 768, "fp16", 2, result_bytes=2), TW1) for n in (1024, 1000))
    loaded_lines = (128 + 128 * 2 - 16) / (128 * 2)  # rows of 2000 bytes begin anywhere
    assert ragged.mte2_cycles > even.mte2_cycles
    assert ragged.ddr_bytes <= even.ddr_bytes * loaded_lines


@pytest.mark.parametrize("chip_name", ["tw1", "tw2"])
@pytest.mark.parametrize("shape", [(256, 256, 256), (512, 96, 384), (48, 3072, 96)])
def test_ranking_knows_which_loads_the_pass_will_share(chip_name: str, shape: tuple[int, int, int]) -> None:
    """Of five tiles the pass may decide otherwise about one, by what it sees of the kernel."""
    chip = load_chip(chip_name)
    a, b = te.placeholder((shape[0], shape[2]), "float16", "a"), te.placeholder((shape[2], shape[1]), "float16", "b")
    space = template.space(te.create_prim_func([a, b, matmul(a, b)]), chip)
    alike = []
    for tile in space.tiles()[:40:8]:
        code = code_of(space, tile, chip, "product")
        assert code is not None
        brings = any(("ddr", "llb") == instr.mods[:2] for instr in code.instrs)
        alike.append(brings == (space.work(tile).shared > 0))
    assert sum(alike) >= 4


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("shape", [(2, 40, 48, 33), (3, 100, 64, 96), (1, 7, 5, 130)])
def test_a_product_between_two_transpositions(chip: str, shape: tuple[int, int, int, int]) -> None:
    """Channels come one after another, and so they leave; between, they are side by side."""
    batch, rows, k, n = shape
    rng = np.random.default_rng(12)
    arrays = {
        "x": random(rng, "float16", batch, k, rows),
        "w": random(rng, "float16", k, n),
        "bias": random(rng, "float16", n),
    }

    def define(x: Any, w: Any, bias: Any) -> Any:
        turned = te.compute((batch, rows, k), lambda b, i, j: x[b, j, i], "turned")
        product = matmul(turned, w)
        added = te.compute(product.shape, lambda b, i, j: product[b, i, j] + bias[j], "added")
        return te.compute((batch, n, rows), lambda b, j, i: added[b, i, j], "result")

    def expected(x: Any, w: Any, bias: Any) -> Any:
        return (x.transpose(0, 2, 1) @ w + bias).transpose(0, 2, 1)

    def fused(func: Any, machine: Chip, attempt: int) -> Any:
        sch = tvm.s_tir.Schedule(func)
        sch.compute_inline(sch.get_sblock("turned"))
        return template.schedule(sch.mod["main"], machine, attempt)

    result = run(fused, chip, arrays, define)
    wanted = expected(*exact(list(arrays.values())))
    np.testing.assert_allclose(result.output.astype(np.float64), wanted, rtol=2e-3, atol=1.6e-2)
