"""What later kernels read from DDR comes to LLB piece by piece, between the loads of kernels before them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compiler.codegen import GraphBuffer, Linked, Place, PlacedKernel, link, plan
from compiler.codegen.fetches import LEAST_PIECE_BYTES, NO_SITES, Fetch
from compiler.codegen.storage import from_tables, to_tables
from compiler.isa.disassembler import instruction_text
from compiler.isa.dtypes import Queue
from compiler.isa.verifier import verify
from compiler.sim.simulator import simulate
from compiler.target import Chip, load_chip
from tests.codegen.kernels import place, run
from tests.codegen.test_link import added

TW1 = load_chip("tw1").one_cluster()
TW2 = load_chip("tw2")
ROWS = {"tw1": 512, "tw2": 480}  # of 256 bytes: more than a piece for each core


def kernels(chip: Chip, cut: int = 0, **changed: Any) -> tuple[list[PlacedKernel], list[GraphBuffer]]:
    """t = x + 1, twice, and o = u + 2, of which u is a copy of w that the others bring: to the ``cut``, and from it."""
    rows = ROWS[chip.name.partition("/")[0]]
    uses = [(added(rows, 1.0, 4), ("x", "t")), (added(rows, 2.0, chip.cores), ("u", "o"))]
    placed, buffers = place(uses, chip, {"x": "input", "t": "output", "o": "output"})
    size = rows * 256
    buffers = [replace(b, copy_of="w") if b.name == "u" else b for b in buffers]
    buffers.append(GraphBuffer("w", "fp32", (rows, 64), size, "input"))
    first, second = placed
    code = replace(first.code, **changed)
    cut = cut or size // 2
    firsts = [
        PlacedKernel("kernel0", code, ("x", "t"), (Fetch("w", "u", 0, cut),)),
        PlacedKernel("again", code, ("x", "t"), (Fetch("w", "u", cut, size),)),
    ]
    return [*firsts, second], buffers


def linked(chip: Chip, cut: int = 0, **changed: Any) -> Linked:
    placed, buffers = kernels(chip, cut, **changed)
    result = link(placed, chip, buffers)
    verify(result.program, chip)
    return result


def given(chip: Chip) -> dict[str, np.ndarray]:
    rng, rows = np.random.default_rng(0), ROWS[chip.name.partition("/")[0]]
    return {name: rng.random((rows, 64), np.float32) for name in ("x", "w")}


@pytest.mark.parametrize("chip", [TW1, TW2], ids=["tw1", "tw2"])
@pytest.mark.parametrize("changed", [{}, {"sites": NO_SITES}], ids=["between loads", "behind all"])
@pytest.mark.parametrize("cut", [0, 128, 5000, 11 * LEAST_PIECE_BYTES, 11 * LEAST_PIECE_BYTES + 300])
def test_the_reader_finds_all_of_it(chip: Chip, cut: int, changed: dict[str, Any]) -> None:
    values, result = given(chip), linked(chip, cut, **changed)
    for seed in range(2):
        outputs = run(result, chip, values, seed).outputs
        np.testing.assert_array_equal(outputs["o"].reshape(-1, 64), values["w"] + np.float32(2))
        np.testing.assert_array_equal(outputs["t"].reshape(-1, 64), values["x"] + np.float32(1))


def loads(result: Linked, chip: Chip) -> tuple[Counter[int], list[int]]:
    """How many pieces each core brings, and when: by the kernel's own loads that its queue did before."""
    traced = simulate(result.program, chip, given(chip))
    stream, classes = traced.stream, traced.classes
    brought, before = Counter[int](), list[int]()
    end = result.program.labels[1][1]
    for core in range(chip.cores):
        own = 0
        for item in range(int(stream.core_start[core]), int(stream.core_start[core + 1])):
            at = int(classes.pc[stream.klass[item]])
            instr = result.program.instrs[at]
            if at >= end or instr.row.mnemonic != "ld":
                continue
            if instr.mods[:2] == ("ddr", "llb"):
                brought[core] += 1
                before.append(own)
            else:
                own += 1
    return brought, before


