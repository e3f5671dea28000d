"""What is written is what is read, and the same program gives the same bytes wherever it is written."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.artifact import read_program, to_bytes, write_program
from compiler.artifact.container import ALIGNMENT, HEADER_BYTES
from compiler.errors import CapacityError, InputError, InvalidError, UsageError
from compiler.isa.program import Program
from tests.artifact.programs import SOURCE, chip, program


def test_a_program_comes_back_as_it_was(tmp_path: Path) -> None:
    path, written = tmp_path / "add.twm", program()
    options = {"opt_level": 2, "fuse": True, "note": "über"}
    write_program(path, written, chip(), options=options, source_text=SOURCE.encode())
    artifact = read_program(path)
    assert artifact.program == replace(written, source="add.twasm")
    assert artifact.chip == chip()
    assert artifact.manifest["options"] == options
    assert artifact.manifest["source"] == {
        "name": "add.twasm",
        "sha256": hashlib.sha256(SOURCE.encode()).hexdigest(),
    }


def test_debug_information_is_optional() -> None:
    bare = replace(program(), lines=(), labels=())
    artifact = read_program(to_bytes(bare, chip()))
    assert [s.name for s in artifact.sections] == ["manifest", "weights", "programs"]
    assert artifact.program.same_code(program())


def test_sections_are_aligned_and_cover_the_file() -> None:
    data = to_bytes(program(), chip())
    end = HEADER_BYTES
    for section in read_program(data).sections:
        assert section.offset % ALIGNMENT == 0
        assert end <= section.offset < end + ALIGNMENT
        assert not any(data[end : section.offset])
        end = section.end
    assert end == len(data)


def test_the_place_of_the_source_leaves_no_trace() -> None:
    assert to_bytes(program("/home/someone/add.twasm"), chip()) == to_bytes(program("add.twasm"), chip())


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_two_processes_write_the_same_bytes(seed: str, tmp_path: Path) -> None:
    path = tmp_path / "other.twm"
    code = (
        "import sys; from compiler.artifact import write_program; from tests.artifact.programs import chip, program; "
        "write_program(sys.argv[1], program(), chip(), options={'b': 1, 'a': 'x'})"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=environment)
    assert path.read_bytes() == to_bytes(program(), chip(), options={"a": "x", "b": 1})


def test_constants_are_contents_of_inputs() -> None:
    values = {"b": np.arange(256, dtype=np.float32).reshape(2, 128), "a": np.ones(256, np.float32)}
    artifact = read_program(to_bytes(program(), chip(), constants=values))
    assert list(artifact.constants) == ["a", "b"]
    for name, value in values.items():
        np.testing.assert_array_equal(artifact.constants[name], value)
        assert not artifact.constants[name].flags.writeable


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        ("c", np.zeros(256, np.float32), UsageError, "no input c"),
        ("a", np.zeros(255, np.float32), InvalidError, "constant a is float32"),
        ("a", np.zeros(256, np.float16), InvalidError, "constant a is float16"),
    ],
)
def test_a_constant_must_fit_an_input(name: str, value: np.ndarray, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        to_bytes(program(), chip(), constants={name: value})


def test_what_cannot_run_is_not_written() -> None:
    last = replace(program().buffers[-1], offset=chip().memory.ub_bytes)
    with pytest.raises(CapacityError, match="ub"):
        to_bytes(replace(program(), buffers=(*program().buffers[:-1], last)), chip())


def test_what_could_not_be_read_is_not_written() -> None:
    wide = replace(program().buffers[0], shape=(1,) * 40)
    with pytest.raises(InvalidError, match="shape has 40 items; allowed: at most 32"):
        to_bytes(replace(program(), buffers=(wide, *program().buffers[1:])), chip())


def test_ten_thousand_lines_stay_few_runs() -> None:
    nop = next(instr for instr in program().instrs if instr.row.mnemonic == "nop")
    many = Program("many", instrs=(nop,) * 10_000 + program().instrs[-1:], lines=tuple(range(7, 10_008)), source="x")
    data = to_bytes(many, chip())
    assert read_program(data).program == many
    assert read_program(data).sections[-1].size < 100


# ---- the file -------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_replaced_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "add.twm"
    path.write_bytes(b"before")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match=r"TW1505.*No space left on device"):
        write_program(path, program(), chip())
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    write_program(tmp_path / "add.twm", program(), chip())
    (tmp_path / "other").write_bytes(b"")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write the artifact: No such file"):
        write_program(tmp_path / "none" / "add.twm", program(), chip())
