"""The compiler in Python: the command's words, the command's results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.errors import UsageError
from compiler.target import load_chip
from tests.cli.onnx_models import perceptron, saved


def reference(x: np.ndarray) -> np.ndarray:
    from onnx import numpy_helper

    weights = {each.name: numpy_helper.to_array(each) for each in perceptron().graph.initializer}
    return np.maximum(x @ weights["w"] + weights["b"], 0) * 2


def test_a_model_is_compiled_saved_loaded_and_run(tmp_path: Path) -> None:
    artifact = compiler.compile(perceptron(), chip="tiny")
    artifact.save(tmp_path / "p.twm")
    x = np.random.default_rng(1).standard_normal((3, 8), np.float32)
    results = [
        artifact.run({"x": x}, hazards=True),
        compiler.load(artifact).run({"x": x}),
        compiler.load(tmp_path / "p.twm").run({"x": x}),
        compiler.load(artifact.to_bytes()).run({"x": x}),
    ]
    for result in results:
        np.testing.assert_allclose(result["y"], reference(x), rtol=1e-5, atol=1e-6)


def test_a_model_is_a_path_bytes_or_a_model_and_a_chip_a_name_a_file_or_a_chip(tmp_path: Path) -> None:
    path = saved(tmp_path)
    toml = Path(compiler.__file__).parent / "target" / "chips" / "tiny.toml"
    made = [
        compiler.compile(path, chip="tiny"),
        compiler.compile(str(path), chip=load_chip("tiny")),
        compiler.compile(path.read_bytes(), chip=toml),
        compiler.compile(perceptron(), chip="tiny"),
    ]
    programs = [artifact.model.segments for artifact in made]
    assert all(segments == programs[0] for segments in programs)
    with pytest.raises(UsageError, match="a model is a path, bytes or an onnx"):
        compiler.compile(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "option, said",
    [
        ({"chip": None}, "chip must be a name, the path of a .toml file, or a Chip; this is a NoneType"),
        ({"ops": 5}, "ops must be a path"),
        ({"ops": [5]}, "ops must be a path"),
        ({"schedule": 3}, "schedule must be a path"),
        ({"tune": 1.5}, "tune must be a number of tiles; this is a float"),
        ({"tune": -1}, "tune is -1, but must be a number of tiles, at least 0"),
        ({"dims": [1]}, "dims must be numbers by name; this is a list"),
        ({"dims": {"n": "4"}}, r"dims\['n'\] must be a number; this is a str"),
        ({"shapes": {"x": 3}}, r"shapes\['x'\] must be a shape, as \(1, 3, 224, 224\); this is a int"),
        ({"shapes": {"x": "1x3"}}, r"shapes\['x'\] must be a shape, as \(1, 3, 224, 224\), of numbers; this is a str"),
        ({"jobs": 0}, "jobs is 0, but must be a number of processes, at least 1"),
    ],
)
def test_an_option_that_is_something_else(option: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        compiler.compile(perceptron(), **{"chip": "tiny", **option})


@pytest.mark.parametrize(
    "inputs, outputs, said",
    [
        (["float32[5]"], None, "inputs must be types or arrays by name; this is a list"),
        ({"x": None}, None, "input 'x' must be a type, as .* this is a NoneType"),
        ({"x": "float32[5]"}, -1, "outputs is -1, but must be a number of results"),
    ],
)
def test_inputs_and_outputs_of_an_operator_that_are_something_else(inputs: Any, outputs: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        compiler.compile_operator("Relu", inputs, "tiny", outputs=outputs)


def test_nothing_is_loaded_of_nothing() -> None:
    with pytest.raises(UsageError, match="what is loaded must be a path, bytes or an Artifact; this is a NoneType"):
        compiler.load(None)  # type: ignore[arg-type]


def test_open_dimensions_and_precision_are_given() -> None:
    for given in ({"shapes": {"x": (2, 8)}}, {"dims": {"batch": 2}}):
        artifact = compiler.compile(perceptron(batch="batch"), "tiny", precision="fp16", **given)  # type: ignore[arg-type]
        (port,) = artifact.model.inputs
        assert (port.shape, port.onnx_dtype, port.dtype) == ((2, 8), "float32", "fp16")


def test_the_report_has_cycles_once_it_ran() -> None:
    artifact = compiler.compile(perceptron(), chip="tiny")
    report = artifact.report
    assert report.cycles is None and report.kernel_cycles == ()
    assert set(report.npu_nodes) >= {"product_node", "sum_node", "double_node"}
    assert report.host_kernels == () and report.offload_share == 1.0
    assert report.ddr.constants == (8 * 5 + 5 + 1) * 4 or report.ddr.constants == (8 * 5 + 5) * 4
    assert report.ddr.total <= report.ddr.capacity
    artifact.run({"x": np.zeros((3, 8), np.float32)})
    assert artifact.report.cycles == sum(each.cycles for each in artifact.report.kernel_cycles) > 0


def test_importing_the_package_costs_nothing() -> None:
    code = "import sys, compiler; print({'numpy', 'tvm', 'onnx', 'numba'} & set(sys.modules), compiler.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"set() {compiler.__version__}\n"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = compiler.nothing
