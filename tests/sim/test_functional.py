"""The simulator's arithmetic: the interpreter's bytes, whatever is kept in another form on the way, and by how many."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.isa.assembler import assemble
from compiler.sim.interpreter import interpret
from compiler.sim.simulator import Run, simulate
from compiler.target import load_chip

TW2 = load_chip("tw2")
FRAME = """
.cores {cores}
.input a ddr {dtype} 4096
.input b ddr {dtype} 4096
.inout y ddr {result} 4096
"""
RNG = np.random.default_rng(5)


def inputs(dtype: str, result: str) -> dict[str, np.ndarray]:
    kinds = {"fp16": np.float16, "fp32": np.float32, "int8": np.int8, "int32": np.int32}
    small = {name: RNG.integers(-8, 9, 4096).astype(kinds[dtype]) for name in ("a", "b")}
    return small | {"y": RNG.integers(-8, 9, 4096).astype(kinds[result])}


def agreed(body: str, dtype: str = "fp16", result: str = "fp32", cores: int = 1) -> np.ndarray:
    """The output of a race-free program, on which both engines agree: alone, with workers, and delayed."""
    program = assemble(FRAME.format(cores=cores, dtype=dtype, result=result) + body + "\nhalt", chip=TW2)
    given = inputs(dtype, result)
    expected = interpret(program, TW2, given).outputs["y"]
    run = simulate(program, TW2, given, hazards=True, workers=1)
    assert run.hazards == []
    for found in (run, executed(run, given, 2), executed(run, given, 5), simulate(program, TW2, given, seed=9)):
        assert found.outputs["y"].tobytes() == expected.tobytes()
    return expected


def executed(run: Run, given: dict[str, np.ndarray], workers: int) -> Run:
    run.execute(given, workers=workers)
    return run


LOADS = """
ldnz.ddr.{dtype} [0], [a], <{m}, {k}>, {k}, {m}
ldnz.ddr.{dtype} [65536], [b], <{k}, {n}>, {n}, {k}
barrier_all
ldl0a.{dtype} [0], [0], <{m}, {k}>, {m}
ldl0b.{dtype} [0], [65536], <{k}, {n}>, {k}
barrier_all
"""
STORE = "barrier_all\nfix.ddr.nd.{result}.{result}.none [y], [0], <{m}, {n}>, {pitch}, {n}"


@pytest.mark.parametrize("dtype", ["fp16", "fp32", "int8"])
@pytest.mark.parametrize("part", [(31, 18, 26), (17, 20, 25), (32, 32, 32), (20, 30, 27)])
def test_a_product_may_take_less_or_more_of_a_block_than_was_loaded(dtype: str, part: tuple[int, int, int]) -> None:
    """L0 holds whole fractals with zeros behind a matrix: who reads them need not have the extents of who wrote."""
    m, n, k = part
    result = "int32" if dtype == "int8" else "fp32"
    product = f"mad.{dtype} [0], [0], [0], <{m}, {n}, {k}>\n"
    loads = LOADS.format(dtype=dtype, m=20, n=25, k=27)
    agreed(loads + product + STORE.format(result=result, m=m, n=n, pitch=32), dtype, result)


@pytest.mark.parametrize("k", [10, 13, 16])
def test_columns_behind_a_matrix_in_l1_are_zeros(k: int) -> None:
    body = f"""
    ldnz.ddr.fp16 [0], [a], <20, 10>, 10, 20
    ldnz.ddr.fp16 [65536], [b], <16, 16>, 16, 16
    barrier_all
    ldl0a.fp16 [0], [0], <20, {k}>, 20
    ldl0b.fp16 [0], [65536], <{k}, 16>, 16
    barrier_all
    mad.fp16 [0], [0], [0], <20, 16, {k}>
    """
    agreed(body + STORE.format(result="fp32", m=20, n=16, pitch=32))


@pytest.mark.parametrize("result", ["fp16", "fp32"])
def test_adding_a_kept_result_to_ddr_widens_what_it_is_added_to(result: str) -> None:
    """`fixadd` computes in fp32 from an fp16 destination, and reads a product whose bytes were never written."""
    body = LOADS.format(dtype="fp16", m=20, n=25, k=27) + "mad.fp16 [0], [0], [0], <20, 25, 27>\nbarrier_all\n"
    agreed(body + f"fixadd.ddr.{result}.fp32 [y], [0], <20, 25>, 32, 25", "fp16", result)


def test_parts_of_kept_matrices_are_what_their_bytes_are() -> None:
    """Rows and column blocks of one load, a fill over some of it, and a copy of the bytes."""
    body = """
    ldnz.ddr.fp16 [0], [a], <32, 48>, 48, 32
    barrier_all
    ldl0a.fp16 [0], [1024 + 128], <16, 20>, 32
    barrier_all
    filll1.fp16.1d [1024 + 256; 1], <64>, 2.0
    barrier_all
    ldl0bt.fp16 [0], [1024], <20, 32>, 32
    l1ub.fp16.1d [0; 1], [0; 1], <1536>
    barrier_all
    mad.fp16 [0], [0], [0], <16, 32, 20>
    vconv.fp16.fp32.rne.1d [8192; 1], [0; 1], <1536>
    barrier_all
    fix.ddr.nd.fp32.fp32.none [y], [0], <16, 32>, 16, 32
    st.ddr.fp32.1d [y + 4096; 1], [8192; 1], <1536>
    """
    agreed(body)


def test_a_result_that_is_overwritten_in_part_keeps_the_rest() -> None:
    body = LOADS.format(dtype="fp16", m=32, n=32, k=16)
    body += """
    mad.fp16 [0], [0], [0], <32, 32, 16>
    mfill.fp32 [2048], <16, 16>, 7.0
    madacc.fp16 [0], [0], [0], <16, 16, 16>
    """
    found = agreed(body + STORE.format(result="fp32", m=32, n=32, pitch=32)).reshape(-1)[:1024].reshape(32, 32)
    assert (found[:16, 16:] == 7.0).all()


@pytest.mark.parametrize("seed", range(60))
def test_what_is_left_of_matrices_in_l0_is_what_their_bytes_are(seed: int) -> None:
    """Matrices over parts of others, of kept matrices and of bytes that change, and products that read across them."""
    rng = np.random.default_rng(seed)
    body = """
    ldnz.ddr.fp16 [0], [a], <64, 64>, 64, 64
    ld.ddr.l1.fp16.1d [65536; 1], [b; 1], <4096>
    barrier_all
    ldl0a.fp16 [0], [0], <64, 64>, 64
    ldl0b.fp16 [0], [0], <32, 32>, 64
    mfill.fp32 [0], <32, 32>, 0.0
    barrier_all
    """
    for _ in range(25):
        m, k = (16 * int(blocks) for blocks in rng.integers(1, 4, 2))
        place = 512 * int(rng.integers(0, 16 - m * k // 256 + 1))
        load = f"ldl0a.fp16 [{place}], [{rng.choice([0, 1024, 65536, 65536 + 2048])}], <{m}, {k}>, 64\n"
        change = f"filll1.fp16.1d [{rng.choice([2048, 65536 + 512])}; 1], <512>, {rng.integers(1, 9)}.0\n"
        k = 16 * int(rng.integers(1, 3))
        product = f"madacc.fp16 [0], [{512 * int(rng.integers(0, 17 - k // 8))}], [0], <32, 32, {k}>\n"
        body += str(rng.choice([load, load, change, product], p=[0.3, 0.3, 0.2, 0.2])) + "barrier_all\n"
    body += "madacc.fp16 [0], [0], [0], <32, 32, 32>\n"
    agreed(body + STORE.format(result="fp32", m=32, n=32, pitch=32))


def test_cores_hand_on_what_they_computed() -> None:
    """Every core adds one to its neighbour's numbers, three times around, by barriers and by flags."""
    around = """
    smadd x2, x1, 64, y
    sadd x3, x1, 1
    srem x3, x3, 4
    smadd x4, x3, 64, y
    loop x5, 3, end
    {take}
    ld.ddr.ub.fp32.1d [0; 1], [x4; 1], <16>
    set_flag.mte2.v 0
    wait_flag.mte2.v 0
    vadds.fp32.1d [0; 1], [0; 1], 1.0, <16>
    barrier_all
    {give}
    st.ddr.fp32.1d [x2; 1], [0; 1], <16>
    barrier_all
    end:
    """
    barriers = agreed("getsr.core x1\n" + around.format(take="core_barrier", give="core_barrier"), "fp32", "fp32", 4)
    assert (barriers[:64] == barriers[:64].round()).all()


