"""Follows docs/adding-an-instruction.md: puts its row and oracle into a copy of the project, and runs what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/adding-an-instruction.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# What a row and an oracle go in front of.
ENDS = {
    "compiler/isa/table/vector_unary.py": "]  # fmt: skip\n",
    "tests/isa/table/test_vector_elementwise.py": '    "vneg": ',
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in which nothing but the table and its test is changed."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("compiler", "passes", "patches", "tests/isa"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py"):
        shutil.copy(ROOT / name, folder / name)
    for language, path, text in BLOCKS:
        if path in ENDS:
            source = (folder / path).read_text(encoding="utf-8")
            assert source.count(ENDS[path]) == 1
            (folder / path).write_text(source.replace(ENDS[path], text + ENDS[path]), encoding="utf-8")
        elif language == "python":
            (folder / path).write_text(text, encoding="utf-8")
    return folder


def run(project: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(project), "TILEWRIGHT_CACHE": str(project / "cache")}
    done = subprocess.run(
        [sys.executable, *words], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands() -> list[list[str]]:
    (shown,) = (text for language, path, text in BLOCKS if language == "text" and not path)
    return [line.split()[1:] for line in shown.splitlines()]


@pytest.mark.slow  # as below
def test_the_compiler_chooses_it_for_what_it_computes(project: Path) -> None:
    said = {words[0]: run(project, "-m", "compiler.cli.main", *words) for words in commands() if words[0] != "op-test"}
    assert "max(a, 0) squared" in said["isa"]
    assert "vrelusq.fp16" in said["disasm"] and "vrelu." not in said["disasm"]


@pytest.mark.slow  # the copy compiles the simulator and cost functions for itself
def test_its_row_is_tested_with_all_others_and_the_operator_is_right(project: Path) -> None:
    words = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/isa/table/test_vector_elementwise.py",
        "-k",
        "vrelusq",
    )
    assert " passed" in run(project, *words)
    (op_test,) = (words for words in commands() if words[0] == "op-test")
    assert "3 cases: 3 ok" in run(project, "-m", "compiler.cli.main", *op_test)


def test_the_tests_of_the_table_miss_an_oracle_for_a_new_row() -> None:
    source = (ROOT / "tests/isa/table/test_vector_elementwise.py").read_text(encoding="utf-8")
    assert "vrelusq" not in source and "UNARY" in source
