"""``tilewright cache``, through the command's own entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compiler.cli.main import main
from compiler.kernel_cache import KernelCache
from tests.cli.onnx_models import saved

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(saved(tmp_path))


def test_status_counts_and_clear_says_what_it_freed(folder: Path, model: str, capsys: Capture) -> None:
    assert main(["cache", "status"]) == 0
    assert capsys.readouterr().out == f"{folder}: 0 entries, 0 B\n"
    assert main(["compile", model, "--chip", "tiny"]) == 0
    count, size = len(list(folder.iterdir())), KernelCache(folder).size_bytes()
    assert count > 0
    capsys.readouterr()
    assert main(["cache", "status", "--json"]) == 0
    expected = {"schema_version": 1, "verb": "cache", "folder": str(folder), "entries": count, "bytes": size}
    expected["unusable"] = ""
    assert json.loads(capsys.readouterr().out) == expected
    assert main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema_version": 1,
        "verb": "cache",
        "folder": str(folder),
        "removed_entries": count,
        "freed_bytes": size,
    }
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"{folder}: removed 0 entries, 0 B\n"


def test_a_folder_in_which_nothing_can_be_kept_is_told_of(
    folder: Path, model: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_text("no folder")
    for inside in ("", "/inside"):
        monkeypatch.setenv("TILEWRIGHT_CACHE", f"{folder}{inside}")
        why = f"{folder} is no folder" if inside else "it is no folder"
        assert main(["cache", "status"]) == 0
        assert f"nothing can be kept there: {why}; TILEWRIGHT_CACHE names" in capsys.readouterr().out
        assert main(["compile", model, "--chip", "tiny"]) == 0
        assert f"note: kernels are not kept in {folder}{inside}: {why}\n" in capsys.readouterr().err
    assert main(["compile", model, "--chip", "tiny", "--no-cache"]) == 0
    assert "not kept" not in capsys.readouterr().err
    assert folder.read_text() == "no folder"


def reasons(capsys: Capture, *words: str) -> set[str]:
    capsys.readouterr()
    assert main(["cache", "why", *words, "--json"]) == 0
    return {kernel["why_not"] for kernel in json.loads(capsys.readouterr().out)["kernels"]}


def test_why_compiles_nothing_and_says_what_was_different(folder: Path, model: str, capsys: Capture) -> None:
    assert reasons(capsys, model, "--chip", "tiny") == {"never compiled before"}
    assert not folder.exists()
    assert main(["compile", model, "--chip", "tiny"]) == 0
    assert reasons(capsys, model, "--chip", "tiny") == {""}
    assert reasons(capsys, model, "--chip", "tw1") == {"known, but with another chip"}
    assert reasons(capsys, model, "--chip", "tiny", "--precision", "fp16") == {"never compiled before"}
    for path in folder.iterdir():
        path.write_text("{}")
    assert {reason[:26] for reason in reasons(capsys, model, "--chip", "tiny")} == {"its entry cannot be used: "}
    assert main(["compile", model, "--chip", "tiny"]) == 0
    assert main(["cache", "why", model, "--chip", "tiny"]) == 0
    out = capsys.readouterr().out
    assert "in the cache?" in out and " yes\n" in out and "product_node" in out
    assert "known" not in out


def test_a_compilation_without_the_cache_leaves_none(folder: Path, model: str) -> None:
    assert main(["compile", model, "--chip", "tiny", "--no-cache"]) == 0
    assert not folder.exists()


def test_a_cached_compilation_gives_the_same_artifact(folder: Path, model: str, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.twm", "b.twm", "c.twm")]
    for file, words in zip(files, ([], [], ["--no-cache"]), strict=True):
        assert main(["compile", model, "--chip", "tiny", "-o", str(file), *words]) == 0
    assert len({file.read_bytes() for file in files}) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["why"], "`why` needs a MODEL"),
        (["clear", "x.onnx"], "`clear` takes no MODEL"),
        (["status", "--chip", "tiny"], "`status` is about all kernels"),
        (["delete"], "argument action: invalid choice: 'delete'"),
    ],
)
def test_wrong_usage(folder: Path, capsys: Capture, words: list[str], said: str) -> None:
    assert main(["cache", *words]) == 2
    assert said in capsys.readouterr().err
