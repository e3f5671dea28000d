"""Operators of a person's own: where they come from, and what is said of mistakes in them."""

from __future__ import annotations

import importlib.metadata
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.errors import InputError, InvalidError, TilewrightError
from compiler.operators import find, load_operators, loading, registry
from tests.operators.evaluate import evaluate

pytestmark = pytest.mark.usefixtures("forget_operators")
SQUARE = """
    from tvm import te
    from compiler import operator

    @operator("com.example::Square", schedule="elementwise")
    def square(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x(*i) * x(*i), "square")
"""


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return path


def refusal(path: Path | str) -> tuple[TilewrightError, Any]:
    with pytest.raises(TilewrightError) as caught:
        load_operators([path])
    return caught.value, caught.value.problems[0]


def test_a_file(tmp_path: Path) -> None:
    load_operators(written(tmp_path / "mine.py", SQUARE))
    np.testing.assert_array_equal(evaluate("com.example::Square", np.float32([1, -3])), [1, 9])


def test_a_package_imports_its_own_files(tmp_path: Path) -> None:
    written(tmp_path / "mine/square.py", SQUARE)
    written(tmp_path / "mine/__init__.py", "from . import square\n")
    load_operators([tmp_path / "mine"])
    assert find("com.example", "Square") is not None


def test_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "my_square_module.py", SQUARE)
    monkeypatch.syspath_prepend(tmp_path)
    load_operators("my_square_module")
    assert find("com.example", "Square") is not None


def test_an_entry_point_is_loaded_when_a_model_asks_for_its_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "installed_square.py", SQUARE)
    written(tmp_path / "square-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: square\nVersion: 1\n")
    written(tmp_path / "square-1.dist-info/entry_points.txt", "[tilewright.operators]\nsquare = installed_square\n")
    monkeypatch.syspath_prepend(tmp_path)
    loading.load_entry_points.cache_clear()
    assert find("", "Nothing") is None and "Square" not in {one.name for one in registry.declared()}
    assert find("com.example", "Square") is not None
    loading.load_entry_points.cache_clear()


def test_a_broken_entry_point_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("broken", "no_such_module_here", loading.ENTRY_POINTS)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    loading.load_entry_points.cache_clear()
    with pytest.raises(InvalidError, match=r"TW2125.*entry point 'broken'"):
        find("com.example", "Square")
    loading.load_entry_points.cache_clear()


def test_a_file_that_has_changed_is_loaded_again(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.py", SQUARE)
    load_operators(file)
    first = find("com.example", "Square")
    load_operators(file)
    assert find("com.example", "Square") is first
    written(file, "# one line more\n" + textwrap.dedent(SQUARE).replace("x(*i) * x(*i)", "x(*i) + x(*i)"))
    load_operators(file)
    np.testing.assert_array_equal(evaluate("com.example::Square", np.float32([1, -3])), [2, -6])


def test_a_missing_file(tmp_path: Path) -> None:
    for source in (tmp_path / "none.py", tmp_path, "no_such_module_here", written(tmp_path / "mine.txt", "")):
        error, problem = refusal(source)
        assert isinstance(error, InputError) and problem.code == "TW2123"


def test_a_syntax_error_has_its_line(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.py", "x = 1\ndef f(:\n    pass\n")
    error, problem = refusal(file)
    assert isinstance(error, InvalidError) and problem.code == "TW2124"
    assert str(problem.place).startswith(f"{file}:2:") and problem.place.source == "def f(:"


def test_what_a_file_raises_has_its_line(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.py", "x = 1\nprint(x / 0)\n")
    _, problem = refusal(file)
    assert problem.code == "TW2125" and str(problem.place) == f"{file}:2" and "ZeroDivisionError" in problem.message
    _, problem = refusal(written(file, "import sys\nsys.exit(3)\n"))
    assert problem.code == "TW2125"
    _, problem = refusal(written(file, "import a_file_beside_this_one\n"))
    assert problem.code == "TW2125" and "a package" in problem.hint


def test_a_file_without_operators(tmp_path: Path) -> None:
    _, problem = refusal(written(tmp_path / "mine.py", "x = 1\n"))
    assert problem.code == "TW2126" and "new-op" in problem.hint


@pytest.mark.parametrize(
    "decorator, message",
    [
        ("@operator", "is called with the operator's name"),
        ("@operator()", "needs a name"),
        ('@operator("my::Op")', "needs a schedule"),
        ('@operator("my::Op", schedule="magic")', "schedule 'magic' is none of elementwise, reduction"),
        ('@operator("no name", schedule="elementwise")', "is no name of an operator"),
        ('@operator("my::Op", schedule="elementwise")\n@property', "is a plain function"),
    ],
)
def test_a_decorator_used_wrongly_is_shown_with_its_line(tmp_path: Path, decorator: str, message: str) -> None:
    head = "from tvm import te\nfrom compiler import operator\n"
    body = 'def op(x: te.Tensor) -> te.Tensor:\n    return te.compute(x.shape, lambda *i: x(*i) * x(*i), "op")\n'
    file = written(tmp_path / "mine.py", f"{head}{decorator}\n{body}")
    _, problem = refusal(file)
    assert problem.code == "TW2120" and message in problem.message
    assert problem.place.file == str(file) and problem.place.line in (3, 4)


def test_nothing_of_a_file_with_a_mistake_stays_declared(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.py", textwrap.dedent(SQUARE) + "\nundefined\n")
    _, problem = refusal(file)
    assert "NameError" in problem.message and find("com.example", "Square") is None


def test_a_name_that_is_taken_names_both_places(tmp_path: Path) -> None:
    load_operators(written(tmp_path / "one.py", SQUARE))
    _, problem = refusal(written(tmp_path / "two.py", SQUARE))
    assert problem.code == "TW2121" and "one.py:" in problem.message and "two.py:" in problem.message
    assert find("com.example", "Square").function.__code__.co_filename.endswith("one.py")  # type: ignore[union-attr]
    _, problem = refusal(written(tmp_path / "three.py", SQUARE.replace("com.example::Square", "Relu")))
    assert problem.code == "TW2121"
