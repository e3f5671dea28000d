"""Cycles by kernel add up to what the simulator counted for the program."""

from functools import cache

import numpy as np
import pytest

import compiler
from compiler.report.attribution import Attribution, attribute, kernel_of_instruction
from compiler.report.profile import sharing
from compiler.runtime.model import ProgramSegment
from compiler.sim.simulator import Run, prepare
from compiler.sim.statistics import statistics
from models import zoo

pytestmark = pytest.mark.usefixtures("as_planned")


@cache
def ran(name: str, chip: str) -> tuple[Run, Attribution]:
    model = compiler.compile(zoo.build(name), chip=chip, precision="fp16").model
    (segment,) = model.segments
    assert isinstance(segment, ProgramSegment)
    run = prepare(segment.program, model.chip)
    return run, attribute(run)


CASES = [("digits-cnn", "tiny"), ("digits-cnn", "tw1"), ("resnet-block-16", "tw2"), ("lstm-16", "tiny")]


@pytest.mark.parametrize(("name", "chip"), CASES)
def test_it_adds_up(name: str, chip: str) -> None:
    run, found = ran(name, chip)
    stats = statistics(run)
    assert np.array_equal(found.busy.sum(axis=0), run.schedule.busy)
    assert np.array_equal(found.stalled.sum(axis=0), run.schedule.stalled)
    assert np.array_equal(found.instructions.sum(axis=0), stats.instructions.sum(axis=0))
    assert found.cycles.sum() == run.cycles
    assert found.conflicts.sum() == stats.conflict_cycles.sum()
    assert found.ddr_bytes.sum() == stats.ddr_bytes
    assert sum(sum(macs.values()) for macs in found.macs) == stats.macs
    moved = sum(path.moved_bytes for paths in found.paths for path in paths.values())
    assert moved == sum(path.moved_bytes for path in stats.paths)


@pytest.mark.parametrize(("name", "chip"), CASES)
def test_no_share_is_negative(name: str, chip: str) -> None:
    _, found = ran(name, chip)
    for values in (found.busy, found.stalled, found.cycles, found.end - found.start):
        assert values.min() >= 0


def test_pieces_of_one_kernel_are_one() -> None:
    """A linker may put the first loads of a kernel before the end of another."""
    from dataclasses import replace

    run, _ = ran("digits-cnn", "tiny")
    labels = (("k0.a", 0), ("k1.b", 4), ("k0.a", 9), ("k1.b", 12))
    names, kernel = kernel_of_instruction(replace(run.program, labels=labels))
    assert names == ("a", "b")
    assert kernel[:14].tolist() == [0] * 4 + [1] * 5 + [0] * 3 + [1] * 2


def test_a_layer_in_pieces_is_several_kernels_of_one_name() -> None:
    """What runs between two of them is not theirs."""
    from dataclasses import replace

    run, _ = ran("digits-cnn", "tiny")
    labels = (("k0.a", 0), ("k1.b", 4), ("k2.a", 9))
    names, kernel = kernel_of_instruction(replace(run.program, labels=labels))
    assert names == ("a", "b", "a")
    assert kernel[:10].tolist() == [0] * 4 + [1] * 5 + [2]


def test_a_program_without_labels_is_one_kernel() -> None:
    from dataclasses import replace

    run, _ = ran("digits-cnn", "tiny")
    names, kernel = kernel_of_instruction(replace(run.program, labels=(), name="hand"))
    assert names == ("hand",)
    assert not kernel.any()


def test_groups_of_kernels_add_up_too() -> None:
    run, found = ran("digits-cnn", "tiny")
    both = found.together([[0, 2], [1, *range(3, len(found.names))]])
    assert both.names == (found.names[0], found.names[1])
    assert both.cycles.sum() == run.cycles
    assert np.array_equal(both.busy[0], found.busy[0] + found.busy[2])
    assert (both.start[0], both.end[0]) == (found.start[0], found.end[2])
    assert found.paths[0].keys() & found.paths[2].keys()
    for path in found.paths[0].keys() | found.paths[2].keys():
        parts = [paths[path] for paths in (found.paths[0], found.paths[2]) if path in paths]
        assert both.paths[0][path] == sum(parts[1:], start=parts[0])


def test_kernels_of_one_node_are_one_layer() -> None:
    nodes = [("a",), ("b", "c"), ("d",), ("c",), (), ("a", "e"), ("e", "d")]
    assert sharing(nodes) == [[0, 2, 5, 6], [1, 3], [4]]
