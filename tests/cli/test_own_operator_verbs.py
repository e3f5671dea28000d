"""``new-op``, ``compile-op`` and ``op-test``: an operator of one's own alone, from nothing to a table of shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import compiler
from compiler.cli.main import main
from compiler.operators import TensorType, find_called
from compiler.operators.sweep import QUICK, Given, cases
from compiler.report import operator_test

Capture = pytest.CaptureFixture[str]
HEAD = """\
import numpy as np
from tvm import te, tirx

from compiler import Constant, composition, operator
from compiler.operators import Value

"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget_operators: None, as_planned: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))


def written(text: str) -> str:
    Path("my_ops.py").write_text(HEAD + text, encoding="utf-8")
    return "my_ops.py"


def answer(capsys: Capture, *words: str, code: int = 0) -> dict[str, Any]:
    assert main([*words, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


# ---- new-op


def test_what_new_op_writes_passes_as_it_is(capsys: Capture) -> None:
    assert answer(capsys, "new-op", "SoftClip")["files"] == ["soft_clip_op.py", "test_soft_clip_op.py"]
    found = answer(capsys, "op-test", "soft_clip_op.py", "--quick", "--chip", "tiny")
    assert found["right"] and {one["verdict"] for one in found["cases"]} == {"ok"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_soft_clip_op.py"]
    environment = {"PYTHONPATH": str(Path(compiler.__file__).parents[1]), "TILEWRIGHT_CACHE": "cache"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_new_op_writes_over_nothing_unasked(capsys: Capture) -> None:
    assert main(["new-op", "my.ops::Scale"]) == 0
    assert 'operator("my.ops::Scale"' in Path("scale_op.py").read_text(encoding="utf-8")
    assert main(["new-op", "Scale"]) == 3
    assert main(["new-op", "Scale", "--force"]) == 0
    assert main(["new-op", "no name"]) == 2
    assert main(["new-op", "Lambda"]) == 2
    assert "LambdaOp" in capsys.readouterr().err


# ---- compile-op


SCALED = """
@operator("com.example::Scaled", schedule="elementwise")
def scaled(
    x: te.Tensor, axes: Constant | None = None, *, by: float, flip: bool = False, pads: tuple[int, ...] = ()
) -> te.Tensor:
    sign = -1 if flip else 1
    return te.compute(x.shape, lambda *i: x(*i) * tirx.const(sign * by + sum(pads), x.dtype), "scaled")


@operator("com.example::Wide", schedule="elementwise")
def wide(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i).astype("int64"), "wide")
"""


def test_compile_op_makes_an_artifact(capsys: Capture) -> None:
    file = written(SCALED)
    words = ["com.example::Scaled", "--ops", file, "--input", "x=float32[37, 53]", "--chip", "tiny", "--require-npu"]
    options = ["--attribute", "by=0.5", "--attribute", "flip=true", "--attribute", "pads=1,2", "--constant", "axes=0,1"]
    assert answer(capsys, "compile-op", *words, *options)["artifact"] == "Scaled.twm"
    x = np.arange(37 * 53, dtype=np.float32).reshape(37, 53)
    (result,) = compiler.load("Scaled.twm").run({"x": x}).values()
    np.testing.assert_allclose(result, x * 2.5)


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["com.example::Nothing"], 5, "TW2122"),
        (["com.example::Scaled", "--input", "x=float32"], 2, "is no type of a tensor"),
        (["com.example::Scaled", "--input", "x=float12[3]"], 2, "the chips have no elements of 'float12'"),
        (["com.example::Scaled", "--input", "x=int8[3000000000]"], 4, "more elements than the limit"),
        (["com.example::Scaled", "--input", f"x=int8[{10**22}]"], 4, "more elements than the limit"),
        (["com.example::Scaled", "--input", "z=float32[3]"], 2, "has no input 'z'"),
        (["com.example::Scaled", "--input", "x=float32[3]"], 4, "attribute 'by' is required"),
        (["com.example::Scaled", "--input", "x=float32[3]", "--attribute", "by=much"], 4, "TW2102"),
        (["com.example::Wide", "--input", "x=int32[3]"], 5, "com.example::Wide: results of int64 are not supported"),
    ],
)
def test_compile_op_refuses(capsys: Capture, words: list[str], code: int, said: str) -> None:
    assert main(["compile-op", *words, "--ops", written(SCALED), "--chip", "tiny"]) == code
    text = capsys.readouterr().err
    assert said in text and "Traceback" not in text


def test_compile_operator_takes_the_function_itself() -> None:
    @compiler.operator("test::Halved", schedule="elementwise")
    def halved(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x(*i) / 2, "halved")

    artifact = compiler.compile_operator(halved, {"x": "float32[5, 3]"}, "tiny", host_kernels=False)
    np.testing.assert_array_equal(artifact.run({"x": np.full((5, 3), 3, np.float32)})["out0"], 1.5)


# ---- op-test


def test_the_sweep_has_primes_tails_one_element_and_more_than_a_core_holds(capsys: Capture) -> None:
    file = written(SCALED.replace("schedule=", 'sweep={"x": "[n, 8*c]", "by": [1.0, 2.0]}, schedule='))
    assert main(["ops", "--ops", file, "--json"]) == 0
    tried = list(cases(find_called("com.example::Scaled"), 16_384))
    assert [one.name for one in tried][:3] == ["one element", "primes", "primes"]
    assert {one.attributes["by"] for one in tried} == {1.0, 2.0}
    types = [one.inputs["x"] for one in tried]
    assert types[0] == TensorType((1, 8), "float32") and {t.dtype for t in types} == {"float32", "float16"}  # type: ignore[union-attr]
    assert np.prod(types[-1].shape) * 4 > 16_384
    assert [one.name for one in cases(find_called("com.example::Scaled"), 16_384, quick=True)].count("tails") == 0
    assert {one.name for one in cases(find_called("com.example::Scaled"), 16_384, quick=True)} == set(QUICK)


GATHERED = """
@operator(
    "com.example::Rows",
    schedule="gather",
    sweep={
        "x": "float32[n, c]",
        "rows": lambda n: np.arange(n, dtype=np.int32)[::-1],
        "first": lambda n: np.array([n - 1]),
    },
)
def rows(x: te.Tensor, rows: te.Tensor, first: Constant) -> te.Tensor:
    return te.compute(x.shape, lambda i, j: x[rows[i], j] + int(first[0]), "rows")


@composition("com.example::Twice", sweep={"x": "[n, c]"})
def twice(graph: object, x: Value) -> Value:
    return graph.call("Add", x, x)
"""


def test_inputs_may_be_given_by_functions_and_compositions_are_tested_too(capsys: Capture) -> None:
    file = written(GATHERED)
    found = answer(capsys, "op-test", file, "--quick", "--chip", "tiny")
    assert [one["verdict"] for one in found["cases"]] == ["ok"] * 5
    (given, *_) = [one.inputs["rows"] for one in cases(find_called("com.example::Rows"), 16_384)]
    assert isinstance(given, Given)
    assert len(answer(capsys, "op-test", file, "Twice", "--quick", "--chip", "tiny")["cases"]) == 3
    assert main(["op-test", file, "Thrice"]) == 2


def test_a_wrong_result_is_found(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = operator_test._expected
    monkeypatch.setattr(
        operator_test, "_expected", lambda *a: {name: one + np.float32(1) for name, one in expected(*a).items()}
    )
    assert main(["new-op", "Wrong"]) == 0
    assert main(["op-test", "wrong_op.py", "--quick", "--chip", "tiny"]) == 11
    assert "different: out0: 1 of 1 elements are wrong" in capsys.readouterr().out


def test_what_an_operator_refuses_is_no_failure_unless_it_refuses_all(capsys: Capture) -> None:
    text = """
@operator("com.example::Odd", schedule="elementwise")
def odd(x: te.Tensor) -> te.Tensor:
    if int(x.shape[0]) {condition}:
        raise ValueError("rows must be odd")
    return te.compute(x.shape, lambda *i: x(*i) * x(*i), "odd")
"""
    found = answer(capsys, "op-test", written(text.format(condition="% 2 == 0")), "--chip", "tiny")
    assert {one["verdict"] for one in found["cases"]} == {"ok", "refused"}
    answer(capsys, "op-test", written(text.format(condition="> 0")), "--chip", "tiny", "--quick", code=5)


def test_an_instruction_that_is_missing_is_named_and_its_kernel_runs_on_the_host(capsys: Capture) -> None:
    file = written("""
@operator("com.example::Next", schedule="elementwise", sweep={"x": "float32[n, c]"})
def next_after(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: tirx.nextafter(x(*i), tirx.const(3, "float32")), "next")
""")
    found = answer(capsys, "op-test", file, "--quick", "--chip", "tiny", code=5)
    assert {one["verdict"] for one in found["cases"]} == {"host"}
    assert all("no instruction does" in one["detail"] and "nextafter" in one["detail"] for one in found["cases"])
    assert answer(capsys, "op-test", file, "--quick", "--chip", "tiny", "--allow-host")["right"]


@pytest.mark.parametrize(
    "dtype, factor, expected",
    [("uint16", 2, [65526, 6]), ("uint32", 2, [-10, 6]), ("float64", 0.5, [-2, 1])],
)
def test_numbers_that_the_chips_do_not_have_are_computed_on_the_host(
    dtype: str, factor: float, expected: list[int]
) -> None:
    @compiler.operator("test::Scaled", schedule="elementwise")
    def scaled(x: te.Tensor) -> te.Tensor:
        times = tirx.const(factor, dtype)
        return te.compute(x.shape, lambda i: (x[i].astype(dtype) * times).astype("int32"), "scaled")

    artifact = compiler.compile_operator(scaled, {"x": "int32[2]"}, "tiny")
    (kernel,) = artifact.report.host_kernels
    assert f"there are no numbers of {dtype}" in kernel.reason
    np.testing.assert_array_equal(artifact.run({"x": np.array([-5, 3], np.int32)})["out0"], expected)


@pytest.mark.parametrize(
    "declaration, said",
    [
        ("*, by: float", "nothing is said of attribute 'by'"),
        ("axes: Constant", "nothing is said of input 'axes'"),
    ],
)
def test_what_cannot_be_guessed_is_asked_for(capsys: Capture, declaration: str, said: str) -> None:
    text = f"""
@operator("com.example::Asks", schedule="elementwise")
def asks(x: te.Tensor, {declaration}) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i) * x(*i), "asks")
"""
    assert main(["op-test", written(text), "--chip", "tiny"]) == 4
    error = capsys.readouterr().err
    assert "TW2127" in error and said in error and "sweep=" in error


@pytest.mark.parametrize("sweep", ['{"y": "[n]"}', '{"x": "n"}', '{"x": "[n+1]"}', '{"x": 3}', '{"x": lambda n: n}'])
def test_a_sweep_that_cannot_be_read(capsys: Capture, sweep: str) -> None:
    text = f"""
@operator("com.example::Swept", schedule="elementwise", sweep={sweep})
def swept(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i) * x(*i), "swept")
"""
    assert main(["op-test", written(text), "--chip", "tiny"]) == 4
    assert "TW2127" in capsys.readouterr().err
