"""A cluster reads what its cores have in common once; results stay, and no timing can break the order."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx
from tvm.script import tirx as T

from compiler import pipeline
from compiler.codegen import generate
from compiler.codegen.kernel import TURNS
from compiler.codegen.link import GraphBuffer, PlacedKernel, link
from compiler.codegen.sharing import rotation_cycles
from compiler.kernels import compile_kernel
from compiler.operators.matmul import matmul
from compiler.sim.simulator import Run, simulate
from compiler.sim.statistics import statistics
from compiler.target import Chip, load_chip
from compiler.tiling import matmul as template
from compiler.tiling.grids import Grid
from compiler.tiling.matmul_problem import Tile
from compiler.tir.near import CONSTANTS, placed_near
from passes.tir.share_loads import ShareLoads
from tests.codegen.kernels import linked, run
from tests.passes.tir.rewriting import keeps

ALWAYS = ShareLoads(always=True)


@T.prim_func(s_tir=True, private=True)
def chunks(a: T.Buffer((4, 16, 64), "float32"), o: T.Buffer((2, 4, 1024), "float32")) -> None:
    """Both cores load all of a."""
    bx = T.launch_thread("blockIdx.x", 2)
    for i in range(4):
        x = T.alloc_buffer((1024,), scope="local.ub")
        T.call_extern(
            "void", "tw.ld.ddr.ub.fp32.2d", T.address_of(x[0]), 64, 1, T.address_of(a[i, 0, 0]), 64, 1, 16, 64
        )
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, i, 0]), 1, T.address_of(x[0]), 1, 1024)


@T.prim_func(s_tir=True, private=True)
def shared_chunks(a: T.Buffer((4, 16, 64), "float32"), o: T.Buffer((2, 4, 1024), "float32")) -> None:
    """Each core brings every second chunk."""
    bx = T.launch_thread("blockIdx.x", 2)
    a_llb = T.alloc_buffer((4096,), scope="shared.llb")
    T.call_extern(
        "void", "tw.ld.ddr.llb.fp32.1d", T.address_of(a_llb[bx * 1024]), 1, T.address_of(a[bx, 0, 0]), 1, 1024
    )
    for other in range(2):
        T.call_extern("void", "tw.cross_set.mte2", other, 0)
    for i in range(4):
        x = T.alloc_buffer((1024,), scope="local.ub")
        if i % 2 == bx and i < 2:
            T.call_extern(
                "void", "tw.ld.ddr.llb.fp32.1d",
                T.address_of(a_llb[i * 1024 + 2048]), 1, T.address_of(a[i + 2, 0, 0]), 1, 1024,
            )  # fmt: skip
            for other in range(2):
                T.call_extern("void", "tw.cross_set.mte2", other, 0)
        T.call_extern("void", "tw.cross_wait.mte2", i % 2, 0)
        T.call_extern(
            "void", "tw.ld.llb.ub.fp32.2d", T.address_of(x[0]), 64, 1, T.address_of(a_llb[i * 1024]), 64, 1, 16, 64
        )
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, i, 0]), 1, T.address_of(x[0]), 1, 1024)


def test_cores_take_turns_in_bringing_what_all_load() -> None:
    chip = replace(load_chip("tiny"), cross_flag_max=15)
    result = ShareLoads().run(chunks, chip)
    # Of 48 KiB, 32 are stored by both at once, 16 are loaded in turns.
    expected = shared_chunks.with_attr(TURNS, tirx.FloatImm("float64", 48 / 40))
    assert result.script() == expected.script()
    keeps(ALWAYS, result, chip)


def test_nothing_is_shared_where_flags_count_to_one() -> None:
    chip = replace(load_chip("tiny"), cross_flag_max=1)
    assert ALWAYS.run(chunks, chip).same_as(chunks)


@T.prim_func(s_tir=True, private=True)
def one_piece(a: T.Buffer((1024,), "float32"), o: T.Buffer((2, 1024), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    x = T.alloc_buffer((1024,), scope="local.ub")
    T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[0]), 1, 1024)
    T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, 0]), 1, T.address_of(x[0]), 1, 1024)


@T.prim_func(s_tir=True, private=True)
def shared_piece(a: T.Buffer((1024,), "float32"), o: T.Buffer((2, 1024), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    a_llb = T.alloc_buffer((1024,), scope="shared.llb")
    x = T.alloc_buffer((1024,), scope="local.ub")
    T.call_extern(
        "void", "tw.ld.ddr.llb.fp32.1d", T.address_of(a_llb[bx * 512]), 1,
        T.call_extern(T.handle().ty, "tw.at", T.address_of(a[0]), bx * 2048), 1, 512,
    )  # fmt: skip
    for other in range(2):
        T.call_extern("void", "tw.cross_set.mte2", other, 0)
    for other in range(2):
        T.call_extern("void", "tw.cross_wait.mte2", other, 0)
    T.call_extern("void", "tw.ld.llb.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a_llb[0]), 1, 1024)
    T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, 0]), 1, T.address_of(x[0]), 1, 1024)


def test_cores_bring_shares_of_the_only_piece() -> None:
    result = ALWAYS.run(one_piece, load_chip("tiny"))
    assert result.script() == shared_piece.script()


@T.prim_func(s_tir=True, private=True)
def own_rows(a: T.Buffer((2, 1024), "float32"), o: T.Buffer((2, 1024), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    x = T.alloc_buffer((1024,), scope="local.ub")
    T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[bx, 0]), 1, 1024)
    T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, 0]), 1, T.address_of(x[0]), 1, 1024)


@T.prim_func(s_tir=True, private=True)
def written_rows(a: T.Buffer((2, 1024), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    x = T.alloc_buffer((1024,), scope="local.ub")
    T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[0, 0]), 1, 1024)
    T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(a[1, bx * 512]), 1, T.address_of(x[0]), 1, 512)


@T.prim_func(s_tir=True, private=True)
def rows_by_data(
    a: T.Buffer((8, 1024), "float32"), n: T.Buffer((1,), "int32"), o: T.Buffer((2, 1024), "float32")
) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    x = T.alloc_buffer((1024,), scope="local.ub")
    T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[n[0], 0]), 1, 1024)
    T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, 0]), 1, T.address_of(x[0]), 1, 1024)


@T.prim_func(s_tir=True, private=True)
def one_core(a: T.Buffer((1024,), "float32"), o: T.Buffer((1024,), "float32")) -> None:
    x = T.alloc_buffer((1024,), scope="local.ub")
    T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[0]), 1, 1024)
    T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[0]), 1, T.address_of(x[0]), 1, 1024)


@pytest.mark.parametrize("kernel", [own_rows, written_rows, rows_by_data, one_core])
def test_what_is_not_known_to_be_the_same_stays(kernel: Any) -> None:
    keeps(ALWAYS, kernel)


@T.prim_func(s_tir=True, private=True)
def few_bytes(a: T.Buffer((16,), "float32"), o: T.Buffer((2, 16), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    x = T.alloc_buffer((16,), scope="local.ub")
    T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[0]), 1, 16)
    T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, 0]), 1, T.address_of(x[0]), 1, 16)


def test_a_few_bytes_are_loaded_sooner_than_shared() -> None:
    keeps(ShareLoads(), few_bytes)
    assert "llb" in ALWAYS.run(few_bytes, load_chip("tiny")).script()


# ---- runs --------------------------------------------------------------------------------------------------------


def mapped(cores: int, part: Callable[[Any], Any], used: Callable[[Any, Any], Any] = lambda bx, i: 1 > 0) -> Any:
    """Each core copies part after part: three times over the 5 rows of ``part(core)``, where ``used``."""

    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((40, 5, 192), "float32"), o: T.Buffer((cores, 3, 5, 192), "float32")) -> None:
        bx = T.launch_thread("blockIdx.x", cores)
        for again in range(3):
            for i in range(5):
                x = T.alloc_buffer((192,), scope="local.ub")
                if used(bx, i):
                    T.call_extern(
                        "void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1,
                        T.address_of(a[part(bx), i, 0]), 1, T.min(192, 500 - i * 100),
                    )  # fmt: skip
                    T.call_extern(
                        "void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, again, i, 0]), 1,
                        T.address_of(x[0]), 1, T.min(192, 500 - i * 100),
                    )  # fmt: skip

    return func


MAPS = pytest.mark.parametrize(
    ("chip_name", "cores", "part"),
    [
        ("tiny", 2, lambda bx: 0),
        ("tw2", 20, lambda bx: bx // 4),
        ("tw2", 20, lambda bx: bx % 5),
        ("tw2", 19, lambda bx: bx % 4),
        ("tw1", 32, lambda bx: bx // 8),
        ("tw1", 32, lambda bx: bx // 16 * 4 + bx % 4),
        ("tw1", 15, lambda bx: bx // 3),
        ("tw1", 15, lambda bx: bx % 3),
        ("tw1", 29, lambda bx: (bx + 1) // 2),
    ],
)  # fmt: skip


def check(chip: Chip, cores: int, part: Callable[[Any], Any], after: Any) -> None:
    values = np.random.default_rng(1).random((40, 5, 192), np.float32)
    program = linked([(after, ("a", "o"))], chip, {"a": "input", "o": "output"})
    for seed in range(3):
        output = run(program, chip, {"a": values}, seed).outputs["o"]
        for core in range(cores):
            for i in range(5):
                count = min(192, 500 - i * 100)
                np.testing.assert_array_equal(
                    output[core, :, i, :count], np.tile(values[part(core), i, :count], (3, 1))
                )


@MAPS
def test_any_map_of_cores_to_parts(chip_name: str, cores: int, part: Callable[[Any], Any]) -> None:
    chip = load_chip(chip_name)
    after = ALWAYS.run(mapped(cores, part), chip)
    assert "shared.llb" in after.script()
    check(chip, cores, part, after)


@MAPS
def test_pieces_share_slots_where_llb_is_small(chip_name: str, cores: int, part: Callable[[Any], Any]) -> None:
    chip = load_chip(chip_name)
    regions = len({part(core) for core in range(min(cores, chip.cores_per_cluster))})
    small = replace(chip, memory=replace(chip.memory, llb_bytes=4 * regions * 768 + 512))
    before = mapped(cores, part)
    if chip_name == "tiny":  # it has one flag beside the linker's, and two are needed
        keeps(ALWAYS, before, small)
        return
    after = ALWAYS.run(before, small)
    assert " % 4 * " in after.script()
    check(small, cores, part, after)


def test_turns_that_a_group_leaves_out() -> None:
    chip = load_chip("tw1")
    after = ALWAYS.run(mapped(32, lambda bx: bx // 4, lambda bx, i: i + bx // 4 < 6), chip)
    assert "shared.llb" in after.script()
    values = np.random.default_rng(1).random((40, 5, 192), np.float32)
    program = linked([(after, ("a", "o"))], chip, {"a": "input", "o": "output"})
    for seed in range(3):
        output = run(program, chip, {"a": values}, seed).outputs["o"]
        np.testing.assert_array_equal(output[20, :, 0], np.tile(values[5, 0], (3, 1)))


def test_turns_behind_one_that_is_left_out_are_not_prepared() -> None:
    keeps(ALWAYS, mapped(32, lambda bx: bx // 4, lambda bx, i: i + bx // 4 > 1), load_chip("tw1"))


def test_ddr_rests_less_the_more_parts_take_turns() -> None:
    alone = rotation_cycles(1, 1098, 512)
    assert alone == 1098 + 512
    turns = [rotation_cycles(parts, 1098, 512) for parts in (2, 4, 8, 64)]
    assert alone > turns[0] > turns[1] > turns[2] > turns[3] >= 1098
    assert 1098 / turns[0] == pytest.approx(0.82, abs=0.01)
    # Where other work takes longer than DDR, that decides.
    assert rotation_cycles(8, 100, 1000) == pytest.approx(1000 + 100 / 8, rel=0.02)


def test_few_slots_suffice_for_many_parts() -> None:
    """Of eight cores, four parts of two take turns where LLB holds two pieces of each."""
    chip = replace(load_chip("tw1"), clusters=1)
    a, b = te.placeholder((1024, 768), "float16", "a"), te.placeholder((768, 768), "float16", "b")
    func = placed_near(te.create_prim_func([a, b, matmul(a, b)]), [0], 8 * 64 * 256 * 2)
    tile = Tile(128, 256, 32, 2, (), 1, 3, "a", Grid((), (1, 1), (8, 1)), columns=128)
    with pytest.raises(pipeline.Stopped) as stopped:
        pipeline.run(
            pipeline.kernel_passes(), template.space(func, chip).apply(tile).func, chip,
            pipeline.Observer(stop_after="share-loads"),
        )  # fmt: skip
    text = stopped.value.subject.script()
    assert "b_llb = T.alloc_buffer((131072,)" in text  # eight slots
    assert "% 4 ==" in text


def test_kernels_may_follow_each_other() -> None:
    chip = load_chip("tw2")
    after = ALWAYS.run(mapped(20, lambda bx: bx // 4), chip)
    outputs = [f"o{n}" for n in range(4)]
    program = linked(
        [(after, ("a", name)) for name in outputs], chip, {"a": "input"} | dict.fromkeys(outputs, "output")
    )
    values = np.random.default_rng(1).random((40, 5, 192), np.float32)
    for seed in range(3):
        run(program, chip, {"a": values}, seed)


def simulated(chip_name: str, shape: tuple[int, int, int], without: frozenset[str]) -> tuple[Run, np.ndarray]:
    chip, (m, k, n) = load_chip(chip_name), shape
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(each).astype("float16") for each in ((m, k), (k, n))]
    a, b = (te.placeholder(array.shape, "float16", name) for array, name in zip(arrays, "ab", strict=True))
    tiled = template.schedule(te.create_prim_func([a, b, matmul(a, b)]), chip, 0)
    lowered = pipeline.run(pipeline.kernel_passes(), tiled.func, chip, pipeline.Observer(without=without))
    code = generate(lowered, chip)
    parameters = [p for p in code.parameters if not p.scratch]
    names = tuple(p.name for p in parameters)
    roles = ("input", "input", "output")
    buffers = [
        GraphBuffer(p.name, p.dtype, p.shape, p.size_bytes, role) for p, role in zip(parameters, roles, strict=True)
    ]
    program = link([PlacedKernel("kernel", code, names)], chip, buffers).program
    result = simulate(program, chip, dict(zip(names, arrays, strict=False)), hazards=True)
    assert not result.hazards, result.hazards[0].render()
    return result, result.outputs[names[-1]]


@pytest.mark.parametrize("chip_name", ["tw1", "tw2", "tiny"])
@pytest.mark.parametrize("shape", [(512, 512, 512), (500, 389, 301)])
def test_products_read_less(chip_name: str, shape: tuple[int, int, int]) -> None:
    if chip_name == "tiny":  # a tile of the ragged one is shared where there are columns for both cores
        shape = (64, 64, 64) if shape[0] == 512 else (62, 97, 37)
    shared, result = simulated(chip_name, shape, frozenset())
    alone, expected = simulated(chip_name, shape, frozenset({"share-loads"}))
    np.testing.assert_array_equal(result, expected)
    assert statistics(shared).ddr_bytes < 0.9 * statistics(alone).ddr_bytes
    assert shared.cycles < alone.cycles


def test_what_lies_in_llb_is_read_there() -> None:
    """Stores to DDR take time that shared loads save; operands in LLB are not brought there once more."""
    chip = load_chip("tw2")
    a, b = (te.placeholder((512, 512), "float16", name) for name in "ab")
    func = te.create_prim_func([a, b, matmul(a, b)]).with_attr(CONSTANTS, [0, 1])
    room = chip.memory_bytes("llb")
    scratch = {}
    for name, near in (("nothing", []), ("result", [2]), ("operand", [0, 2]), ("all", [0, 1, 2])):
        code = compile_kernel(placed_near(func, near, room), "matmul", chip, pipeline.Observer()).code
        scratch[name] = sum(parameter.size_bytes for parameter in code.parameters if parameter.scratch)
        assert name != "all" or not any("ddr" in instr.mods for instr in code.instrs)
    assert scratch["nothing"] > scratch["operand"] >= scratch["all"] == 0
    assert scratch["result"] > 0


def test_a_kernel_takes_no_more_of_llb_than_it_may() -> None:
    chip = load_chip("tw1")
    a, b = te.placeholder((256, 2048), "float16", "a"), te.placeholder((2048, 512), "float16", "b")
    func = te.create_prim_func([a, b, matmul(a, b)])
    for room in (1 << 20, 1 << 19):
        code = compile_kernel(placed_near(func, [], room), "matmul", chip, pipeline.Observer()).code
        assert 0 < sum(parameter.size_bytes for parameter in code.parameters if parameter.memory == "llb") <= room


@pytest.mark.parametrize(
    ("chip_name", "tile", "order"),
    [
        ("tw2", Tile(112, 64, 128, 1, (), 1, 2, "a", Grid((), (1, 1), (5, 4))), ["a", "b", "b", "a", "b"]),
        ("tw1", Tile(128, 64, 64, 1, (), 1, 4, "a", Grid((), (1, 1), (4, 2)), columns=64), ["a", "b"]),
    ],
)
def test_first_pieces_come_in_the_order_in_which_they_are_loaded(chip_name: str, tile: Tile, order: list[str]) -> None:
    """The first product waits for one piece of each operand, not for all that is brought ahead of one of them, nor for
    more than one where DDR takes long for it.
    """
    chip = load_chip(chip_name)
    a, b = (te.placeholder((512, 512), "float16", name) for name in "ab")
    func = te.create_prim_func([a, b, matmul(a, b)])
    with pytest.raises(pipeline.Stopped) as stopped:
        tiled = template.space(func, chip).apply(tile).func
        pipeline.run(pipeline.kernel_passes(), tiled, chip, pipeline.Observer(stop_after="share-loads"))
    before_loops = stopped.value.subject.script().split("for i1_2")[0]
    assert re.findall(r"ld\.ddr\.llb.*?T\.address_of\((\w)_llb", before_loops) == order


def test_loads_that_pay_only_together() -> None:
    """Two rows that all cores of 32 need: neither is worth waiting for the others, both are."""

    def kernel(rows: int) -> Any:
        @T.prim_func(s_tir=True, private=True)
        def loads(a: T.Buffer((2, 1024), "float16"), o: T.Buffer((32, 2, 1024), "float16")) -> None:
            bx = T.launch_thread("blockIdx.x", 32)
            x = T.alloc_buffer((2, 1024), "float16", scope="local.ub")
            T.call_extern("void", "tw.ld.ddr.ub.fp16.1d", T.address_of(x[0, 0]), 1, T.address_of(a[0, 0]), 1, 1024)
            if rows == 2:
                T.call_extern("void", "tw.ld.ddr.ub.fp16.1d", T.address_of(x[1, 0]), 1, T.address_of(a[1, 0]), 1, 1024)
            T.call_extern("void", "tw.st.ddr.fp16.1d", T.address_of(o[bx, 0, 0]), 1, T.address_of(x[0, 0]), 1, 2048)

        return loads

    tw1 = load_chip("tw1")
    keeps(ShareLoads(), kernel(1), tw1)
    assert "shared.llb" in ShareLoads().run(kernel(2), tw1).script()
