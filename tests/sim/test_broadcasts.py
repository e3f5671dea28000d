"""Loads that cores of all clusters do together: one reading of DDR, a common start, and who is not there is missed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.errors import HazardError, InvalidError
from compiler.isa.assembler import assemble
from compiler.isa.dtypes import Queue
from compiler.isa.generator import random_program
from compiler.isa.table import by_mnemonic, rows
from compiler.sim.interpreter import interpret
from compiler.sim.pipeline import FLAG
from compiler.sim.simulator import prepare, simulate
from compiler.sim.statistics import statistics
from compiler.sim.trace import flow
from compiler.target import Chip, load_chip

TW1 = load_chip("tw1")
# What one cluster has already, so that its cores come late.
LATE = """
      getsr.cluster x2
      bne x2, 1, load
      ld.ddr.l1.int8.1d [65536], [y], <8192>
    load:
"""


def program(mnemonic: str, cores: int, size: int, before: str = "", chip: Chip = TW1) -> str:
    """Every core loads bytes that cores of its number load in all clusters, and stores them to a place of its own."""
    return f"""
    .cores {cores}
    .input x ddr int8 [8, {size}]
    .input y ddr int8 8192
    .output o ddr int8 [{cores}, {size}]
    .buffer n llb int8 [8, {size}]
      getsr.core x1
      getsr.core_in_cluster x3
      smadd x4, x3, {size}, x
      smadd x5, x3, {size}, n
{before}
      {mnemonic}.llb.int8.1d [x5], [x4], <{size}>
      pipe_barrier.mte2
      ld.llb.ub.int8.1d [0], [x5], <{size}>
      set_flag.mte2.mte3 0
      wait_flag.mte2.mte3 0
      smadd x1, x1, {size}, o
      st.ddr.int8.1d [x1], [0], <{size}>
      halt
    """


def timed(text: str, chip: Chip = TW1) -> tuple[np.ndarray, np.ndarray]:
    """When each core's load began and ended."""
    found = prepare(assemble(text, chip=chip), chip)
    meets = np.array([args.row.mnemonic in ("pld", "alone") for args in found.classes.args])
    at = np.flatnonzero(meets[found.stream.klass])
    return found.schedule.start[at], found.schedule.end[at]


@pytest.mark.parametrize("cores", [8, 32])
def test_ddr_is_read_once_for_all_clusters(cores: int) -> None:
    size = 32768
    start, end = timed(program("pld", cores, size))
    assert len(start) == cores
    at_once = size * min(8, cores) * 1000 / TW1.bandwidth.ddr_bytes_per_kilocycle
    assert end.max() - start.min() == pytest.approx(at_once, rel=0.01)
    found = prepare(assemble(program("pld", cores, size), chip=TW1), TW1)
    stats = statistics(found)
    assert stats.ddr_bytes == (8 + cores) * size
    assert {p.path: p.moved_bytes for p in stats.paths}["ddr_llbs"] == cores * size


def test_all_begin_when_the_last_one_is_there() -> None:
    text = program("pld", 32, 4096, LATE)
    start, end = timed(text)
    assert len(set(start.reshape(4, 8)[:, 0].tolist())) == 1 and (start == start.reshape(4, 8).max(axis=0)[0]).all()
    assert (end.reshape(4, 8) == end.reshape(4, 8)[0]).all()
    early = timed(program("pld", 32, 4096))[0]
    assert start.min() > early.max()
    found = prepare(assemble(text, chip=TW1), TW1)
    waited = found.schedule.stalled[:, Queue.MTE2, FLAG].reshape(4, 8)
    assert (waited[[0, 2, 3]] > waited[1]).all()


@pytest.mark.parametrize("cores", [3, 8, 13, 32])
@pytest.mark.parametrize("seed", range(3))
def test_every_core_gets_its_bytes_whatever_the_timing(cores: int, seed: int) -> None:
    x = np.random.default_rng(5).integers(-128, 127, (8, 512), np.int8)
    inputs = {"x": x, "y": np.zeros(8192, np.int8)}
    assembled = assemble(program("pld", cores, 512, LATE if cores > 8 else ""), chip=TW1)
    found = simulate(assembled, TW1, inputs, hazards=True, seed=seed)
    assert not found.hazards
    np.testing.assert_array_equal(found.outputs["o"], x[np.arange(cores) % 8])
    np.testing.assert_array_equal(interpret(assembled, TW1, inputs).outputs["o"], found.outputs["o"])


def test_the_same_bytes_are_asked_for() -> None:
    other = program("pld", 16, 512).replace("smadd x4, x3, 512, x", "smadd x4, x1, 128, x")
    with pytest.raises(InvalidError, match=r"TW1312.*core 8 and core 0 are to load the same bytes"):
        prepare(assemble(other, chip=TW1), TW1)


def test_as_many_bytes_are_asked_for() -> None:
    uneven = program("pld", 16, 512).replace("[x4], <512>", "[x4], <x6>")
    sizes = "      getsr.cluster x6\n      smadd x6, x6, 128, 128\n"
    with pytest.raises(InvalidError, match="TW1312"):
        prepare(assemble(uneven.replace("      getsr.core x1\n", "      getsr.core x1\n" + sizes), chip=TW1), TW1)


def test_who_does_not_come_is_named() -> None:
    absent = "      getsr.cluster x2\n      beq x2, 1, away\n"
    text = program("pld", 16, 512, absent).replace("pipe_barrier.mte2", "nop\n    away:\n      pipe_barrier.mte2", 1)
    with pytest.raises(HazardError, match=r"TW1401.*cores of other clusters do not load it, too: \[8\]"):
        prepare(assemble(text, chip=TW1), TW1)


def test_a_chip_without_the_path_refuses_it() -> None:
    chip = replace(TW1, path={name: path for name, path in TW1.path.items() if name != "ddr_llbs"})
    with pytest.raises(InvalidError, match="the chip must have a path between these two memories"):
        prepare(assemble(program("pld", 8, 512), chip=chip), chip)


def test_the_trace_has_what_ddr_moved() -> None:
    found = prepare(assemble(program("pld", 32, 4096), chip=TW1), TW1)
    at = found.classes.takes_ddr(found.stream)
    start, end = found.schedule.start[at], found.schedule.end[at]
    lines = found.classes.line_bytes[found.stream.klass[at]]
    moved = flow(start, end, lines / np.maximum(1, end - start), np.array([0, found.cycles + 1]))
    assert moved.sum() == pytest.approx(statistics(found).ddr_bytes)


@pytest.mark.parametrize("mnemonic", sorted(row.mnemonic for row in rows() if row.meets))
@pytest.mark.parametrize("seed", range(6))
def test_random_programs_of_several_clusters(mnemonic: str, seed: int) -> None:
    assembled, inputs = random_program(seed, TW1, by_mnemonic()[mnemonic])
    found = simulate(assembled, TW1, inputs, hazards=True, seed=seed % 3)
    assert not found.hazards and assembled.cores > TW1.cores_per_cluster
    expected = interpret(assembled, TW1, inputs).outputs
    assert {name: array.tobytes() for name, array in found.outputs.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }
