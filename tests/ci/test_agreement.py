"""The agreement job: it passes where all agree, and fails on whatever does not."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from ci import agreement
from compiler.errors import HazardError
from compiler.isa.model import Instr
from compiler.isa.program import Program
from compiler.isa.table import by_mnemonic, rows
from compiler.target import load_chip

TINY = load_chip("tiny")


def test_a_few_programs_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert agreement.main(["--programs", "6", "--seed", "40"]) == 0
    shown = capsys.readouterr().out
    assert "random programs: 6" in shown
    assert "failures: 0" in shown


def test_consecutive_seeds_reach_every_row_on_every_chip() -> None:
    seeds = range(len(rows()) * len(agreement.CHIPS))
    reached = {(agreement.row_of(seed).mnemonic, agreement.CHIPS[seed % 3]) for seed in seeds}
    assert len(reached) == len(rows()) * len(agreement.CHIPS)


def test_a_byte_that_differs_is_a_failure_with_the_command_that_shows_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    genuine = agreement.interpret

    class Wrong:
        def __init__(self, *arguments: Any) -> None:
            self.outputs = genuine(*arguments).outputs
            self.outputs["registers"].view(np.uint8)[0] ^= 1

    monkeypatch.setattr(agreement, "interpret", Wrong)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert agreement.main(["--programs", "1", "--seed", "5", "--chip", "tiny"]) == 1
    said = capsys.readouterr().err
    assert "1 bytes of output registers differ" in said
    assert "python -m ci.agreement --programs 1 --seed 5 --chip tiny" in said
    assert len(list(tmp_path.glob("*.twasm"))) == 1


def test_a_race_is_a_failure() -> None:
    """A program without its sync has hazards, deadlocks or leaks: in one of many programs at the latest."""
    found = 0
    for seed in range(10):
        program, inputs = agreement.make(seed, TINY)
        nop = Instr(by_mnemonic()["nop"], (), ())
        bare = tuple(nop if instr.row.kind in ("pipe_barrier", "barrier_all") else instr for instr in program.instrs)
        try:
            agreement.check_runs(replace(program, instrs=bare), TINY, inputs, seed)
        except (agreement.Disagreement, HazardError):
            found += 1
    assert found > 3


def test_a_program_that_is_written_down_wrongly_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _ = agreement.make(0, TINY)
    monkeypatch.setattr(agreement, "decode", lambda data: ())
    with pytest.raises(agreement.Disagreement, match="other instructions"):
        agreement.check_forms(program, TINY)
    monkeypatch.undo()
    genuine = agreement.assemble

    def renamed(*arguments: Any, **options: Any) -> Program:
        return replace(genuine(*arguments, **options), name="another")

    monkeypatch.setattr(agreement, "assemble", renamed)
    with pytest.raises(agreement.Disagreement, match="another program"):
        agreement.check_forms(program, TINY)


def test_what_ran_is_what_the_interpreter_looked_up() -> None:
    program, inputs = agreement.make(0, TINY)
    _, executed = agreement.check_runs(program, TINY, inputs, 0)
    assert {"getsr", "halt", "sst"} <= executed
    assert executed <= {instr.row.mnemonic for instr in program.instrs}
    assert "trap" not in executed


def test_every_rule_refuses_something() -> None:
    count, missing = agreement.check_rules()
    assert missing == []
    assert count == sum(len(row.rules) for row in rows())


def test_a_rule_that_refuses_nothing_is_found() -> None:
    def always(args: Any) -> bool:
        """nothing is ever wrong"""
        return True

    assert agreement.refusal(by_mnemonic()["vadd"], always, (TINY,), Random(1)) is None
