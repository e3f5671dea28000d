"""Schedules in files: written, changed, given back; what is wrong in one is named with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import compiler
from compiler import driver, one_piece, programs
from compiler.cli.main import main
from compiler.compilation import Compilation
from compiler.errors import InputError, InvalidError
from compiler.isa.disassembler import disassemble
from compiler.model_kernels import ModelKernels
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.runtime.loaded import load
from compiler.schedule.chains import chains
from compiler.schedule.files import load_schedule, parse_schedule
from compiler.target import load_chip
from tests.frontend.models import model as typed_model
from tests.test_driver import model, node

RNG = np.random.default_rng(4)
NODES = [
    node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
    node("Relu", "a", "b"),
    node("MaxPool", "b", "c", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1]),
    node("Flatten", "c", "f"),
    node("Softmax", "f", "y"),
]
SHAPE = (4, 3, 8, 8)
SOURCE = model(NODES, {"x": SHAPE}, ["y"], w=RNG.standard_normal((6, 3, 3, 3)).astype(np.float32))
WHOLE = """\
clusters = 0  # that run it, each on a part of the batch; 0: all together

[pieces]  # in which each call runs, in order: depth first where each count divides the one before it
"b" = 1  # a b
"c" = 1  # c
"y" = 1  # y
"""


@pytest.mark.usefixtures("first_tiles")
def test_what_was_chosen_is_written_and_means_the_same(tmp_path: Path) -> None:
    artifact = compiler.compile(SOURCE, "tiny")
    assert artifact.schedule == WHOLE
    changed = tmp_path / "schedule.toml"
    changed.write_text(WHOLE.replace('"b" = 1', '"b" = 4').replace('"c" = 1', '"c" = 2'))
    again = compiler.compile(SOURCE, "tiny", schedule=changed)
    assert again.schedule == changed.read_text()
    assert [kernel.name for kernel in again.report.kernels] != [kernel.name for kernel in artifact.report.kernels]
    x = RNG.standard_normal(SHAPE).astype(np.float32)
    expected = ReferenceEvaluator(onnx.load_from_string(SOURCE)).run(None, {"x": x})[0]
    np.testing.assert_allclose(again.run({"x": x}, hazards=True)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("first_tiles")
def test_a_break_is_written_and_means_the_same(tmp_path: Path) -> None:
    changed = tmp_path / "schedule.toml"
    text = WHOLE.replace('"b" = 1', '"b" = 4').replace('"c" = 1', '"c" = { pieces = 2, after_all = true }')
    changed.write_text(text)
    again = compiler.compile(SOURCE, "tiny", schedule=changed)
    assert again.schedule == text
    names = [kernel.name for kernel in again.report.kernels]
    assert names == sorted(names, key=lambda name: ["b", "c", "y"].index(name)), "all of b, then all of c"
    x = RNG.standard_normal(SHAPE).astype(np.float32)
    expected = ReferenceEvaluator(onnx.load_from_string(SOURCE)).run(None, {"x": x})[0]
    np.testing.assert_allclose(again.run({"x": x}, hazards=True)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("first_tiles")
def test_calls_run_in_the_order_of_the_file(tmp_path: Path) -> None:
    nodes = [
        node("Softmax", "x", "a"), node("Flatten", "a", "flat"), node("Softmax", "x", "b", axis=2),
        node("Flatten", "b", "other"), node("Softmax", "other", "c"), node("Concat", "c flat", "y", axis=1),
    ]  # fmt: skip
    source = model(nodes, {"x": SHAPE}, ["y"])
    first, changed = compiler.compile(source, "tiny"), tmp_path / "schedule.toml"
    lines = {line.split('"')[1]: line for line in first.schedule.splitlines() if line.startswith('"')}
    assert list(lines)[:3] == ["a", "b", "c"]
    moved = [lines.pop(name) for name in ("b", "c", "a")]
    changed.write_text("\n".join([*first.schedule.split("\n")[:3], *moved, *lines.values(), ""]))
    again = compiler.compile(source, "tiny", schedule=changed)
    assert again.schedule == changed.read_text() != first.schedule
    assert [kernel.name for kernel in again.report.kernels][:3] == ["b", "c", "a"]
    x = RNG.standard_normal(SHAPE).astype(np.float32)
    expected = ReferenceEvaluator(onnx.load_from_string(source)).run(None, {"x": x})[0]
    np.testing.assert_allclose(again.run({"x": x}, hazards=True)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("first_tiles")
def test_pieces_read_their_weights_from_a_copy_on_the_chip(tmp_path: Path) -> None:
    weights = RNG.standard_normal((64, 64, 1, 1)).astype(np.float32) / 8
    source = model([node("Conv", "x w", "a"), node("Relu", "a", "y")], {"x": (4, 64, 4, 4)}, ["y"], w=weights)
    changed = tmp_path / "schedule.toml"
    changed.write_text(compiler.compile(source, "tiny").schedule.replace('"y" = 1', '"y" = 4'))
    artifact = compiler.compile(source, "tiny", schedule=changed)
    assert len(artifact.report.kernels) == 5, "one of them copies the weights"
    x = RNG.standard_normal((4, 64, 4, 4)).astype(np.float32)
    expected = ReferenceEvaluator(onnx.load_from_string(source)).run(None, {"x": x})[0]
    np.testing.assert_allclose(artifact.run({"x": x}, hazards=True)["y"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_rows_of_a_small_table_are_looked_up_on_the_chip(chip: str) -> None:
    table = RNG.standard_normal((2, 768)).astype(np.float16)
    ids = RNG.integers(0, 2, (128, 64))
    nodes = [node("Gather", "table ids", "rows"), node("Relu", "rows", "y")]
    inputs = {"ids": (TensorProto.INT64, list(ids.shape))}
    source = typed_model(nodes, inputs, ["y"], {"table": table}, output_type=TensorProto.FLOAT16)
    compilation = driver.compile_model(source.SerializeToString(), load_chip(chip))
    (segment,) = compilation.model.segments
    assert "ldgather.llb" in disassemble(segment.program)
    found = load(compilation.model).run({"ids": ids}, hazards=True)["y"]
    np.testing.assert_array_equal(found, np.maximum(table[ids], 0))


@pytest.mark.usefixtures("first_tiles")
def test_weights_are_copied_only_where_the_program_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = RNG.standard_normal((64, 64, 1, 1)).astype(np.float32) / 8
    source = model([node("Conv", "x w", "a"), node("Relu", "a", "y")], {"x": (4, 64, 4, 4)}, ["y"], w=weights)
    options = Options(schedule=parse_schedule('clusters = 1\n[pieces]\n"y" = 4\n'))
    for sign, kernels in ((1, 4), (-1, 5)):
        cycles = property(lambda found, sign=sign: sign * len(found.steps))
        monkeypatch.setattr(Compilation, "simulated_cycles", cycles)
        assert len(driver.compile_model(source, load_chip("tiny"), options).steps) == kernels


@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize(("last", "copies"), [(80, True), (95, False)])
def test_weights_are_copied_once_it_is_known_which_calls_share_kernels(
    monkeypatch: pytest.MonkeyPatch, last: int, copies: bool
) -> None:
    weights = {name: RNG.standard_normal((64, 64, 1, 1)).astype(np.float32) / 8 for name in "wv"}
    nodes = [node("Conv", "x w", "a"), node("Relu", "a", "b"), node("Conv", "b v", "c"), node("Relu", "c", "y")]
    source, chip = model(nodes, {"x": (4, 64, 4, 4)}, ["y"], **weights), load_chip("tiny")
    told = parse_schedule('clusters = 1\n[pieces]\n"b" = 4\n"y" = 4\n')
    kernels = driver.plan(source, chip, Options(schedule=told), Observer())
    copying = kernels.with_copies({*kernels.buffers.declared})
    assert len(copying.copied) == 2 and not kernels.copied
    cycles = {(False, True): 90, (True, True): last}

    def taken(found: Compilation) -> int:
        return cycles[bool(found.kernels.copied), bool(found.kernels.together)]

    monkeypatch.setattr(Compilation, "simulated_cycles", property(taken))
    found = one_piece._copied_or_not(kernels, programs.compilation_of(with_all_together(kernels)))
    assert found.kernels.copied == (copying.copied if copies else frozenset()) and found.kernels.together
    again = programs.compilation_of(with_all_together(copying if copies else kernels))
    assert found.model.segments[0].program.instrs == again.model.segments[0].program.instrs


def with_all_together(kernels: ModelKernels) -> ModelKernels:
    return kernels.with_together(chains(kernels.module)[:1])


@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize("clusters", [0, 1, 2, 4])
def test_clusters_are_as_told(clusters: int) -> None:
    schedule = parse_schedule(WHOLE.replace("clusters = 0", f"clusters = {clusters}"))
    chip, x = load_chip("tw1"), RNG.standard_normal(SHAPE).astype(np.float32)
    compilation = driver.compile_model(SOURCE, chip, Options(schedule=schedule))
    assert compilation.clusters == clusters
    (segment,) = compilation.model.segments
    assert segment.program.cores == chip.cores_per_cluster * (clusters or chip.clusters)
    expected = ReferenceEvaluator(onnx.load_from_string(SOURCE)).run(None, {"x": x})[0]
    found = load(compilation.model).run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("first_tiles")
def test_a_chip_of_one_cluster_is_one_cluster() -> None:
    compilations = [
        driver.compile_model(SOURCE, load_chip("tw2"), Options(schedule=parse_schedule(text)))
        for text in (WHOLE, WHOLE.replace("clusters = 0", "clusters = 1"))
    ]
    one, other = (compilation.model.segments[0].program for compilation in compilations)
    assert one.instrs == other.instrs


@pytest.mark.parametrize(("changed", "code", "line", "said"), [
    (('"b" = 1', '"b" = 3'), "TW2632", 4, "b cannot run in 3 pieces"),
    (('"c" = 1  # c\n', ""), "TW2631", 0, "says nothing of c"),
    (('"c" = 1', '"d" = 1'), "TW2631", 5, "has no call d"),
    (('"b" = 1  # a b\n"c" = 1  # c\n', '"c" = 1\n"b" = 1\n'), "TW2631", 4, "c comes before what it reads is made"),
    (("clusters = 0", "clusters = 3"), "TW2632", 1, "3 clusters cannot divide"),
    (("clusters = 0", "clusters = 8"), "TW2632", 1, "8 clusters cannot divide"),
])  # fmt: skip
def test_what_does_not_fit_the_model_is_named(changed: tuple[str, str], code: str, line: int, said: str) -> None:
    schedule = parse_schedule(WHOLE.replace(*changed), "s.toml")
    with pytest.raises(InvalidError) as caught:
        driver.compile_model(SOURCE, load_chip("tw1"), Options(schedule=schedule))
    (found,) = [problem for problem in caught.value.problems if said in problem.message]
    assert found.place is not None
    assert (found.code, found.place.line) == (code, line)


@pytest.mark.parametrize(("text", "line"), [
    ("clusters = -1", 1), ("x = 1", 1), ("clusters = 1\n[piecez]\na = 1", 2),
    ("\nclusters = 'two'", 2), ("[pieces]\n'a' = 1\nb = 1.5", 3), ("[pieces]\na = ", 2),
    ("[pieces]\na = 1\nb = { pieces = 0 }", 3), ("[pieces]\na = { pieces = 1, after_all = 1 }", 2),
    ("[pieces]\n\na = { pieces = 1, break = true }", 3),
    ('clusters = 1\npieces."b.c" = 0', 2), ("clusters = 1\npieces . b.pieces = 0", 2), ("[pieces]\na.pieces = 0", 2),
    ("clusters = 1\n[tail]\ncalls = []", 2), ("clusters = 1\ntail = 3", 2), ('["pieces"."b"]', 0),
])  # fmt: skip
def test_what_is_no_schedule_is_named(text: str, line: int) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_schedule(text, "s.toml")
    place = caught.value.problems[0].place
    assert caught.value.problems[0].code == "TW2630"
    assert place is not None
    assert place.line == line


def test_what_no_parser_takes_is_named() -> None:
    with pytest.raises(InvalidError, match="nested too deeply"):
        parse_schedule("a = " + "[" * 5000)
    with pytest.raises(InvalidError) as caught:
        parse_schedule("\ufeffclusters = 1")
    assert "byte-order mark" in caught.value.problems[0].hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="TW2630"):
        load_schedule(tmp_path / "none.toml")


@pytest.mark.usefixtures("first_tiles")
def test_the_command_writes_and_takes_it(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "m.onnx").write_bytes(SOURCE)
    given = [str(tmp_path / "m.onnx"), "--chip", "tiny", "-o", str(tmp_path / "m.twm"), "--no-timing"]
    file = tmp_path / "s.toml"
    assert main(["compile", *given, "--dump-schedule", str(tmp_path / "m.twm")]) == 2
    assert main(["compile", *given, "--dump-schedule", str(file)]) == 0
    assert file.read_text() == WHOLE
    file.write_text(WHOLE.replace('"b" = 1', '"b" = 2'))
    assert main(["compile", *given, "--schedule", str(file)]) == 0
    file.write_text(WHOLE.replace('"b" = 1', '"b" = 5'))
    assert main(["compile", *given, "--schedule", str(file)]) != 0
    assert f"{file}:4" in capsys.readouterr().err
