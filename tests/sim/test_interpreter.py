"""The reference interpreter: program order, cores in turn, and refusal of everything that the table does not allow."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.errors import CapacityError, HazardError, InvalidError, LimitError, TilewrightError, UsageError
from compiler.isa.assembler import assemble
from compiler.sim.interpreter import Interpreter, interpret
from compiler.sim.simulator import simulate
from compiler.target import load_chip

TINY = load_chip("tiny")
TW1 = load_chip("tw1")
DATA = np.arange(64, dtype=np.float32)
FRAME = """
.cores {cores}
.input x ddr fp32 64
.inout y ddr fp32 64
.buffer z llb fp32 64
"""


def interpreted(body: str, cores: int = 1, **limits: int) -> Interpreter:
    program = assemble(FRAME.format(cores=cores) + body + "\nhalt", chip=TINY)
    return interpret(program, TINY, {"x": DATA, "y": np.zeros(64, np.float32)}, **limits)


def test_instructions_take_effect_in_program_order_without_any_sync() -> None:
    body = """
    ld.ddr.ub.fp32.1d [0; 1], [x; 1], <64>
    vadds.fp32.1d [0; 1], [0; 1], 1.0, <64>
    st.ddr.fp32.1d [y; 1], [0; 1], <64>
    vadds.fp32.1d [0; 1], [0; 1], 1.0, <64>
    """
    np.testing.assert_array_equal(interpreted(body).outputs["y"], DATA + 1)


def test_flags_between_queues_are_nothing_to_it() -> None:
    interpreted("wait_flag.mte2.v 0\nset_flag.mte2.v 0\nset_flag.mte2.v 0\npipe_barrier.v\nbarrier_all")


def test_memory_on_chip_starts_as_nan() -> None:
    found = interpreted("st.ddr.fp32.1d [y; 1], [0; 1], <64>").outputs["y"]
    assert np.isnan(found).all()
    assert (found.view(np.uint8) == 0xFF).all()


def test_a_core_waits_for_the_flags_of_another_and_takes_one_each_time() -> None:
    """Core 0 runs first, and must wait for what core 1 does later in turn."""
    body = """
    getsr.core x1
    beq x1, 1, giver
    loop x2, 2, end
    cross_wait.mte2 1, 0
    ld.ddr.ub.fp32.1d [0; 1], [y; 1], <1>
    smadd x3, x2, 4, y + 8
    st.ddr.fp32.1d [x3; 1], [0; 1], <1>
    cross_set.mte3 1, 1
    end: halt
    giver:
    loop x2, 2, done
    sadd x3, x2, 5
    itof x3, x3
    sst.ddr.fp32 [y], x3
    cross_set.v 0, 0
    cross_wait.s_ 0, 1
    done: halt
    """.replace("cross_wait.s_", "cross_wait.v")
    assert interpreted(body, cores=2).outputs["y"][:4].tolist() == [6.0, 0.0, 5.0, 6.0]


@pytest.mark.parametrize("kind", ["core_barrier", "cluster_barrier"])
def test_barriers_let_cores_see_what_the_others_did_before(kind: str) -> None:
    body = f"""
    getsr.core x1
    smadd x2, x1, 4, y
    sadd x3, x1, 1
    itof x3, x3
    sst.ddr.fp32 [x2], x3
    {kind}
    bxor: sxor x4, x1, 1
    smadd x4, x4, 4, y
    sld.ddr.fp32 x5, [x4]
    sst.ddr.fp32 [x2 + 8], x5
    """
    assert interpreted(body, cores=2).outputs["y"][:4].tolist() == [1.0, 2.0, 2.0, 1.0]


def test_scalar_loads_are_remembered_per_core() -> None:
    found = interpreted("getsr.core x1\nsmadd x2, x1, 4, x\nsld.ddr.fp32 x3, [x2]\nsld.ddr.int16 x4, [x2 + 2]", cores=2)
    one = int(np.float32(1).view(np.int32))
    assert found.loaded == [[0, 0], [one, one >> 16]]


@pytest.mark.parametrize(
    ("body", "kind", "code", "message"),
    [
        (
            "ldt x1, w\nld.ddr.ub.fp32.1d [x1; 1], [x; 1], <64>",
            CapacityError,
            "TW1310",
            "touches ub bytes 8188 to 8443",
        ),
        ("ldt x1, w\nld.ddr.ub.fp32.1d [0; 1], [x1 + x; 1], <64>", CapacityError, "TW1310", "touches ddr bytes"),
        ("ldt x1, w\nvdup.fp32.1d [x1 + 1; 1], 1.0, <1>", InvalidError, "TW1310", "it must be a multiple of 4"),
        ("ldt x1, w\nvdup.fp32.1d [0; 1], 1.0, <x1 - 8188>", InvalidError, "TW1310", "n0 is 0; allowed is 1 to 65535"),
        (
            "ldt x1, w\nvdup.fp32.1d [0; x1 - 8188], 1.0, <2>",
            InvalidError,
            "TW1310",
            "no two elements of a destination",
        ),
        ("ldt x1, x0 + 1", InvalidError, "TW1302", "tiling word 1; the program has 1"),
        ("ldtc x1, x0 + 1", InvalidError, "TW1302", "tiling word 1; the program has 1"),
        ("ldtc x1, x0 - 1", InvalidError, "TW1302", "tiling word -1; the program has 1"),
        ("trap 3", InvalidError, "TW1302", "trapped with code 3"),
    ],
)
def test_both_engines_refuse_at_run_time_what_the_table_does_not_allow(
    body: str, kind: type[TilewrightError], code: str, message: str
) -> None:
    program = assemble(FRAME.format(cores=1) + ".tiling w = 8188\n" + body + "\nhalt", chip=TINY)
    inputs = {"x": DATA, "y": DATA}
    with pytest.raises(kind) as error:
        interpret(program, TINY, inputs)
    assert error.value.problems[0].code == code
    assert message in error.value.problems[0].message
    with pytest.raises(kind):
        simulate(program, TINY, inputs)


def test_of_cores_that_trap_both_engines_tell_of_the_first_one_whoever_comes_there_first() -> None:
    """Core 0 waits for core 1, which then traps without waiting for anybody."""
    body = """
    getsr.core x1
    beq x1, 1, other
    cross_wait.v 1, 0
    jmp end
    other:
    cross_set.v 0, 0
    end:
    trap 3
    """
    program = assemble(FRAME.format(cores=2) + body, chip=TINY)
    for engine in (interpret, simulate):
        with pytest.raises(InvalidError, match="core 0 trapped with code 3"):
            engine(program, TINY, {"x": DATA, "y": DATA})


@pytest.mark.parametrize("body", ["cross_wait.v 1, 0", "getsr.core x1\nbeq x1, 1, end\ncore_barrier\nend:"])
def test_a_deadlock_is_said_with_where_each_core_stands(body: str) -> None:
    with pytest.raises(HazardError) as error:
        interpreted(body, cores=2)
    assert "deadlock: core 0 waits in" in error.value.problems[0].message


def test_an_endless_program_ends_at_its_budget() -> None:
    with pytest.raises(LimitError):
        interpreted("again: jmp again", max_steps=1000)


def test_inputs_must_be_there_and_fit() -> None:
    program = assemble(FRAME.format(cores=1) + "halt", chip=TINY)
    fitting = {"x": DATA, "y": DATA}
    for kind, given in (
        (UsageError, {"x": DATA}),
        (UsageError, fitting | {"w": DATA}),
        (InvalidError, fitting | {"x": DATA.astype(np.float64)}),
        (InvalidError, fitting | {"x": DATA[:3]}),
    ):
        with pytest.raises(kind):
            interpret(program, TINY, given)
    interpret(program, TINY, fitting)


def test_cores_hand_on_within_their_cluster_what_they_find_by_its_number() -> None:
    """Every core stores its cluster's word and its own number, then adds what the next one of its cluster stored."""
    body = """
    .tiling first = 100
    .tiling second = 200
    getsr.core x1
    smadd x1, x1, 4, y
    getsr.core_in_cluster x2
    ldtc x3, first
    sadd x3, x3, x2
    itof x3, x3
    sst.ddr.fp32 [x1], x3
    sadd x4, x2, 7
    srem x4, x4, 8
    set_flag.s.v 0
    wait_flag.s.v 0
    cluster_set.v x4, 1
    sadd x4, x2, 1
    srem x4, x4, 8
    cluster_wait.v x4, 1
    set_flag.v.s 0
    wait_flag.v.s 0
    getsr.cluster x5
    smadd x4, x5, 8, x4
    smadd x4, x4, 4, y
    sld.ddr.fp32 x4, [x4]
    fadd x3, x3, x4
    sst.ddr.fp32 [x1 + 64], x3
    """
    program = assemble(FRAME.format(cores=16) + body + "\nhalt", chip=TW1)
    inputs = {"x": DATA, "y": DATA * 0}
    stored = np.array([[100], [200]]) + np.arange(8)
    found = interpret(program, TW1, inputs).outputs["y"]
    np.testing.assert_array_equal(found[:32], [*stored.flat, *(stored + np.roll(stored, -1, axis=1)).flat])
    run = simulate(program, TW1, inputs, hazards=True)
    assert not run.hazards
    np.testing.assert_array_equal(run.outputs["y"], found)


def test_each_cluster_has_an_llb_of_its_own() -> None:
    """Core 0 of every cluster writes its number; the cores of that cluster, and no others, read it."""
    body = """
    getsr.core_in_cluster x1
    getsr.cluster x2
    sst.llb.int32 [z + 128], 0
    cluster_barrier
    bne x1, 0, others
    sadd x3, x2, 7
    sst.llb.int32 [z], x3
    others:
    core_barrier
    sld.llb.int32 x4, [z]
    getsr.core x5
    smadd x5, x5, 4, y
    itof x4, x4
    sst.ddr.fp32 [x5], x4
    """
    program = assemble(FRAME.format(cores=16) + body + "\nhalt", chip=TW1)
    inputs = {"x": DATA, "y": DATA * 0}
    found = interpret(program, TW1, inputs).outputs["y"][:16]
    assert found.tolist() == [7.0] * 8 + [8.0] * 8
    np.testing.assert_array_equal(simulate(program, TW1, inputs).outputs["y"][:16], found)
