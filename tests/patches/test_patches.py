"""Each patch is needed, does its job, and refuses what it was not written for."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm.script import tirx as T

import patches
from compiler.cli.main import main
from compiler.errors import UnsupportedError
from patches import PATCHES, Patch, canonicalize_loop, load
from patches.probe import is_faulty

ROOT = Path(__file__).parents[2]


def test_every_module_is_a_patch_that_is_applied() -> None:
    modules = {path.stem for path in (ROOT / "patches").glob("*.py")} - {"__init__", "probe"}
    assert modules == set(PATCHES) == set(patches.apply())


@pytest.mark.parametrize("name", PATCHES)
def test_it_says_why_and_what_to_send(name: str) -> None:
    patch = load(name)
    assert patch.why and "\n" not in patch.why
    assert patch.upstream.strip()
    assert ast.get_docstring(ast.parse((ROOT / "patches" / f"{name}.py").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", PATCHES)
def test_tvm_still_needs_it(name: str) -> None:
    """Where this fails, TVM has mended it: retire the patch."""
    assert is_faulty(name)


@pytest.mark.parametrize("name", PATCHES)
def test_it_stands_wherever_tvm_keeps_the_function(name: str) -> None:
    patches.apply()
    patch = load(name)
    for path in patch.replaces:
        module, _, attribute = path.partition(":")
        assert attrgetter(attribute)(sys.modules[module]) is patch.replacement
        assert patches.original(path) is not patch.replacement


def test_loops_run_as_often_as_they_say() -> None:
    patches.apply()
    assert canonicalize_loop.counted() == list(range(9))


def test_types_are_written_and_read_again() -> None:
    patches.apply()
    function = canonicalize_loop.triangle()
    tvm.ir.assert_structural_equal(tvm.ir.load_json(tvm.ir.save_json(function)), function)


@pytest.mark.parametrize("held", [[], [1], [tvm.tirx.Var("i", "int32"), "text", [1, 2]]])
def test_loops_over_arrays_go_over_what_these_hold(held: list[Any]) -> None:
    patches.apply()
    array = tvm.runtime.convert(held)
    by_index = [array[index] for index in range(len(array))]
    assert list(array) == list(patches.original("tvm_ffi:Array.__iter__")(array)) == by_index
    assert [*zip(array, by_index, strict=True)] == [*zip(by_index, by_index, strict=True)]


def test_loops_that_tvm_gets_right_stay_as_it_has_them() -> None:
    patches.apply()
    original = patches.original("tvm.s_tir.transform:CanonicalizeLoop")

    @T.prim_func(private=True)
    def strided(y: T.Buffer((40,), "int32")):
        for i in range(3, 30, 4):
            for j in range(5):
                y[i + j] = i

    module = tvm.IRModule({"main": strided})
    tvm.ir.assert_structural_equal(canonicalize_loop.canonicalize_loop()(module), original()(module), True)


def misfitting(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> Patch:
    wrong = replace(load("save_json"), **changed)
    monkeypatch.setattr(patches, "load", lambda name: wrong if name == "save_json" else load(name))
    return wrong


@pytest.mark.parametrize(
    ("fits", "said"),
    [({"0.1": ""}, "it was written for TVM 0.1; this is"), ({tvm.__version__: "0" * 64}, "is not what it replaces")],
)
def test_another_tvm_is_refused(fits: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    misfitting(monkeypatch, fits=fits)
    with pytest.raises(UnsupportedError, match=f"patch save_json does not fit: .*{said}") as caught:
        patches.apply.__wrapped__()
    assert caught.value.problems[0].code == "TW0060"


def test_the_doctor_lists_their_state(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert all(f"patch {name}" in said for name in PATCHES)
    misfitting(monkeypatch, fits={"0.1": ""})
    assert main(["doctor"]) == 5
    assert "FAULT: it was written for TVM 0.1" in capsys.readouterr().out


def test_nothing_imports_tvm_before_it_is_needed() -> None:
    code = "import sys, patches; assert 'tvm' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
