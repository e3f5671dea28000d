"""What instructions cost, which is asked once for all that are the same, in one program and in the next."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from compiler.errors import InvalidError
from compiler.isa.assembler import assemble
from compiler.isa.generator import random_program
from compiler.sim import classes
from compiler.sim.simulator import prepare, simulate
from compiler.target import load_chip

TINY = load_chip("tiny")
FRAME = ".cores 2\n.input x ddr fp32 4096\n.output y ddr fp32 4096\n"
LOAD = "ld.ddr.ub.fp32.1d [0; 1], [x; 1], <64>\n"


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "_KNOWN", {})


def test_an_instruction_that_stands_twice_is_costed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    costed = list[str]()
    cost_of = classes._cost_of
    monkeypatch.setattr(
        classes, "_cost_of", lambda args, *rest: costed.append(args.row.mnemonic) or cost_of(args, *rest)
    )
    program = assemble(FRAME + 3 * LOAD + "halt", chip=TINY)
    first, second = prepare(program, TINY), prepare(program, TINY)
    assert costed.count("ld") == 1
    assert first.stream.classes == second.stream.classes == 3
    prepare(program, replace(TINY, clock_mhz=7))
    assert costed.count("ld") == 2, "another machine"


@pytest.mark.parametrize("seed", range(8))
def test_what_was_known_before_says_the_same(seed: int) -> None:
    program, inputs = random_program(seed, TINY)
    first, second = (simulate(program, TINY, inputs).classes for _ in range(2))
    for each in fields(first):
        own, other = getattr(first, each.name), getattr(second, each.name)
        assert np.array_equal(own, other) if isinstance(own, np.ndarray) else own == other, each.name


def test_each_place_of_a_wrong_instruction_is_told_also_when_it_is_known() -> None:
    program = assemble(FRAME + 2 * "ld.ddr.ub.fp32.1d [2; 1], [x; 1], <64>\n" + "halt", chip=TINY)
    for _ in range(2):
        with pytest.raises(InvalidError) as caught:
            prepare(program, TINY)
        assert [problem.place.line for problem in caught.value.problems if problem.place] == [4, 5]


def test_flags_between_cores_are_checked_for_the_cores_that_there_are() -> None:
    text = ".cores {}\n cross_set.mte2 1, 0\n halt"
    prepare(assemble(text.format(2), chip=TINY), TINY)
    with pytest.raises(InvalidError, match="runs on 1 cores"):
        prepare(assemble(text.format(1), chip=TINY), TINY)


def test_not_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "MOST_KNOWN", 3)
    for count in range(1, 9):
        prepare(assemble(FRAME + LOAD.replace("64", str(8 * count)) + "halt", chip=TINY), TINY)
        assert len(classes._KNOWN) <= 3
