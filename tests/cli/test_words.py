"""What a verb reads is never written over, whatever option names it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.cli.main import main
from tests.cli.onnx_models import perceptron, saved

Capture = pytest.CaptureFixture[str]
CHIPS = Path(__file__).parents[2] / "compiler" / "target" / "chips"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a model, its artifact, the model with its weights in a file beside it, and what else verbs read."""
    saved(tmp_path)
    onnx.save_model(
        perceptron(), tmp_path / "apart.onnx", save_as_external_data=True, location="apart.data", size_threshold=0
    )
    shutil.copy(CHIPS / "tiny.toml", tmp_path / "own.toml")
    np.save(tmp_path / "x.npy", np.zeros((4, 8), np.float32))
    (tmp_path / "op.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert main(["compile", "perceptron.onnx", "--chip", "tiny", "-o", "p.twm", "--dump-schedule", "s.toml"]) == 0
    return tmp_path


@pytest.mark.parametrize("words", [
    "compile perceptron.onnx --chip own.toml -o own.toml",
    "compile perceptron.onnx --chip tiny --ops op.py -o op.py",
    "compile perceptron.onnx --chip tiny --schedule s.toml -o s.toml",
    "compile perceptron.onnx --chip tiny --schedule s.toml --dump-schedule s.toml",
    "compile apart.onnx --chip tiny -o apart.data",
    "compile-op Relu --input x=float32[4] --chip own.toml -o own.toml",
    "profile p.twm --onnx perceptron.onnx --html perceptron.onnx",
    "profile p.twm --onnx perceptron.onnx --flame ./perceptron.onnx",
    "run p.twm --input x=x.npy --output y=x.npy",
    "exec p.twm --input in0=x.npy --output out0=x.npy",
    "exec p.twm --random-inputs 1 --trace p.twm",
    "exec p.twm --random-inputs 1 --trace t --output out0=t",
])  # fmt: skip
def test_files_that_are_read_stay(words: str, folder: Path, capsys: Capture) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert "which is read, would be overwritten" in said or "both name t" in said
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("name", ["other.data", "apart.twm"])
def test_other_files_are_written(name: str, folder: Path) -> None:
    for _ in range(2):
        assert main(["compile", "apart.onnx", "--chip", "tiny", "-o", name]) == 0
    assert (folder / name).is_file()


def test_a_file_of_a_folder_that_is_read_stays(folder: Path, capsys: Capture) -> None:
    (folder / "operators").mkdir()
    (folder / "operators" / "__init__.py").write_text("")
    assert main("compile perceptron.onnx --chip tiny --ops operators -o operators/__init__.py".split()) == 2
    assert "would be overwritten" in capsys.readouterr().err
    assert (folder / "operators" / "__init__.py").read_text() == ""
