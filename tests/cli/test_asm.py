"""``tilewright asm``: from a file to an artifact, or to messages and an exit code."""

from pathlib import Path

import pytest

from compiler.artifact import read_program
from compiler.cli.asm import parse_defines
from compiler.cli.main import main
from compiler.errors import UsageError
from compiler.isa.assembler import assemble

SOURCE = """\
.program demo
.equ N 4
.input a ddr fp32 [N]
.output c ddr fp32 [N]
.buffer u ub fp32 [N]
    ld.ddr.ub.fp32.1d [u], [a], <N>
    set_flag.mte2.mte3 0
    wait_flag.mte2.mte3 0
    st.ddr.fp32.1d [c], [u], <N>
    halt
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "demo.twasm"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def test_an_artifact_is_written(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", str(source), "--chip", "tiny"]) == 0
    written = source.with_suffix(".twm")
    size = written.stat().st_size
    assert capsys.readouterr().out == f"{written}: 5 instructions for tiny, {size} bytes\n"
    artifact = read_program(written)
    assert artifact.chip.name == "tiny"
    assert artifact.program.same_code(assemble(SOURCE))


def test_an_output_and_a_definition(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "other.twm"
    assert main(["asm", str(source), "--chip", "tiny", "-o", str(output), "-D", "N=0x8"]) == 0
    assert read_program(output).program.buffers[0].shape == (8,)
    assert not source.with_suffix(".twm").exists()


def test_check_writes_nothing(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", str(source), "--chip", "tw2", "--check"]) == 0
    assert capsys.readouterr().out == f"{source}: no errors, 5 instructions for tw2\n"
    assert not source.with_suffix(".twm").exists()


def test_the_source_is_never_overwritten(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    misnamed = source.rename(source.with_suffix(".twm"))
    assert main(["asm", str(misnamed), "--chip", "tiny"]) == 2
    assert "would be overwritten" in capsys.readouterr().err
    assert misnamed.read_text(encoding="utf-8") == SOURCE


def test_the_program_names_its_chip(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", str(source), "--check"]) == 2
    assert "does not say for which chip it is" in capsys.readouterr().err
    source.write_text(f".chip tiny\n{SOURCE}", encoding="utf-8")
    assert main(["asm", str(source), "--check"]) == 0


@pytest.mark.parametrize(
    ("extra", "arguments", "code", "said"),
    [
        ("vadd", [], 4, "TW1208"),
        ("set_flag.v.m 0", [], 4, "TW1283"),
        (".buffer big ub 1 << 20", [], 6, "TW1274"),
        ("", ["-D", "M=1"], 4, "TW1220"),
        ("", ["-D", "N"], 2, "expected NAME=VALUE"),
        ("", ["--chip", "tin"], 2, "did you mean tiny?"),
    ],
)
def test_mistakes(
    source: Path, capsys: pytest.CaptureFixture[str], extra: str, arguments: list[str], code: int, said: str
) -> None:
    source.write_text(f"{extra}\n{SOURCE}", encoding="utf-8")
    assert main(["asm", str(source), "--chip", "tiny", *arguments]) == code
    assert said in capsys.readouterr().err
    assert not source.with_suffix(".twm").exists()


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", str(tmp_path / "no.twasm"), "--chip", "tiny"]) == 3
    assert "TW1201" in capsys.readouterr().err


def test_definitions() -> None:
    assert parse_defines(["A=1", "b_2=-0x10"]) == {"A": 1, "b_2": -16}
    for words in (["A"], ["A="], ["A=x"], ["1=2"], ["A=1", "A=1"], ["é=1"], ["A=" + "9" * 5000]):
        with pytest.raises(UsageError):
            parse_defines(words)
