"""Programs whose scalar loads the scalar unit and the inputs tell have their times without a run, and the same ones."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.isa.assembler import assemble
from compiler.isa.program import Program
from compiler.sim.expand import UnknownLoad
from compiler.sim.interpreter import interpret
from compiler.sim.simulator import prepare, simulate
from compiler.target import load_chip

TINY = load_chip("tiny")
LINKS = {"links": np.array([2, 3, 1, 5], np.int32)}
HEAD = ".cores 2\n.input links ddr int32 [4]\n.inout table ddr int32 [4]\n.output out ddr int64 [2, 4]\n"

OWN = """
    getsr.core x1
    vdup.fp32.1d [64; 1], 1.0, <8>
    barrier_all
    loop x2, 5, stored
    smadd x3, x2, 7, x1
    sst.ub.int64 [64], x3
    stored:
    sld.ub.int64 x4, [64]
    sst.ub.int16 [72], x4 + 300
    sld.ub.int8 x5, [72]
    loop x6, x4, worked
    vdup.fp32.1d [256; 1], 2.0, <x5>
    worked: halt
"""
GIVEN = """
    getsr.core x1
    smul x2, x1, 4
    sld.ddr.int32 x3, [x2 + links]
    smul x3, x3, 4
    sld.ddr.int32 x4, [x3 + links - 4]
    loop x5, x4, worked
    vdup.fp32.1d [256; 1], 2.0, <8>
    worked: halt
"""
# What is loaded is not what the scalar unit stored, or what was given.
CHANGED = {
    "by a vector instruction": """
    sst.ub.int32 [64], 5
    barrier_all
    vdup.fp32.1d [64; 1], 0f00000003, <8>
    barrier_all
    sld.ub.int32 x1, [64]
    """,
    "by a vector instruction in a later turn": """
    sst.ub.int32 [64], 2
    loop x2, 3, turned
    sld.ub.int32 x1, [64]
    barrier_all
    vdup.fp32.1d [64; 1], 0f00000003, <8>
    barrier_all
    turned:
    """,
    "by a scalar store to what was given": """
    getsr.core x3
    bne x3, 0, other
    sst.ddr.int32 [table], 7
    sld.ddr.int32 x1, [table]
    other:
    """,
    "and nothing": "vdup.fp32.1d [64; 1], 0f00000003, <8>\nbarrier_all\nsld.ub.int32 x1, [64]",
}


def assembled(body: str) -> Program:
    return assemble(HEAD + body, chip=TINY)


@pytest.mark.parametrize(("body", "given", "depends"), [(OWN, None, False), (OWN, LINKS, False), (GIVEN, LINKS, True)])
def test_times_are_those_of_a_run(body: str, given: dict[str, np.ndarray] | None, depends: bool) -> None:
    inputs = {**LINKS, "table": np.zeros(4, np.int32)}
    program = assembled(body)
    read = interpret(program, TINY, inputs).loaded
    found = prepare(program, TINY, inputs if given else None, hazards=True)
    run = prepare(program, TINY, loaded=read, hazards=True)
    assert found.loaded == read
    assert found.depends_on_data is depends
    assert (found.cycles, found.hazards) == (run.cycles, run.hazards)
    np.testing.assert_array_equal(found.schedule.complete, run.schedule.complete)


def test_what_depends_on_inputs_has_no_times_without() -> None:
    with pytest.raises(UnknownLoad, match="needs the contents of memory"):
        prepare(assembled(GIVEN), TINY)


@pytest.mark.parametrize("name", CHANGED)
def test_what_somebody_else_wrote_takes_a_run(name: str) -> None:
    program = assembled(f"{CHANGED[name]}\nloop x2, x1, worked\nvdup.fp32.1d [256; 1], 2.0, <8>\nworked: halt")
    inputs = {**LINKS, "table": np.zeros(4, np.int32)}
    with pytest.raises(UnknownLoad):
        prepare(program, TINY, inputs)
    run, read = simulate(program, TINY, inputs), interpret(program, TINY, inputs).loaded
    assert run.loaded == read
    assert run.cycles == prepare(program, TINY, loaded=read).cycles


def test_what_was_stored_after_others_wrote_is_known() -> None:
    body = "vdup.fp32.1d [64; 1], 0f00000003, <8>\nbarrier_all\nsst.ub.int32 [64], 5\nsld.ub.int32 x1, [64]\nhalt"
    assert prepare(assembled(body), TINY).loaded == [[5], [5]]
