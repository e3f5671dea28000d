"""``tilewright run``, through the command's own entry point."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from compiler.artifact import write_model, write_program
from compiler.cli.main import main
from tests.artifact import models
from tests.cli.onnx_models import saved
from tests.sim import sample

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    write_model(tmp_path / "model.twm", models.model(host=False))
    return tmp_path / "model.twm"


def arrays(folder: Path) -> list[str]:
    words = []
    for name, array in models.inputs().items():
        np.save(folder / f"{name}.npy", array)
        words += ["--input", f"{name}={folder / name}.npy"]
    return words


def test_outputs_are_written_and_cycles_told(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    words = ["--output", f"z={tmp_path / 'z.npy'}", "--hazards", "--profile"]
    assert main(["run", str(artifact), *arrays(tmp_path), *words]) == 0
    out = capsys.readouterr().out
    assert "hazards: none" in out and "program 1 of 2" in out
    assert "Cast_0, Mul_1" in out
    np.testing.assert_allclose(np.load(tmp_path / "z.npy"), models.expected(models.inputs(), False), rtol=1e-6)


def test_json_is_the_same_every_time(artifact: Path, capsys: Capture) -> None:
    found = []
    for _ in range(2):
        assert main(["run", str(artifact), "--random-inputs", "7", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert found[0]["cycles"] == sum(stats["cycles"] for stats in found[0]["statistics"])
    assert found[0]["cycles"] == sum(kernel["cycles"] for kernel in found[0]["kernel_cycles"])
    assert set(found[0]["outputs"]) == {"z", "twice"}


def test_a_race_ends_with_9(tmp_path: Path, capsys: Capture) -> None:
    write_model(tmp_path / "race.twm", models.model(host=False, race=True))
    words = ["run", str(tmp_path / "race.twm"), "--random-inputs", "1", "--output", f"z={tmp_path / 'z.npy'}"]
    assert main([*words, "--hazards"]) == 9
    assert not (tmp_path / "z.npy").exists()


def test_a_program_as_somebody_wrote_it_runs_too(tmp_path: Path) -> None:
    write_program(tmp_path / "scale.twm", sample.program(), sample.chip())
    assert main(["run", str(tmp_path / "scale.twm"), "--random-inputs", "1"]) == 0


def test_a_model_is_compiled_first(tmp_path: Path, capsys: Capture) -> None:
    path = saved(tmp_path)
    np.save(tmp_path / "x.npy", np.ones((3, 8), np.float32))
    words = ["--input", f"x={tmp_path / 'x.npy'}", "--output", f"y={tmp_path / 'y.npy'}", "--chip", "tiny"]
    assert main(["run", str(path), *words, "--hazards"]) == 0
    assert np.load(tmp_path / "y.npy").shape == (3, 5)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["perceptron.onnx", "x.npy", "y.npy"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "no array is given for input x: int64 [64]"),
        (["--input", "q=x.npy"], 2, "the model has no input q"),
        (["--random-inputs", "1", "--output", "q=x.npy"], 2, "the model has no output q"),
        (["--random-inputs", "1", "--input", "y={folder}/x.npy"], 4, "input y has type float32; the array has int64"),
        (["--random-inputs", "1", "--input", "x={folder}/none.npy"], 3, "cannot read an array"),
        (["--random-inputs", "1", "--chip", "tw1"], 2, "--chip has no meaning for"),
        (["--random-inputs", "1", "--require-npu"], 2, "--require-npu has no meaning for"),
        (["--random-inputs", "one"], 2, "is not a number"),
        (["--output", "{folder}=1", "--output", "y=1"], 2, "both name 1"),
    ],
)
def test_mistakes_are_named(
    words: list[str], code: int, said: str, artifact: Path, tmp_path: Path, capsys: Capture
) -> None:
    arrays(tmp_path)
    assert main(["run", str(artifact), *(word.replace("{folder}", str(tmp_path)) for word in words)]) == code
    captured = capsys.readouterr()
    assert said in captured.err and "Traceback" not in captured.err


def test_host_kernels_can_be_refused(tmp_path: Path, capsys: Capture) -> None:
    write_model(tmp_path / "hosted.twm", models.model("{}"))
    assert main(["run", str(tmp_path / "hosted.twm"), "--no-host", "--random-inputs", "1"]) == 3
    assert "holds host kernels" in capsys.readouterr().err
