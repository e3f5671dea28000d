"""A schedule template and an instruction sequence of one's own, from a file to the program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.errors import InvalidError
from compiler.isa.program import Program
from compiler.kernel_cache import KernelCache, default_folder
from compiler.runtime.model import ProgramSegment

pytestmark = pytest.mark.usefixtures("forget_operators")

OPS = '''
from tvm import te

from compiler import operator
from compiler.emission import calls
from compiler.emission.candidates import Candidate, Rejection
from compiler.emission.nest import tirx_substitute
from compiler.emission.own import sequence
from compiler.tiling import vector
from compiler.tiling.ranking import ranked
from compiler.tiling.schedule import schedule_of
from compiler.tiling.template import NoFeasibleTile, Tiled


@sequence
def square_and_add(nest, chip):
    """``a * a + a`` of a row as two instructions, the second in place."""
    (source,) = dict.fromkeys(nest.sources)
    if nest.target.memory != "ub" or source.memory != "ub" or nest.target.dtype != "fp32":
        yield Rejection("vsquare + vadd", "rows of floats in UB only")
        return
    outer, inner = nest.loops[:-1], nest.loops[-1:]  # loops of one iteration are gone
    start = {loop.var: calls.number(0) for loop in inner}
    count = inner[0].extent if inner else 1
    target, read = (
        calls.address(one.buffer, [tirx_substitute(index, start) for index in one.indices])
        for one in (nest.target, source)
    )

    def build():
        square = calls.instruction("vsquare", ("fp32", "1d"), [target, 1, read, 1, count])
        add = calls.instruction("vadd", ("fp32", "1d"), [target, 1, target, 1, read, 1, count])
        return calls.around(outer, calls.guarded(inner, calls.sequence([square, add])))

    yield Candidate("vsquare + vadd", cycles=2, executions=1, build=build)


def marked(func, chip, attempt):
    """The vector template's tile, with the sum in the hands of `square_and_add`."""
    space = vector.space(func, chip)
    tiles = ranked(space, chip)
    if attempt >= len(tiles):
        raise NoFeasibleTile("marked", f"{attempt} tiles")
    tiled = space.apply(tiles[attempt].tile)
    sch = schedule_of(tiled.func)
    block = sch.get_sblock("polynomial")
    loops = sch.get_loops(block)
    sch.annotate(loops[-2], *square_and_add.mark)
    return Tiled(sch.mod["main"], f"marked, {tiled.description}")


@operator("com.example::Polynomial", schedule=marked, sweep={"x": "float32[n, c]"})
def polynomial(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i) * x(*i) + x(*i), "polynomial")
'''


def written(folder: Path, text: str = OPS) -> Path:
    file = folder / "my_ops.py"
    file.write_text(text, encoding="utf-8")
    return file


def mnemonics(artifact: compiler.Artifact) -> Iterator[str]:
    for segment in artifact.model.segments:
        assert isinstance(segment, ProgramSegment)
        program: Program = segment.program
        yield from (instr.row.mnemonic for instr in program.instrs)


@pytest.mark.parametrize("shape", [(37, 53), (1, 1), (3, 4099)])
@pytest.mark.parametrize("chip", ["tiny", "tw2"])
def test_the_program_holds_the_sequence_and_is_right(tmp_path: Path, shape: tuple[int, int], chip: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    types = {"x": f"float32[{shape[0]}, {shape[1]}]"}
    artifact = compiler.compile_operator(
        "com.example::Polynomial", types, chip, host_kernels=False, ops=written(tmp_path), cache=False
    )
    np.testing.assert_allclose(artifact.run({"x": x}, hazards=True)["out0"], x * x + x, rtol=1e-5, atol=1e-6)
    assert artifact.report.kernels[0].tile.startswith("marked, ")
    assert {"vsquare", "vadd"} <= set(mnemonics(artifact))


def test_the_cache_knows_a_template_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    types, tiles = {"x": "float32[5, 64]"}, []
    for text in (OPS, OPS, OPS.replace("marked, {", "changed, {")):
        artifact = compiler.compile_operator("com.example::Polynomial", types, "tiny", ops=written(tmp_path, text))
        tiles.append(artifact.report.kernels[0].tile.partition(",")[0])
    assert tiles == ["marked", "marked", "changed"]
    assert len(list(KernelCache(default_folder()).entries())) == 4, "of both templates a kernel, and what was decided"


@pytest.mark.parametrize(
    "before, after, said",
    [
        ("    def build", "    1 / 0\n    def build", "sequence square_and_add: ZeroDivisionError"),
        ("    space = vector.space(func, chip)", "    space = 1 / 0", "ZeroDivisionError"),
        ("    return Tiled(", "    return dict(of=", "returns a dict, not a Tiled"),
    ],
)
def test_a_template_that_fails_has_its_line(tmp_path: Path, before: str, after: str, said: str) -> None:
    file = written(tmp_path, OPS.replace(before, after).replace('dict(of=sch.mod["main"], f', "dict(of=f"))
    with pytest.raises(InvalidError, match="TW2128") as caught:
        compiler.compile_operator("com.example::Polynomial", {"x": "float32[5, 64]"}, "tiny", ops=file, cache=False)
    assert said in str(caught.value)


def test_a_template_without_a_tile_leaves_it_to_the_vector_unit(tmp_path: Path) -> None:
    file = written(tmp_path, OPS.replace("if attempt >= len(tiles):", "if True:"))
    artifact: Any = compiler.compile_operator(
        "com.example::Polynomial", {"x": "float32[5, 64]"}, "tiny", ops=file, cache=False, host_kernels=False
    )
    assert not artifact.report.kernels[0].tile.startswith("marked")
