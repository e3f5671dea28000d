"""The table that shows what each pass is for: it counts right, and hides no kernel."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tvm.script import tirx as T

from ci import pass_table
from ci.pass_table import KINDS, PASSES, Kernel, Outcome, Row
from compiler.kernel_pool import Job
from compiler.kernels import NoRoadLeft, Road
from compiler.pipeline import pass_names
from compiler.target import load_chip

TINY = load_chip("tiny")
WHOLE = Outcome(Counter(vector=3, copy=2), 10)


def kernel(name: str) -> Kernel:
    return Kernel(Job(None, "elementwise", name), WHOLE)


def test_the_named_passes_exist() -> None:
    assert set(PASSES) <= set(pass_names())


def test_statements_are_counted_as_often_as_a_core_meets_them() -> None:
    @T.prim_func(private=True)
    def func(a: T.Buffer((64,), "float32"), n: T.Buffer((1,), "int32")):
        c = T.launch_thread("blockIdx.x", 4)
        T.evaluate(T.call_extern("void", "tw.one", c))
        for i in range(5):
            if i < 3:
                T.evaluate(T.call_extern("void", "tw.two", i))
            for j in range(i + 1):
                a[j] = T.float32(0)
        for j in range(n[0]):
            T.evaluate(T.call_extern("void", "tw.three", j))

    assert pass_table.executed_statements(func) == 1 + 5 + 25 + 1


def test_a_row_adds_up() -> None:
    row = Row("loop-shift")
    row.add(kernel("a"), Outcome(Counter(vector=1, scalar=3), 40))
    row.add(kernel("b"), Outcome(fault="no instruction does it\nmore"))
    assert (row.statements, row.lost, row.executed) == (Counter(vector=1, scalar=3), 5, 40)
    assert row.emitted_share == pytest.approx(1 / 9)
    assert row.growth == 4
    assert pass_table.line(row) == "| without loop-shift | 1 | 0 | 0 | 3 | 5 | 1 | 11.1 % | 40 (x 4.00) |"
    assert list(pass_table.reasons(row)) == ["- loop-shift, 1 kernels not compiled: no instruction does it"]
    assert all(text.count("|") == 1 + 1 + len(KINDS) + 4 for text in (*pass_table.header(), pass_table.line(row)))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NoRoadLeft("k", [Road("a tile", "too large")]), "too large"),
        (NoRoadLeft("k", []), "cannot be made to fit"),
        (ValueError("not in nest form"), "ValueError: not in nest form"),
    ],
)
def test_a_kernel_that_does_not_compile_counts(monkeypatch: pytest.MonkeyPatch, error: Exception, said: str) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(pass_table, "compile_kernel", fail)
    first, row = pass_table.rows([kernel("a"), kernel("b")], TINY, ["loop-shift"])
    assert (len(first.faults), first.statements.total(), first.growth) == (0, 10, 1)
    assert (len(row.faults), row.statements.total(), row.lost, row.emitted_share) == (2, 0, 10, 0)
    assert said in row.faults[0]
    assert pass_table.differs(row, first)


def test_a_pass_that_matters_is_told_from_one_that_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--models", "digits-cnn", "--random", "3", "--chip", "tiny"]
    assert pass_table.main([*arguments, "--passes", "pre-process"]) == 0
    out = capsys.readouterr().out
    assert "distinct kernels of digits-cnn, on tiny:" in out
    assert "3 random kernels, seeds 0 to 2, on tiny:" in out
    assert out.count("| all passes |") == out.count("| without pre-process |") == 2
    assert pass_table.main([*arguments, "--random", "0", "--passes", "group-operators"]) == 1
    assert capsys.readouterr().out.endswith("not shown to matter: group-operators\n")


def test_unknown_models_and_passes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert pass_table.main(["--models", "resnet-51"]) == 2
    assert pass_table.main(["--passes", "loop-unroll"]) == 2
    assert "no pass is called loop-unroll" in capsys.readouterr().err


def test_alike_kernels_are_compiled_once() -> None:
    found = pass_table.distinct_kernels(["digits-cnn", "digits-cnn"], TINY)
    assert len(found) == len({id(each.job) for each in found}) <= 6
    assert all(each.whole.statements.total() and not each.whole.fault for each in found)
