"""External data is read from below the model's folder or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from compiler.errors import InputError, LimitError, TilewrightError
from compiler.frontend import Limits, import_model, load_model
from compiler.frontend.external_data import ExternalFiles, Location
from tests.frontend.models import model, node

WEIGHTS = np.array([1.5, -2.5], np.float32)


def with_external(**entries: str) -> onnx.ModelProto:
    made = model([node("Add", "x w", "y", name="sum")], {"x": [2]}, ["y"])
    tensor = TensorProto(name="w", dims=[2], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    made.graph.initializer.append(tensor)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with good data in it, and a secret beside it."""
    (tmp_path / "secret").write_bytes(WEIGHTS.tobytes())
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    for name in ("w.bin", "sub/w.bin"):
        (inside / name).write_bytes(bytes(4) + WEIGHTS.tobytes())
    return inside


def listing(root: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in root.rglob("*"))


def loaded(folder: Path, **entries: str) -> np.ndarray:
    (folder / "m.onnx").write_bytes(with_external(**entries).SerializeToString())
    before = listing(folder.parent)
    try:
        return load_model(folder / "m.onnx").initializers["w"]
    finally:
        assert listing(folder.parent) == before, "reading a model changed a file"


@pytest.mark.parametrize("location", ["w.bin", "./w.bin", "sub/w.bin", "sub//w.bin"])
def test_reads_data_beside_the_model(folder: Path, location: str) -> None:
    np.testing.assert_array_equal(loaded(folder, location=location, offset="4", length="8"), WEIGHTS)


def test_data_reaches_the_module_and_the_hash(folder: Path) -> None:
    first = with_external(location="w.bin", offset="4")
    (folder / "m.onnx").write_bytes(first.SerializeToString())
    imported = import_model(folder / "m.onnx")
    np.testing.assert_array_equal(imported.constants["w"], WEIGHTS)
    (folder / "w.bin").write_bytes(bytes(12))
    assert import_model(folder / "m.onnx").source_sha256 != imported.source_sha256


@pytest.mark.parametrize(
    ("entries", "code", "text"),
    [
        ({"location": "../secret"}, "TW2011", "leaves the folder"),
        ({"location": "sub/../../secret"}, "TW2011", "leaves the folder"),
        ({"location": "/etc/passwd"}, "TW2011", "absolute"),
        ({"location": "C:\\secret"}, "TW2011", "portable"),
        ({"location": "..\\secret"}, "TW2011", "portable"),
        ({"location": "w\0.bin"}, "TW2011", "portable"),
        ({"location": "C:secret"}, "TW2011", "absolute"),
        ({"location": ""}, "TW2011", "no location"),
        ({"location": "."}, "TW2011", "names no file"),
        ({"location": "a/" * 40 + "w"}, "TW2011", "names no file"),
        ({}, "TW2011", "no location"),
        ({"location": "w.bin", "offset": "-4"}, "TW2011", "offset must be"),
        ({"location": "w.bin", "length": "-8"}, "TW2011", "length must be"),
        ({"location": "w.bin", "offset": "0x4"}, "TW2011", "offset must be"),
        ({"location": "w.bin", "offset": "٤"}, "TW2011", "offset must be"),
        ({"location": "w.bin", "offset": "9" * 5000}, "TW2011", "offset must be"),
        ({"location": "w.bin", "loader": "pickle"}, "TW2011", "unknown key 'loader'"),
        ({"location": "missing.bin"}, "TW2012", "no such file"),
        ({"location": "sub"}, "TW2013", "not a regular file"),
        ({"location": "w.bin/w.bin"}, "TW2013", "is no folder"),
        ({"location": "w.bin", "offset": "8"}, "TW2014", "past its end"),
        ({"location": "w.bin", "offset": str(1 << 62)}, "TW2014", "past its end"),
        ({"location": "w.bin", "length": str(1 << 62)}, "TW2014", "length is"),
        ({"location": "w.bin", "length": "4"}, "TW2014", "length is 4"),
    ],
)
def test_refuses(folder: Path, entries: dict[str, str], code: str, text: str) -> None:
    with pytest.raises(InputError) as raised:
        loaded(folder, **entries)
    assert [problem.code for problem in raised.value.problems] == [code]
    assert "initializer 'w'" in str(raised.value)
    assert text in str(raised.value)


def test_a_key_twice_is_refused(folder: Path) -> None:
    made = with_external(location="w.bin", offset="4")
    made.graph.initializer[0].external_data.add(key="location", value="sub/w.bin")
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(InputError, match="given twice"):
        load_model(folder / "m.onnx")


def test_links_are_not_followed(folder: Path) -> None:
    (folder / "link.bin").symlink_to("../secret")
    (folder / "near.bin").symlink_to("w.bin")
    (folder / "linked").symlink_to("sub", target_is_directory=True)
    (folder / "up").symlink_to("..", target_is_directory=True)
    for location in ("link.bin", "near.bin", "linked/w.bin", "up/secret"):
        with pytest.raises(InputError, match="TW2013"):
            loaded(folder, location=location)


def test_hard_links_are_refused(folder: Path) -> None:
    os.link(folder.parent / "secret", folder / "hard.bin")
    with pytest.raises(InputError, match="more than one name"):
        loaded(folder, location="hard.bin")


def test_a_pipe_is_refused_without_waiting(folder: Path) -> None:
    os.mkfifo(folder / "pipe.bin")
    with pytest.raises(InputError, match="not a regular file"):
        loaded(folder, location="pipe.bin")


def test_a_huge_file_is_refused(folder: Path) -> None:
    (folder / "m.onnx").write_bytes(with_external(location="w.bin", offset="4").SerializeToString())
    os.truncate(folder / "w.bin", 1 << 40)  # a hole: it takes no room
    with pytest.raises(TilewrightError) as raised:
        load_model(folder / "m.onnx")
    assert raised.value.problems[0].code == "TW2013"


def test_what_was_checked_is_what_is_read(folder: Path) -> None:
    """The file is opened and checked once; exchanging it for a link afterwards changes nothing."""
    with ExternalFiles(str(folder), 1 << 20) as files:
        location = Location("w.bin", 4, 8)
        files.read(location, 8)
        (folder / "w.bin").unlink()
        (folder / "w.bin").symlink_to("../secret")
        assert files.read(location, 8).tobytes() == WEIGHTS.tobytes()


def test_a_file_that_shrinks_is_an_error(folder: Path) -> None:
    with ExternalFiles(str(folder), 1 << 20) as files:
        files.read(Location("w.bin", 4, 8), 8)
        os.truncate(folder / "w.bin", 8)
        with pytest.raises(InputError, match="shorter"):
            files.read(Location("w.bin", 4, 8), 8)


def test_the_model_itself_has_a_limit(folder: Path) -> None:
    (folder / "m.onnx").write_bytes(bytes(2000))
    with pytest.raises(LimitError, match="TW2002"):
        load_model(folder / "m.onnx", limits=Limits(file_bytes=1000))


@pytest.mark.parametrize("name", [".", "missing.onnx"])
def test_what_is_no_file_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(InputError):
        load_model(folder / name)
