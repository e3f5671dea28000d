"""The bar is for people: on a terminal, on standard error, and gone when it is done."""

from __future__ import annotations

import importlib.util
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.cli.main import main
from compiler.cli.progress import shown
from tests.cli.onnx_models import saved

ROOT = Path(__file__).parents[2]
needs_rich = pytest.mark.skipif(importlib.util.find_spec("rich") is None, reason="rich is not installed")


def test_nothing_is_drawn_without_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with shown() as report:
        assert report is None
    assert main(["compile", str(saved(tmp_path)), "--chip", "tiny", "--no-timing"]) == 0
    assert capsys.readouterr().err == ""


def on_a_terminal(*words: str, **environ: str) -> str:
    """What a program writes to a terminal that is its standard error."""
    code = "from compiler.cli.progress import shown\nwith shown(is_wanted=WANTED) as report:\n    if report:\n"
    code += "        for at in range(4): report(at, 3, '[bold]nasty[/bold]\\x1b[2J')\n"
    ours, theirs = pty.openpty()
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "TERM": "xterm", **environ}
    script = code.replace("WANTED", str("--no-progress" not in words))
    with subprocess.Popen([sys.executable, "-c", script], stderr=theirs, cwd=ROOT, env=variables) as running:
        os.close(theirs)
        read = b""
        while select.select([ours], [], [], 60)[0]:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the terminal's other end is closed
                break
            read += piece
        assert running.wait() == 0
    os.close(ours)
    return read.decode()


@needs_rich
def test_a_terminal_shows_how_far_it_is() -> None:
    seen = on_a_terminal()
    assert "kernels" in seen and "3/3" in seen
    assert "[bold]nasty[/bold]?[2J" in seen  # names are text
    assert "\x1b[38" in seen or "\x1b[3" in seen  # in colours


@needs_rich
def test_no_color_takes_the_colours_away() -> None:
    seen = on_a_terminal(NO_COLOR="1")
    assert "3/3" in seen
    assert "\x1b[3" not in seen


@pytest.mark.parametrize(("words", "environ"), [(["--no-progress"], {}), ([], {"TERM": "dumb"})])
def test_who_does_not_want_it_gets_nothing(words: list[str], environ: dict[str, str]) -> None:
    assert on_a_terminal(*words, **environ) == ""
