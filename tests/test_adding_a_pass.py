"""Follows docs/adding-a-pass.md: writes its files into a copy of the project, and runs what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/adding-a-pass.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with the pass in it, as the page says."""
    folder = tmp_path_factory.mktemp("project")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("compiler", "passes", "patches", "tests/passes"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "tests/__init__.py", "tests/test_pipeline.py", "tests/conftest.py"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "docs/examples", folder / "docs/examples")
    for language, path, text in BLOCKS:
        if language == "python":
            assert not (folder / path).exists()
            (folder / path).write_text(text, encoding="utf-8")
    (inserted,) = (text for _, path, text in BLOCKS if path == "compiler/pipeline.py")
    line, there = inserted.splitlines(keepends=True)
    pipeline = folder / "compiler/pipeline.py"
    source = pipeline.read_text(encoding="utf-8")
    assert source.count(there) == 1
    importing = "    from passes.tir.double_buffer import DoubleBuffer\n"
    assert source.count(importing) == 1
    source = source.replace(there, line + there)
    source = source.replace(importing, importing + "    from passes.tir.drop_self_copies import DropSelfCopies\n")
    pipeline.write_text(source, encoding="utf-8")
    return folder


def run(project: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(project), "TILEWRIGHT_CACHE": str(project / "cache")}
    done = subprocess.run(
        [sys.executable, *words], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_its_tests_and_those_of_the_pipeline_pass(project: Path) -> None:
    said = run(
        project,
        *("-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("tests/passes/tir/test_drop_self_copies.py", "tests/test_pipeline.py"),
    )
    assert " passed" in said and "failed" not in said


@pytest.mark.slow  # the copy compiles the simulator and cost functions for itself
def test_the_commands_shown_know_the_pass(project: Path) -> None:
    (shown,) = (text for language, path, text in BLOCKS if language == "text" and not path)
    commands = [line.split()[1:] for line in shown.splitlines()]
    assert len(commands) == 3
    for words in commands:
        said = run(project, "-m", "compiler.cli.main", *words)
        if "--time-passes" in words:
            assert re.search(r"^drop-self-copies +\d", said, re.MULTILINE)
        if "--stop-after" in words:
            assert "after drop-self-copies" in said


def test_the_page_says_what_style_asks_for() -> None:
    files = [path for language, path, _ in BLOCKS if language == "python"]
    assert files == ["passes/tir/drop_self_copies.py", "tests/passes/tir/test_drop_self_copies.py"]
    assert all(len(line) <= 120 for _, _, text in BLOCKS for line in text.splitlines())
