"""``tilewright ops`` and ``tilewright doctor``, through the command's own entry point."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

import pytest

from compiler.cli import doctor
from compiler.cli.main import main
from compiler.operators import all_operators

Capture = pytest.CaptureFixture[str]


def test_every_operator_is_listed(capsys: Capture) -> None:
    assert main(["ops"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line}
    assert {one.full_name for one in all_operators() if one.domain != "tilewright"} <= listed
    assert main(["ops", "--markdown"]) == 0
    assert "| Gemm | matmul | a; b; c, optional | alpha, beta, transA, transB |" in capsys.readouterr().out
    assert main(["ops", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["operators"]) > 100


def test_one_operator_is_described(capsys: Capture) -> None:
    assert main(["ops", "Gemm"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Gemm (matmul)") and "attribute transA = False" in out
    assert main(["ops", "Gem"]) == 2
    assert "did you mean `Gemm`?" in capsys.readouterr().err


def test_a_machine_with_everything_is_well(capsys: Capture) -> None:
    assert main(["doctor"]) == 0
    assert "FAULT" not in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["well"] and {"tilewright", "tvm build", "chip tw1"} <= {check["what"] for check in content["checks"]}


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    version = importlib.metadata.version

    def without(name: str) -> Any:
        if name in ("onnx", "onnxruntime"):
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor.importlib.metadata, "version", without)
    assert main(["doctor"]) == 5
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "FAULT: is not installed; `pip install tilewright`" in lines["onnx"]
    assert "note: is not installed; `tilewright verify` needs it" in lines["onnxruntime"]
