"""One program on every cluster: each works on its own part, and nothing but constants is common to them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from compiler.codegen import PlacedKernel, link
from compiler.codegen.clusters import on_every_cluster
from compiler.codegen.residence import GraphBuffer
from compiler.isa.assembler import assemble
from compiler.isa.disassembler import instruction_text
from compiler.isa.model import Instr
from compiler.isa.table import by_mnemonic
from compiler.isa.verifier import verify
from compiler.sim.simulator import simulate
from compiler.target import Chip, load_chip
from tests.codegen.kernels import Use, place, run
from tests.codegen.test_link import CHAIN, ROLES, added
from tests.codegen.test_llb import gathered

TW1 = load_chip("tw1")
CHIPS = {"tw1": TW1, "tiny": replace(load_chip("tiny"), clusters=3)}


def on_clusters(uses: list[Use], chip: Chip, roles: dict[str, str], **options: Any) -> Any:
    placed, buffers = place(uses, chip.one_cluster(), roles)
    linked = _linked(placed, buffers, chip, **options)
    verify(linked.program, chip)
    return linked


def _linked(placed: list[PlacedKernel], buffers: list[GraphBuffer], chip: Chip, **options: Any) -> Any:
    whole = [
        replace(b, shape=(b.shape[0] * chip.clusters, *b.shape[1:]), size_bytes=b.size_bytes * chip.clusters)
        if b.role in ("input", "output")
        else b
        for b in buffers
    ]
    return link(placed, chip.one_cluster(), whole, clusters=chip.clusters, **options)


@pytest.mark.parametrize("options", [{}, {"llb": False}, {"overlap": False}], ids=str)
@pytest.mark.parametrize("name", CHIPS)
def test_each_cluster_works_on_its_part(name: str, options: dict[str, bool]) -> None:
    chip = CHIPS[name]
    x = np.random.default_rng(1).random((4 * chip.clusters, 64), np.float32)
    linked = on_clusters(CHAIN, chip, ROLES, **options)
    assert linked.program.cores == chip.cores
    for seed in range(3):
        found = run(linked, chip, {"t0": x}, seed).outputs["t5"]
        expected = x
        for constant in range(1, 6):
            expected = expected + np.float32(constant)
        np.testing.assert_array_equal(found, expected)
    between = {b.memory for b in linked.program.buffers if b.role == "scratch"}
    assert between == {"ddr" if options.get("llb") is False else "llb"}


@pytest.mark.parametrize("name", CHIPS)
def test_cores_of_a_cluster_share_its_llb_and_wait_for_each_other(name: str) -> None:
    chip = CHIPS[name]
    x = np.random.default_rng(1).random(128 * chip.clusters, np.float32)
    outputs = [f"o{n}" for n in range(6)]
    roles = {"x": "input"} | dict.fromkeys(outputs, "output")
    linked = on_clusters([(gathered, ("x", output)) for output in outputs], chip, roles)
    halves = x.reshape(chip.clusters, 1, 128).repeat(2, axis=1).reshape(-1, 128)
    for seed in range(3):
        for output in run(linked, chip, {"x": x}, seed).outputs.values():
            np.testing.assert_array_equal(output, halves)


@pytest.mark.parametrize(("mnemonic", "kernels"), [("cluster_wait", 2), ("cluster_barrier", 6), ("barrier_all", 2)])
def test_no_synchronisation_is_there_for_nothing(mnemonic: str, kernels: int) -> None:
    """What each cluster's cores wait for is noticed where it lacks, on every cluster."""
    chip = CHIPS["tiny"]
    outputs = [f"o{n}" for n in range(kernels)]
    roles = {"x": "input"} | dict.fromkeys(outputs, "output")
    options = {"overlap": mnemonic != "cluster_barrier"}
    linked = on_clusters([(gathered, ("x", output)) for output in outputs], chip, roles, **options)
    nothing = by_mnemonic()["nop"]
    lacking = [Instr(nothing, (), ()) if i.row.mnemonic == mnemonic else i for i in linked.program.instrs]
    assert lacking != list(linked.program.instrs)
    x = np.zeros(128 * chip.clusters, np.float32)
    hazards = simulate(replace(linked.program, instrs=tuple(lacking)), chip, {"x": x}, hazards=True).hazards
    assert {problem.code for problem in hazards} & {"TW1402", "TW1403", "TW1405"}


def test_what_is_constant_is_there_once() -> None:
    chip = CHIPS["tiny"]
    linked = on_clusters([(added(4, 1.0, 2), ("w", "y"))], chip, {"w": "constant", "y": "output"})
    w = np.random.default_rng(1).random((4, 64), np.float32)
    found = run(linked, chip, {"w": w}).outputs["y"]
    np.testing.assert_array_equal(found, np.tile(w + np.float32(1), (chip.clusters, 1)))


def test_copies_in_ddr_lie_apart_from_those_of_other_clusters() -> None:
    """Places that are used anew, of tensors of different sizes: what one cluster writes no other one still reads."""
    chip = CHIPS["tiny"]
    rows = [2, 8, 4, 2, 8, 4, 2, 8, 4]
    uses = [(added(count, 1.0, 2), (f"x{n}", f"t{n}")) for n, count in enumerate(rows)]
    uses += [(added(count, 2.0, 2), (f"t{n}", f"y{n}")) for n, count in enumerate(rows)]
    roles = {f"x{n}": "input" for n in range(9)} | {f"y{n}": "output" for n in range(9)}
    linked = on_clusters(uses, chip, roles, llb=False)
    buffers = [b for b in linked.program.buffers if b.memory == "ddr"]
    spans = sorted((b.offset, b.end) for b in buffers)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    inputs = {f"x{n}": np.full((3 * count, 64), n, np.float32) for n, count in enumerate(rows)}
    result = run(linked, chip, inputs, seed=5)
    for n in range(9):
        assert (result.outputs[f"y{n}"] == n + 3).all()


def test_what_is_said_of_the_chip_is_said_of_the_cluster() -> None:
    source = """
    getsr.core x1
    getsr.cores x2
    getsr.cluster x3
    getsr.clusters x4
    getsr.core_in_cluster x5
    core_barrier
    barrier_all
    cross_set.mte3 x1, 0
    cross_wait.mte2 3, 0
    halt
    """
    assert [instruction_text(instr) for instr in on_every_cluster(assemble(source, chip=TW1).instrs)] == [
        "getsr.core_in_cluster x1",
        "getsr.cores_per_cluster x2",
        "smov x3, 0",
        "smov x4, 1",
        "getsr.core_in_cluster x5",
        "cluster_barrier",
        "barrier_all",
        "cluster_set.mte3 x1, 0",
        "cluster_wait.mte2 3, 0",
        "halt",
    ]
