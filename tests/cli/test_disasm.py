"""``tilewright disasm``: what it prints assembles to the same artifact."""

from pathlib import Path

import pytest

from compiler.artifact import write_model
from compiler.cli.main import main
from compiler.isa.assembler import assemble
from compiler.runtime.model import ProgramSegment
from tests.artifact import models

SOURCE = """\
.chip tiny
.cores 2
.input a ddr fp32 4
.tiling t = 3
    ldt x1, t
again: ssub x1, x1, 1
    bne x1, 0, again
end:halt
.entry 1, end
"""


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    source = tmp_path / "demo.twasm"
    source.write_text(SOURCE, encoding="utf-8")
    assert main(["asm", str(source)]) == 0
    return source.with_suffix(".twm")


def test_text_on_standard_output(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["disasm", str(artifact)]) == 0
    assert capsys.readouterr().out == (
        ".program demo\n.chip tiny\n.cores 2\n.input a ddr fp32 4 at 0\n.tiling t = 3\n\n"
        "L0:\n    ldt x1, 0\nL1:\n    ssub x1, x1, 1\n    bne x1, 0, L1\nL3:\n    halt\n.entry 0, L0\n.entry 1, L3\n"
    )


def test_the_text_assembles_to_the_same_text(artifact: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.twasm", tmp_path / "second.twasm"
    assert main(["disasm", str(artifact), "-o", str(first)]) == 0
    assert main(["asm", str(first)]) == 0
    assert main(["disasm", str(first.with_suffix(".twm")), "-o", str(second)]) == 0
    assert first.read_text(encoding="utf-8") == second.read_text(encoding="utf-8")


def test_the_artifact_is_not_written_over(artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, link = artifact.read_bytes(), tmp_path / "link.twm"
    link.symlink_to(artifact)
    for output in (artifact, link):
        assert main(["disasm", str(artifact), "-o", str(output)]) == 2
        assert "which is read, would be overwritten" in capsys.readouterr().err
    assert artifact.read_bytes() == before


def test_a_file_that_is_no_artifact(tmp_path: Path) -> None:
    path = tmp_path / "no.twm"
    path.write_bytes(b"no")
    assert main(["disasm", str(path)]) in (3, 8)
    assert main(["disasm", str(tmp_path / "none.twm")]) == 3


def test_a_model_is_printed_with_where_its_instructions_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.twm"
    write_model(path, models.model("{}"))
    assert main(["disasm", str(path)]) == 2
    assert "the artifact has 2 programs\n  help: --segment N, where N is one of 0, 2" in capsys.readouterr().err
    assert main(["disasm", str(path), "--segment", "1"]) == 2
    assert main(["disasm", str(path), "--segment", "0", "--source"]) == 0
    text = capsys.readouterr().out
    assert "; kernel k0.mul: Cast_0, Mul_1\n" in text
    assert "    ; first, line " in text
    program = assemble(text, file="again.twasm", chip=models.chip())
    segment = models.model("{}").segments[0]
    assert isinstance(segment, ProgramSegment)
    assert program.instrs == segment.program.instrs
