"""The mutation job can fail, and takes out of a program what it says and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from ci import sync_mutation
from ci.sync_mutation import HARMLESS, MISSED, judge, sync_instructions, whole_flags, without
from compiler.isa.assembler import assemble
from compiler.sim.hazards import HazardReport
from tests.handwritten import Case

# A load, two steps and a store: each flag is needed, the barrier is not, since the vector unit is interlocked.
DOUBLED = """
.cores 2
.equ DRAIN 0
.input  x ddr fp32 128
.output y ddr fp32 128
.buffer a ub fp32 64
.reg at x1
    getsr.core at
    smul at, at, 256
    ld.ddr.ub.fp32.1d [a], [at + x], <64>
    set_flag.mte2.v 0
    wait_flag.mte2.v 0
    vmuls.fp32.1d [a], [a], 4.0, <64>
    pipe_barrier.v
    vmuls.fp32.1d [a], [a], 0.5, <64>
    set_flag.v.mte3 1
    beq x0, DRAIN, store
    barrier_all
store:
    wait_flag.v.mte3 1
    st.ddr.fp32.1d [at + y], [a], <64>
    halt
"""
LOADED_SET, LOADED_WAIT, BARRIER, STORE_SET, SKIPPED, STORE_WAIT = range(6)  # the sync instructions, in order


@pytest.fixture
def case(request, monkeypatch, tmp_path) -> Case:
    """The program above as the only hand-written one; a test may ask for it with another text."""
    source = tmp_path / "doubled.twasm"
    source.write_text(getattr(request, "param", DOUBLED))
    only = Case(
        name=f"doubled-{request.node.name}",
        source=str(source),
        chip_name="tiny",
        make_inputs=lambda rng: {"x": rng.standard_normal(128).astype(np.float32)},
        expected=lambda inputs: {"y": 2.0 * inputs["x"]},
        rtol=0,
        atol=0,
    )
    monkeypatch.setattr(sync_mutation, "cases", lambda: (only,))
    return only


@pytest.fixture
def blind(monkeypatch) -> None:
    """A hazard checker that never reports anything."""
    monkeypatch.setattr(HazardReport, "races", lambda self: [])
    monkeypatch.setattr(HazardReport, "leaks", lambda self: [])


def verdict(case: Case, *which: int) -> str:
    sync = sync_instructions(case.program)
    return judge(without(case.program, [sync[each] for each in which]), case, seeds=5).outcome


def test_needed_instructions_are_reported(case) -> None:
    assert verdict(case, LOADED_SET) == "deadlock"
    assert verdict(case, LOADED_WAIT) == "race"
    assert verdict(case, LOADED_SET, LOADED_WAIT) == "race"
    assert verdict(case, STORE_SET, STORE_WAIT) == "race"


def test_what_is_not_needed_is_harmless(case) -> None:
    assert verdict(case, BARRIER) == HARMLESS


@pytest.mark.usefixtures("blind")
def test_a_needed_instruction_is_missed_if_the_checker_is_blind(case) -> None:
    assert verdict(case, LOADED_WAIT) == MISSED
    assert verdict(case, LOADED_SET, LOADED_WAIT) == MISSED
    assert verdict(case, BARRIER) == HARMLESS


def test_all_flags_are_found_whole(case) -> None:
    sync = sync_instructions(case.program)
    pairs = [(LOADED_SET, LOADED_WAIT), (STORE_SET, STORE_WAIT)]
    assert whole_flags(case.program) == [(sync[a], sync[b]) for a, b in pairs]


@pytest.mark.parametrize("case", [DOUBLED.replace("    barrier_all\n", "")], indirect=True)
class TestJob:
    def test_passes_where_everything_is_noticed(self, case, capsys) -> None:
        assert sync_mutation.main(["--workers", "1", "--seeds", "3"]) == 0
        assert "1 programs, 7 mutants, 0 failures" in capsys.readouterr().out

    @pytest.mark.usefixtures("blind")
    def test_fails_where_something_is_missed(self, case, capsys) -> None:
        assert sync_mutation.main(["--workers", "1", "--seeds", "3"]) == 1
        assert "FAILED: missed" in capsys.readouterr().out

    def test_fails_where_a_case_is_not_known(self, case, capsys) -> None:
        assert sync_mutation.main(["--workers", "1", "--case", "nothing"]) == 1
        assert case.name in capsys.readouterr().err


def test_the_job_fails_where_an_instruction_is_never_executed(case, capsys) -> None:
    assert sync_mutation.main(["--workers", "1", "--seeds", "1"]) == 1
    line = DOUBLED.splitlines().index("    barrier_all") + 1
    assert (
        f"FAILED: executed by no case, nor is a copy of it: doubled.twasm:{line}: barrier_all"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("case", [DOUBLED.replace("DRAIN 0", "DRAIN 1")], indirect=True)
def test_a_flag_is_harmless_behind_a_barrier(case) -> None:
    assert verdict(case, STORE_SET, STORE_WAIT) == HARMLESS
    assert verdict(case, SKIPPED) == HARMLESS
    assert verdict(case, STORE_SET, SKIPPED, STORE_WAIT) == "race"


@pytest.mark.parametrize("case", [DOUBLED.replace("    wait_flag.mte2.v 0\n", "")], indirect=True)
def test_the_job_fails_where_an_intact_program_is_reported(case, capsys) -> None:
    assert sync_mutation.main(["--workers", "1", "--seeds", "1"]) == 1
    assert "FAILED: reported although intact" in capsys.readouterr().out


def test_targets_follow_when_instructions_go() -> None:
    """Without its n-th barrier a program is the program of the text without that line."""
    lines = [
        "start: barrier_all", "loop x1, 3, after", "barrier_all", "loop x2, 2, inner", "nop", "barrier_all",
        "inner: barrier_all", "beq x1, 1, inner", "blt x2, x1, last", "last: barrier_all", "after: barrier_all",
        "bne x3, x3, start", "beq x3, x1, end", "barrier_all", "end: halt",
    ]  # fmt: skip
    program = assemble("\n".join(lines))
    for index in sync_instructions(program):
        shorter = [*lines]
        shorter[index] = shorter[index].replace("barrier_all", "")
        assert without(program, [index]).same_code(assemble("\n".join(shorter)))
