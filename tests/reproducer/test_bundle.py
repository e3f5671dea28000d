"""An internal error leaves a bundle behind, and the bundle repeats the error."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import onnx
import pytest

from compiler.cli.main import main
from compiler.reproducer.bundle import Bundle
from passes.tir.emit_instructions import EmitInstructions
from tests.cli.onnx_models import perceptron, saved

Capture = pytest.CaptureFixture[str]


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in one pass."""

    def broken(self: Any, subject: Any, chip: Any) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(EmitInstructions, "run", broken)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where bundles go; and a cache of kernels that knows nothing."""
    (tmp_path / "bundles").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "bundles"))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def failed(folder: Path, capsys: Capture, *words: str) -> tuple[Path, str]:
    """The bundle of a command that fails, and what the command said."""
    path = saved(folder / "work")
    capsys.readouterr()
    assert main(["compile", str(path), "--chip", "tiny", "-o", str(folder / "x.twm"), *words]) == 70
    said = capsys.readouterr().err
    (bundle,) = (folder / "bundles").glob("tilewright-internal-*.zip")
    return bundle, said


def index(bundle: Path) -> dict[str, Any]:
    with zipfile.ZipFile(bundle) as archive:
        found = json.loads(archive.read("bundle.json"))
    assert isinstance(found, dict)
    return found


def test_a_planted_bug_is_reported_and_replayed(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with monkeypatch.context() as planted:
        plant(planted)
        bundle, said = failed(folder, capsys)
        assert "error[TW0070]: internal: ZeroDivisionError: planted" in said and "Traceback" not in said
        assert re.search(r"where: in pass emit-instructions, kernel \S*product_node", said)
        command = re.search(r"replay: tilewright (replay \S+\.zip)\n", said)
        assert command is not None
        shutil.rmtree(folder / "work")  # what is in the bundle must do
        assert main(command[1].split()) == 70
        captured = capsys.readouterr()
        assert "now       the same" in captured.out
        assert "ZeroDivisionError: planted" in captured.err
    assert main(["replay", str(bundle)]) == 0  # without the bug
    assert "now       it ends with 0, and no error" in capsys.readouterr().out
    assert sorted(path.name for path in (folder / "bundles").iterdir()) == [bundle.name]  # nothing else was left
    assert not (folder / "x.twm").exists()


def test_it_has_what_a_person_needs_to_know(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    plant(monkeypatch)
    bundle, _ = failed(folder, capsys)
    found = index(bundle)
    assert found["arguments"] == [
        "compile",
        "files/0/perceptron.onnx",
        "--chip",
        "files/1/tiny.toml",
        "-o",
        "out/x.twm",
    ]
    assert found["error"] == "ZeroDivisionError: planted"
    assert found["where"] == [found["where"][0]] and "emit-instructions" in found["where"][0]
    assert "emit_instructions" in found["traceback"] or "broken" in found["traceback"]
    assert {"tilewright", "apache-tvm", "instruction table", "chip tiny"} <= set(found["versions"])
    assert str(folder) not in json.dumps({**found, "traceback": ""})
    with zipfile.ZipFile(bundle) as archive:
        model = onnx.load_model_from_string(archive.read("files/0/perceptron.onnx"))
    assert model == perceptron()


def test_weights_are_left_out_on_request(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    plant(monkeypatch)
    bundle, said = failed(folder, capsys, "--reproducer", "structure")
    assert "perceptron.onnx has made-up weights" in said
    with zipfile.ZipFile(bundle) as archive:
        model = onnx.load_model_from_string(archive.read("files/0/perceptron.onnx"))
    assert model.graph.initializer[0] != perceptron().graph.initializer[0]
    assert main(["replay", str(bundle)]) == 70
    assert "now       the same" in capsys.readouterr().out


def test_nothing_is_written_on_request(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    plant(monkeypatch)
    assert main(["compile", str(saved(folder / "work")), "--chip", "tiny", "--reproducer=none"]) == 70
    assert list((folder / "bundles").iterdir()) == []
    assert "replay: cd " in capsys.readouterr().err


def test_an_internal_error_answers_in_json(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    plant(monkeypatch)
    assert main(["compile", str(saved(folder / "work")), "--chip", "tiny", "--json"]) == 70
    found = json.loads(capsys.readouterr().out)
    assert (found["exit_code"], found["problems"][0]["code"]) == (70, "TW0070")


def test_every_path_of_a_command_is_rewritten(folder: Path) -> None:
    array, chip = folder / "x y.npy", folder / "my.toml"
    array.write_bytes(b"array")
    chip.write_bytes(b"chip")
    bundle = Bundle("full")
    words = ["run", "gone.twm", "--input", f"a=b={array}", f"--chip={chip}", "--output", f"y={folder / 'o.npy'}"]
    bundle.add([*words, "/absolute/gone", "--html=/tmp/r.html", "--chip", "tw9", "--dim", "n=3"])
    assert bundle.arguments == [
        *("run", "gone.twm", "--input", "a=b=files/0/x_y.npy", "--chip=files/1/my.toml"),
        *("--output", "y=out/o.npy", "missing/gone", "--html=out/r.html", "--chip", "tw9", "--dim", "n=3"),
    ]
    assert bundle.files == {"files/0/x_y.npy": array, "files/1/my.toml": chip}


def test_a_command_that_cannot_be_replayed_elsewhere_is_replayed_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert main(["compile", str(saved(folder / "work")), "--chip", "tiny"]) == 70
    said = capsys.readouterr().err
    assert "reproducer: not written" in said and "replay: cd " in said