def test_cores_bring_pieces_of_it_between_their_own_loads() -> None:
    brought, before = loads(linked(TW1), TW1)
    pieces = ROWS["tw1"] * 256 // 2 // LEAST_PIECE_BYTES
    assert brought == {core: pieces // TW1.cores for core in range(TW1.cores)}
    # Four cores run the kernel, with 128 loads of their own each; the others bring theirs at once.
    assert Counter(before)[0] == sum(brought.values()) // 2
    assert sorted(number for number in before if number) == [40, 48, 56, 64, 104, 112, 120, 128]


def test_where_the_kernel_has_no_site_all_comes_behind_it() -> None:
    _, before = loads(linked(TW1, sites=NO_SITES), TW1)
    assert set(before) == {0, ROWS["tw1"] // 4}


def test_what_has_no_room_is_read_where_it_is() -> None:
    placed, buffers = kernels(TW1)
    result = link(placed, TW1, buffers, llb=False)
    assert not any(instr.mods[:2] == ("ddr", "llb") for instr in result.program.instrs)
    assert all(buffer.name != "u" for buffer in result.program.buffers)
    assert result.fetched_bytes == 0 and set(result.unfetched) == {"w"}
    values = given(TW1)
    outputs = run(result, TW1, values).outputs
    np.testing.assert_array_equal(outputs["o"].reshape(-1, 64), values["w"] + np.float32(2))


def test_a_kernel_that_brings_two_things_brings_one_behind_the_other() -> None:
    placed, buffers = kernels(TW1)
    first, again, reader = placed
    both = replace(again, fetches=(*first.fetches, *again.fetches))
    result = link([replace(first, fetches=()), both, reader], TW1, buffers)
    values = given(TW1)
    outputs = run(result, TW1, values).outputs
    np.testing.assert_array_equal(outputs["o"].reshape(-1, 64), values["w"] + np.float32(2))


def test_clusters_that_do_alike_are_sent_it_together() -> None:
    placed, buffers = kernels(TW1)
    placed = [replace(k, fetches=tuple(replace(f, is_common=True) for f in k.fetches)) for k in placed]
    buffers = [replace(b, role="constant") if b.name == "w" else b for b in buffers]
    each = [
        replace(b, size_bytes=4 * b.size_bytes, shape=(4 * 512, 64)) if b.role in ("input", "output") else b
        for b in buffers
    ]
    program = link(placed, TW1, each, clusters=4).program
    whole = load_chip("tw1")
    verify(program, whole)
    assert Counter(instr.row.mnemonic for instr in program.instrs)["pld"] == 2 * (len(placed[0].code.sites.places) + 1)
    rng = np.random.default_rng(0)
    values = {"x": rng.random((4 * 512, 64), np.float32), "w": rng.random((512, 64), np.float32)}
    result = simulate(program, whole, values, hazards=True)
    assert not result.hazards
    for cluster in result.outputs["o"].reshape(4, 512, 64):
        np.testing.assert_array_equal(cluster, values["w"] + np.float32(2))


def test_it_may_lie_further_than_an_offset_reaches() -> None:
    chip = replace(TW1, memory=replace(TW1.memory, llb_bytes=1 << 27))
    placed, buffers = kernels(chip)
    places = plan(placed, buffers, chip) | {"u": Place("llb", 100 << 20)}
    result = link(placed, chip, buffers, places=places)
    verify(result.program, chip)
    values = given(chip)
    outputs = run(result, chip, values).outputs
    np.testing.assert_array_equal(outputs["o"].reshape(-1, 64), values["w"] + np.float32(2))


def test_a_fetch_is_a_line_of_its_own() -> None:
    result = linked(TW1)
    lines = {result.listing[line - 1] for line in result.program.lines}
    assert {"kernel0: bytes 0 to 65536 of w to LLB", "again: bytes 65536 to 131072 of w to LLB"} <= lines


def test_sites_are_among_what_the_kernel_computes() -> None:
    code = kernels(TW1)[0][0].code
    (place_,) = code.sites.places
    instr = code.instrs[place_]
    assert instr.row.queue_of(instr.mods) == Queue.V and "vadds" in instruction_text(instr)
    assert code.sites.times == ROWS["tw1"] // 4
    assert from_tables(to_tables(code)).sites == code.sites
