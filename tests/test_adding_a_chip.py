"""Follows docs/adding-a-chip.md: makes its file of the one it starts from, and runs what it says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from compiler.cli.main import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/adding-a-chip.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("forget_operators", "as_planned")
def test_a_chip_is_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "docs/examples", "docs/examples")
    (start,) = re.findall(r"`(compiler/target/chips/\w+\.toml)`", PAGE)
    text = (ROOT / start).read_text(encoding="utf-8")
    ((_, name, changed),) = (block for block in BLOCKS if block[0] == "toml")
    for line in changed.splitlines():
        key, _, value = line.partition(" = ")
        text, count = re.subn(rf"^{key} = [^#\n]*", f"{key} = {value} ", text, flags=re.MULTILINE)
        assert count == 1, key
    Path(name).write_text(text, encoding="utf-8")
    assert main(["new-op", "My"]) == 0
    (shown,) = (block[2] for block in BLOCKS if block[0] == "text")
    for command in shown.splitlines():
        assert main(shlex.split(command)[1:]) == 0, (command, capsys.readouterr().err)
    assert "on quad: equal to onnxruntime's" in capsys.readouterr().out
