"""Programs and chips that fuzzing found to hang, crash or eat memory, and what they end in now."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.errors import CapacityError, InvalidError, LimitError
from compiler.isa.assembler import assemble
from compiler.sim import expand, pipeline
from compiler.sim.interpreter import interpret
from compiler.sim.simulator import simulate
from compiler.target import load_chip

TINY = load_chip("tiny")
TW1 = load_chip("tw1")


def test_an_operand_far_beyond_ub_is_refused_without_costing_its_banks() -> None:
    program = assemble("smov x1, 64\nvadd.fp32.1d [0; 536870913], [4096], [4096], <x1>\nhalt", chip=TINY)
    with pytest.raises(CapacityError, match="ub has 8192 bytes"):
        simulate(program, TINY)


def test_a_size_of_zero_from_a_register_is_refused_before_anything_is_computed_from_it() -> None:
    program = assemble("vupsample.int32.3d [0; 8, 8], [512; 8, 8], x1, x2, <2, 2, 8>\nhalt", chip=TINY)
    for run in (simulate, interpret):
        with pytest.raises(InvalidError, match="times_h is 0; allowed is 1 to 65535"):
            run(program, TINY)


@pytest.mark.parametrize("what", ["cross_set", "cross_wait"])
def test_a_flag_of_a_core_that_does_not_run_is_refused(what: str) -> None:
    program = assemble(f".cores 1\n{what}.v 1, 0\nhalt", chip=TINY)
    for run in (simulate, interpret):
        with pytest.raises(InvalidError, match="core is 1; the program runs on 1 cores"):
            run(program, TINY)


def test_a_flag_of_a_core_that_not_every_cluster_has_is_refused() -> None:
    program = assemble(".cores 10\ncluster_set.v 2, 0\nhalt", chip=TW1)
    for run in (simulate, interpret):
        with pytest.raises(InvalidError, match="core is 2; a cluster of the program has 2 cores"):
            run(program, TW1)


@pytest.mark.parametrize("address", [2**63 - 4, 2**63 - 64, -(2**63)])
def test_an_address_at_the_end_of_int64_does_not_wrap_into_memory(address: int) -> None:
    program = assemble(f".tiling a = {address}\nldt x1, a\nvabs.fp32.1d [x1], [x1], <32>\nhalt", chip=TINY)
    with pytest.raises(CapacityError):
        simulate(program, TINY, {})
    with pytest.raises(CapacityError):
        interpret(program, TINY)


def test_a_buffer_may_be_larger_than_its_array() -> None:
    text = """
        .cores 1
        .input x ddr fp32 [8] size 64
        .output y ddr fp32 [8] size 96
        ld.ddr.ub.fp32.1d [0], [x], <8>
        set_flag.mte2.mte3 0
        wait_flag.mte2.mte3 0
        st.ddr.fp32.1d [y], [0], <8>
        halt
    """
    program = assemble(text, chip=TINY)
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(simulate(program, TINY, {"x": x}, hazards=True).outputs["y"], x)
    np.testing.assert_array_equal(interpret(program, TINY, {"x": x}).outputs["y"], x)


def test_a_program_that_dispatches_nothing_runs() -> None:
    assert simulate(assemble("halt", chip=TINY), TINY, {}, hazards=True).cycles > 0


def test_the_instruction_limit_holds_where_control_depends_on_data() -> None:
    text = ".input x ddr int32 [8]\nagain:\nsld.ddr.int32 x1, [x]\njmp again\nhalt"
    with pytest.raises(LimitError):
        simulate(assemble(text, chip=TINY), TINY, {"x": np.zeros(8, np.int32)}, max_steps=1000)


def test_a_stream_that_would_fill_memory_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand, "MAX_DISPATCHED", 8192)
    program = assemble("loop x1, 100000, end\nvadds.fp32.1d [0], [0], 1.0, <8>\nend:\nhalt", chip=TINY)
    with pytest.raises(LimitError, match="more than 8192 instructions are dispatched"):
        simulate(program, TINY)


def test_classes_that_would_fill_memory_are_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand, "MAX_CLASSES", 256)
    text = "loop x1, 1000, end\nsmul x2, x1, 4\nvadds.fp32.1d [x2], [x2], 1.0, <1>\nend:\nhalt"
    with pytest.raises(LimitError, match="more than 256 instructions differ"):
        simulate(assemble(text, chip=TINY), TINY)


MANY = replace(TINY, cores_per_cluster=1024, event_ids=64, cross_flag_ids=64, cross_flag_max=255)
CROSSING = (
    "getsr.core x1\nbne x1, 0, other\ncross_set.v 1, 0\nhalt\nother:\nbne x1, 1, end\ncross_wait.v 0, 0\nend:\nhalt"
)


def test_a_chip_of_many_cores_needs_no_cross_core_flags_that_nobody_uses() -> None:
    program = assemble("vdup.fp32.1d [0], 1.0, <8>\nhalt", chip=MANY)
    assert simulate(program, MANY).stream.cores == 1024


def test_flags_and_clocks_that_would_fill_memory_are_a_limit() -> None:
    with pytest.raises(LimitError, match="the queues and flags of 1024 cores need"):
        simulate(assemble(CROSSING, chip=MANY), MANY)
    with pytest.raises(LimitError, match="the hazard checker needs"):
        simulate(assemble("vdup.fp32.1d [0], 1.0, <8>\nhalt", chip=MANY), MANY, hazards=True)
    assert pipeline.MAX_STATE_BYTES == 1 << 30
