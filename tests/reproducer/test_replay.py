"""A bundle may come from anyone: what it says is checked before anything is written or run."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import pytest

from compiler.cli.main import main
from compiler.errors import InputError
from compiler.reproducer.replay import unpack

Capture = pytest.CaptureFixture[str]


def bundle(folder: Path, files: dict[str, bytes] | None = None, **changed: Any) -> str:
    index = {
        **{"format": 1, "arguments": ["isa", "halt"], "error": "ValueError: x", "where": [], "notes": []},
        **{"versions": {"tilewright": "0"}, "traceback": ""},
    }
    path = folder / "bundle.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("bundle.json", json.dumps(index | changed))
        for name, content in (files or {}).items():
            archive.writestr(name, content)
    return str(path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", "/etc/passwd"],
        ["compile", "m.onnx", "-o", "../x.twm"],
        ["compile", "m.onnx", "-o/tmp/x.twm"],
        ["run", "m.twm", "--output", "y=/tmp/x.npy"],
        ["run", "m.twm", "--html=/tmp/x.html"],
        ["replay", "other.zip"],
    ],
)
def test_a_command_reaches_nothing_outside(arguments: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert main(["replay", bundle(tmp_path, arguments=arguments)]) in (2, 3)
    assert "TW0050" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../x", "/x", "files/0/../../x", "files/0/.x", "x", "out/x", "files/0/a/b"])
def test_files_of_other_names_are_refused(name: str, tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "kept"
    assert main(["replay", bundle(tmp_path, {name: b"x"}), "--keep", str(target)]) == 3
    assert "TW0050" in capsys.readouterr().err
    assert [path for path in target.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "changed",
    [{"format": 2}, {"arguments": 3}, {"arguments": [3]}, {"versions": []}, {"error": None}, {"where": [["x"]]}],
)
def test_an_index_of_another_form(changed: dict[str, Any], tmp_path: Path, capsys: Capture) -> None:
    assert main(["replay", bundle(tmp_path, **changed)]) == 3
    assert "TW0050" in capsys.readouterr().err


def test_what_is_no_bundle(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"no zip")
    assert main(["replay", str(path)]) == 3
    with zipfile.ZipFile(path, "w"):
        pass
    assert main(["replay", str(path)]) == 3
    assert capsys.readouterr().err.count("TW0050") == 2
    assert main(["replay", str(tmp_path / "none.zip")]) == 3


def test_code_is_run_only_where_it_is_trusted(tmp_path: Path, capsys: Capture) -> None:
    path = bundle(tmp_path, {"files/0/ops.py": b""}, arguments=["isa", "files/0/ops.py"])
    assert main(["replay", path]) == 2
    assert "TW0051" in capsys.readouterr().err
    for words in (["compile", "m.onnx", "--ops", "files/0"], ["compile", "m.onnx", "--ops=files/0"]):
        assert main(["replay", bundle(tmp_path, {"files/0/__init__.py": b""}, arguments=words)]) == 2
        assert "TW0051" in capsys.readouterr().err
    path = bundle(tmp_path, {"files/0/ops.py": b""}, arguments=["isa", "files/0/ops.py"])
    assert main(["replay", path, "--trust"]) == 2  # `isa` knows no such instruction: it was run
    assert "there is no instruction" in capsys.readouterr().out


def test_show_runs_nothing(tmp_path: Path, capsys: Capture) -> None:
    assert main(["replay", bundle(tmp_path, arguments=["exec", "files/0/gone.twm"]), "--show"]) == 0
    assert "recorded  ValueError: x" in capsys.readouterr().out


def test_a_folder_that_exists_is_not_written_to(tmp_path: Path, capsys: Capture) -> None:
    assert main(["replay", bundle(tmp_path), "--keep", str(tmp_path)]) == 2
    assert "it exists already" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(4))
def test_damage_ends_in_an_error_that_says_so(seed: int, tmp_path: Path) -> None:
    """Bytes are changed, or cut off: what can still be unpacked is, and all else is refused."""
    source = Random(seed)
    path = tmp_path / "damaged.zip"
    compressed = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
    with compressed as archive:
        for entry in ("bundle.json", "files/0/m.onnx", "files/1/n.bin"):
            content = Path(bundle(tmp_path)).read_bytes() * 3
            if entry == "bundle.json":
                with zipfile.ZipFile(tmp_path / "bundle.zip") as whole:
                    content = whole.read(entry)
            archive.writestr(entry, content)
    whole_bytes = path.read_bytes()
    for trial in range(150):
        damaged = bytearray(whole_bytes[: source.randrange(len(whole_bytes)) if trial % 5 == 0 else None])
        for _ in range(source.choice((1, 1, 4, 20))):
            if damaged:
                damaged[source.randrange(len(damaged))] = source.choice((0, 1, 127, 128, 255, source.randrange(256)))
        path.write_bytes(damaged)
        folder = tmp_path / f"{trial}"
        folder.mkdir()
        try:
            unpack(str(path), folder)
        except InputError as error:
            assert error.problems[0].code == "TW0050"
        assert {file.relative_to(folder).parts[0] for file in folder.rglob("*")} <= {"files", "out"}
