"""``tilewright inspect``, through the command's own entry point."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.artifact import canonical, container, write_model, write_program
from compiler.artifact.container import MANIFEST
from compiler.artifact.reader import read_frame
from compiler.cli.main import main
from compiler.isa.assembler import assemble
from tests.artifact import models, programs
from tests.sim import sample

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "add.twm"
    constants = {"a": np.ones(256, np.float32)}
    write_program(path, programs.program(), programs.chip(), options={"level": 2}, constants=constants)
    return path


def changed(path: Path, target: Path, **values: Any) -> Path:
    """A copy with other values in the manifest and right checksums."""
    contents = {kind: bytes(content) for kind, content in read_frame(path).contents.items()}
    tables = canonical.loads(contents[MANIFEST]) | values
    target.write_bytes(container.pack(contents | {MANIFEST: canonical.dumps(tables)}))
    return target


def inspected(*words: str | Path, capsys: Capture) -> Any:
    assert main(["inspect", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_text_shows_everything_a_person_asks_for(artifact: Path, capsys: Capture) -> None:
    assert main(["inspect", str(artifact)]) == 0
    out = capsys.readouterr().out
    data = artifact.read_bytes()
    lines = [line.split() for line in out.splitlines()]
    assert out.startswith(f"{artifact}: {len(data):,} bytes, container version 1\n")
    assert "this build can run it" in out
    weights = next(line for line in lines if line[:1] == ["weights"])
    assert weights[2:] == ["1,024", hashlib.sha256(np.ones(256, np.float32).tobytes()).hexdigest()]
    assert ["a", "input,", "constant", "ddr", "0", "1,024", "fp32", "256"] in lines
    assert ["b", "inout", "ddr", "1,024", "1,024", "fp32", "2x128"] in lines
    assert ["ub", "2,048", "8,192"] in lines
    assert ["tiling", "words", "trips", "=", "2"] in lines
    assert ["options", "level", "=", "2"] in lines
    assert ["entries", "[0,", "5]"] in lines
    assert "instructions: 7" in out
    assert "by queue: s 6, v 1" in out


def test_json_counts_every_instruction(tmp_path: Path, capsys: Capture) -> None:
    path, program = tmp_path / "scale.twm", sample.program()
    write_program(path, program, sample.chip(), source_text=sample.SOURCE.encode())
    content = inspected(path, capsys=capsys)
    counts = content["instructions"]
    assert counts["total"] == len(program.instrs) == sum(counts["by_queue"].values())
    assert counts["by_category"]["cube"] == 1
    assert sum(counts["by_category"].values()) == counts["total"]
    assert content["incompatible"] == []
    assert content["manifest"]["source"]["sha256"] == hashlib.sha256(sample.SOURCE.encode()).hexdigest()
    assert content["bytes"] == path.stat().st_size
    assert list(content["sections"]) == ["manifest", "weights", "programs", "debug"]
    assert content["memory"]["ddr"] == {"declared_bytes": 18944, "capacity_bytes": 67108864}


def test_an_artifact_for_another_build_is_shown_and_refused(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    old = changed(artifact, tmp_path / "old.twm", isa_table_hash="0" * 64, compiler_version="0.0.1")
    assert main(["inspect", str(old)]) == 7
    out = capsys.readouterr().out
    assert "this build cannot run it:\n  the artifact is for the instruction table '000" in out
    assert "made by tilewright 0.0.1" in out
    assert main(["inspect", str(old), "--json"]) == 7
    assert len(json.loads(capsys.readouterr().out)["incompatible"]) == 1
    new = changed(artifact, tmp_path / "new.twm", abi_version=3, segments="another schema")
    assert main(["inspect", str(new)]) == 7


def test_a_model_is_shown_with_its_signature_kernels_and_host_kernels(tmp_path: Path, capsys: Capture) -> None:
    write_model(tmp_path / "model.twm", models.model("{}"))
    assert main(["inspect", str(tmp_path / "model.twm")]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "input x int64 64 int32 in0" in lines
    assert "output z float64 64 fp32 out0" in lines
    assert "mul Cast_0, Mul_1" in lines
    assert "segment 1: host kernel plus: no instruction adds one" in lines
    assert inspected(tmp_path / "model.twm", capsys=capsys)["sections"]["host"]["bytes"] == 2


@pytest.mark.parametrize("how", ["damaged", "directory", "missing"])
def test_what_cannot_be_inspected(how: str, artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    path, code = {"damaged": (artifact, 8), "directory": (tmp_path, 3), "missing": (tmp_path / "none", 3)}[how]
    if how == "damaged":
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert main(["inspect", str(path)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert str(path) in captured.err


def test_names_cannot_steer_the_terminal(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    evil = replace(programs.program(), name="\x1b[31m\n\u202e")
    write_program(tmp_path / "evil.twm", evil, programs.chip(), options={"\x1b[2J": "\r"})
    assert main(["inspect", str(tmp_path / "evil.twm")]) == 0
    out = capsys.readouterr().out
    assert not {"\x1b", "\r", "\u202e"} & set(out)


# ---- differences ----------------------------------------------------------------------------------------------


def test_an_artifact_does_not_differ_from_itself(artifact: Path, capsys: Capture) -> None:
    assert main(["inspect", str(artifact), "--diff", str(artifact)]) == 0
    assert capsys.readouterr().out == "no differences\n"
    assert inspected(artifact, "--diff", artifact, capsys=capsys)["differences"] == []


def test_differences_have_a_place_and_both_values(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other.twm"
    source = programs.SOURCE.replace("trips = 2", "trips = 3").replace(
        "    set_flag.s.v 0", "    nop\n    set_flag.s.v 0"
    )
    program = assemble(source, file="add.twasm", chip=programs.chip())
    write_program(other, program, programs.chip(), options={"level": 2}, constants={"a": np.ones(256, np.float32)})
    found = inspected(artifact, "--diff", other, capsys=capsys)["differences"]
    plain = {one["path"]: (one["left"], one["right"]) for one in found}
    assert plain["manifest.segments[0].tiling[0][1]"] == (2, 3)
    assert plain["manifest.segments[0].instructions"] == (7, 8)
    assert plain["instructions.by_category.control"] == (5, 6)
    assert "manifest.segments[0].buffers[0].name" not in plain
    assert plain["sections.programs.sha256"][0] != plain["sections.programs.sha256"][1]
    code = next(one for one in found if one["path"] == "code")
    assert (code["first"], code["left_count"], code["right_count"]) == (1, 1, 2)
    assert code["right"][1] == "nop"
    assert main(["inspect", str(artifact), "--diff", str(other)]) == 0
    out = capsys.readouterr().out
    assert "manifest.segments[0].tiling[0][1]: 2 -> 3\n" in out
    assert "from instruction 1: 1 instructions -> 2\n" in out
    assert "  + nop\n" in out


def test_many_differences_are_cut_in_text_only(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    other = changed(artifact, tmp_path / "other.twm", options={f"o{i}": i for i in range(300)})
    assert main(["inspect", str(artifact), "--diff", str(other)]) == 0
    assert "more differences are not shown; --json lists all" in capsys.readouterr().out
    assert len(inspected(artifact, "--diff", other, capsys=capsys)["differences"]) > 300


def test_a_difference_to_an_artifact_for_another_build(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    old = changed(artifact, tmp_path / "old.twm", isa_table_hash="0" * 64)
    assert main(["inspect", str(artifact), "--diff", str(old)]) == 0
    assert "manifest.isa_table_hash" in capsys.readouterr().out