def test_a_race_shows_in_the_results() -> None:
    """What happens too early in simulated time is computed too early: luck is not corrected."""
    body = "ld.ddr.ub.fp32.1d [0; 1], [a; 1], <16>\nst.ddr.fp32.1d [y; 1], [0; 1], <16>"
    program = assemble(FRAME.format(cores=1, dtype="fp32", result="fp32") + body + "\nhalt", chip=TW2)
    given = inputs("fp32", "fp32")
    run = simulate(program, TW2, given, hazards=True)
    assert run.hazards != []
    assert not np.array_equal(run.outputs["y"], interpret(program, TW2, given).outputs["y"])


def test_a_run_can_be_executed_again_on_other_data() -> None:
    body = "ld.ddr.ub.fp32.1d [0; 1], [a; 1], <16>\nbarrier_all\nst.ddr.fp32.1d [y; 1], [0; 1], <16>"
    program = assemble(FRAME.format(cores=1, dtype="fp32", result="fp32") + body + "\nhalt", chip=TW2)
    first, second = inputs("fp32", "fp32"), inputs("fp32", "fp32")
    run = simulate(program, TW2, first)
    for given in (first, second, first):
        run.execute(given)
        np.testing.assert_array_equal(run.outputs["y"][:16], given["a"][:16])
        np.testing.assert_array_equal(run.outputs["y"][16:], given["y"][16:])


