"""What the facade refuses before anything runs."""

from __future__ import annotations

import pytest

from compiler.errors import InvalidError
from compiler.isa.assembler import assemble
from compiler.sim.simulator import simulate
from compiler.target import load_chip


@pytest.mark.parametrize("verb", ["set", "wait"])
def test_cross_core_flags_name_cores_that_run(verb: str) -> None:
    chip = load_chip("tw1")
    program = assemble(f".cores 1\ngetsr.cores x1\ncross_{verb}.v x1 + 30, 1\nhalt\n", chip=chip)
    with pytest.raises(InvalidError, match="core 31 does not run"):
        simulate(program, chip)
