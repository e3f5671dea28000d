"""Every hand-written program: right on both engines bit for bit, race-free, encodable, and its text reassembles."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.isa.assembler import assemble
from compiler.isa.disassembler import disassemble
from compiler.isa.encoding import decode, encode
from compiler.isa.verifier import verify
from compiler.sim.interpreter import interpret
from compiler.sim.simulator import simulate
from tests.handwritten import Case, cases

EXECUTED = [case for case in cases() if case.baseline]


@pytest.mark.parametrize("case", EXECUTED, ids=lambda case: case.name)
def test_is_right_and_race_free(case: Case) -> None:
    verify(case.program, case.chip)
    inputs = case.inputs()
    run = simulate(case.program, case.chip, inputs, hazards=True)
    assert not run.hazards, "\n".join(problem.render() for problem in run.hazards[:5])
    case.check(inputs, run.outputs)
    # Run from the stream, recorded (on zeros), and played from the record.
    reference = interpret(case.program, case.chip, inputs).outputs
    assert_same_bits(reference, run.outputs)
    assert run.record()
    run.execute(inputs)
    assert_same_bits(reference, run.outputs)


def assert_same_bits(wanted: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> None:
    for name, array in wanted.items():
        np.testing.assert_array_equal(array.view(np.uint8), found[name].view(np.uint8), err_msg=name)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_round_trips(case: Case) -> None:
    program = case.program
    assert decode(encode(program.instrs)) == program.instrs
    assert assemble(disassemble(program), chip=case.chip).same_code(program)