def test_executed_again_a_program_finds_no_bytes_of_the_execution_before() -> None:
    """It adds to bytes that it never wrote, which all are 0xFF at first: to -1."""
    body = "ld.ddr.ub.int32.1d [64; 1], [a; 1], <16>\nbarrier_all\nvadd.int32.1d [0; 1], [0; 1], [64; 1], <16>\n"
    body += "barrier_all\nst.ddr.int32.1d [y; 1], [0; 1], <16>"
    program = assemble(FRAME.format(cores=1, dtype="int32", result="int32") + body + "\nhalt", chip=TW2)
    given = inputs("int32", "int32")
    for hazards in (False, True):
        run = simulate(program, TW2, given, hazards=hazards)
        for _ in range(3):
            np.testing.assert_array_equal(run.outputs["y"][:16], given["a"][:16] - 1)
            run.execute(given)


# ---- matrices in L0 that are made of bytes in L1 when a product wants them -----------------------------------------

# Bytes, not a kept matrix, lie in L1: copied there element by element, to be read as A (16 x 16) and B (16 x 16).
BYTES_IN_L1 = """
    ld.ddr.l1.fp32.1d [0; 1], [a; 1], <256>
    ld.ddr.l1.fp32.1d [4096; 1], [b; 1], <256>
    barrier_all
    ldl0a.fp32 [0], [0], <16, 16>, 16
    ldl0bt.fp32 [0], [4096], <16, 16>, 16
    barrier_all
"""


@pytest.mark.parametrize("overwritten", [0, 4096 + 512, 1 << 16], ids=["A", "part of B", "neither"])
@pytest.mark.parametrize("products", [0, 1, 2], ids=["after", "before", "before and after"])
def test_products_use_what_was_in_l1_when_it_was_loaded(overwritten: int, products: int) -> None:
    before, after = "mad.fp32 [0], [0], [0], <16, 16, 16>\nbarrier_all\n", "madacc.fp32 [0], [0], [0], <16, 16, 16>\n"
    overwrite = f"ld.ddr.l1.fp32.1d [{overwritten}; 1], [y; 1], <128>\nbarrier_all\n"
    body = BYTES_IN_L1 + (before if products else "mfill.fp32 [0], <16, 16>, 0.0\nbarrier_all\n") + overwrite
    body += after if products != 1 else ""
    agreed(body + "barrier_all\nfix.ddr.nd.fp32.fp32.none [y], [0], <16, 16>, 16, 16", "fp32", "fp32")


def test_a_replay_loads_anew_what_is_overwritten_in_l1() -> None:
    """The same place in L1 and in L0 is used for several tiles; L0 keeps one of them while L1 goes on."""
    tile = """
    ld.ddr.l1.fp32.1d [0; 1], [a + {a}; 1], <256>
    barrier_all
    {load}
    barrier_all
    madacc.fp32 [0], [0], [0], <16, 16, 16>
    barrier_all
    """
    again = "ldl0a.fp32 [0], [0], <16, 16>, 16"
    body = BYTES_IN_L1 + "mad.fp32 [0], [0], [0], <16, 16, 16>\nbarrier_all\n"
    body += "".join(tile.format(a=64 * n, load=again if n % 2 else "") for n in range(6))
    body += "fix.ddr.nd.fp32.fp32.none [y], [0], <16, 16>, 16, 16"
    program = assemble(FRAME.format(cores=1, dtype="fp32", result="fp32") + body + "\nhalt", chip=TW2)
    run = simulate(program, TW2, hazards=True)
    assert run.hazards == []
    assert run.record()
    rng = np.random.default_rng(5)
    for _ in range(3):
        given = {name: rng.standard_normal(array.shape, np.float32) for name, array in inputs("fp32", "fp32").items()}
        run.execute(given)
        np.testing.assert_array_equal(run.outputs["y"], interpret(program, TW2, given).outputs["y"])


def test_a_replay_pads_anew_a_matrix_that_a_product_wants_larger() -> None:
    body = LOADS.format(dtype="fp16", m=20, n=25, k=27) + "mad.fp16 [0], [0], [0], <32, 32, 32>\n"
    program = assemble(
        FRAME.format(cores=1, dtype="fp16", result="fp32") + body + STORE.format(result="fp32", m=32, n=32, pitch=32)
        + "\nhalt",
        chip=TW2,
    )  # fmt: skip
    run = simulate(program, TW2, hazards=True)
    assert run.hazards == []
    assert run.record()
    given = inputs("fp16", "fp32")
    run.execute(given)
    np.testing.assert_array_equal(run.outputs["y"], interpret(program, TW2, given).outputs["y"])
