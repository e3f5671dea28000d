"""Programs that load scalars are right on every input, though they are run on guesses."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.isa.assembler import assemble
from compiler.runtime.program import ReadyProgram
from compiler.sim import simulator
from compiler.target import load_chip

# Follows two links through a table, then copies the row that it came to.
SOURCE = """\
.chip tiny
.cores 1
.input links ddr int32 [4]
.input rows ddr fp32 [4, 64]
.output row ddr fp32 [64]
    sld.ddr.int32 x1, [links]
    smul x1, x1, 4
    sld.ddr.int32 x2, [x1 + links]
    smul x2, x2, 256
    ld.ddr.ub.fp32.1d [0; 1], [x2 + rows; 1], <64>
    set_flag.mte2.mte3 0
    wait_flag.mte2.mte3 0
    st.ddr.fp32.1d [row; 1], [0; 1], <64>
    halt
"""
ROWS = np.arange(256, dtype=np.float32).reshape(4, 64)


@pytest.fixture
def ready() -> ReadyProgram:
    chip = load_chip("tiny")
    return ReadyProgram(assemble(SOURCE, file="links.twasm", chip=chip), chip)


def row(ready: ReadyProgram, links: list[int], hazards: bool = False) -> list[float]:
    outputs = ready.run({"links": np.array(links, np.int32), "rows": ROWS}, hazards, 1)
    found: list[float] = outputs["row"].tolist()
    return found


def test_every_input_is_followed(ready: ReadyProgram) -> None:
    for links in ([1, 3, 0, 0], [1, 3, 0, 0], [2, 0, 1, 0], [0, 0, 0, 0], [3, 0, 0, 2], [1, 2, 9, 9]):
        assert row(ready, links) == ROWS[links[links[0]]].tolist()
    assert row(ready, [3, 0, 0, 2], hazards=True) == ROWS[2].tolist()


def test_the_interpreter_is_needed_once(ready: ReadyProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    row(ready, [1, 3, 0, 0])
    monkeypatch.setattr(simulator, "interpret", None)
    assert row(ready, [1, 3, 0, 0]) == ROWS[3].tolist()
    assert row(ready, [2, 0, 1, 0]) == ROWS[1].tolist()


def test_where_a_guess_is_illegal_the_interpreter_decides(ready: ReadyProgram) -> None:
    assert row(ready, [1, 3, 0, 0]) == ROWS[3].tolist()
    # The old second link, read at place 1, is now far outside the rows.
    assert row(ready, [2, 100_000_000, 1, 0]) == ROWS[1].tolist()
