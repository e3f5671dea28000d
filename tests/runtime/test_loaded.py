"""A compiled model computes what its segments say, in their order, as often as it is asked to."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from compiler.artifact import model_to_bytes, write_model, write_program
from compiler.errors import CorruptError, HazardError, InputError, UsageError
from compiler.runtime.loaded import load
from compiler.runtime.model import CompiledModel, Port, ProgramSegment
from tests.artifact import models, programs
from tests.sim import sample


def test_runs_are_right_and_equal_whether_recorded_or_not() -> None:
    model, given = load(model_to_bytes(models.model(host=False))), models.inputs()
    first = model.run(given)
    np.testing.assert_allclose(first["z"], models.expected(given, host=False), rtol=1e-6)
    np.testing.assert_array_equal(first["twice"], given["y"] * 2)
    assert first["z"].dtype == np.float64
    for _ in range(3):
        again = model.run(given)
        assert all(np.array_equal(first[name], again[name]) for name in first)
    other = {"x": given["x"][::-1].copy(), "y": given["y"] + 1}
    np.testing.assert_allclose(model.run(other)["z"], models.expected(other, host=False), rtol=1e-6)
    np.testing.assert_array_equal(model.run(given)["z"], first["z"])


def test_threads_may_share_a_model() -> None:
    model, start = load(models.model(host=False)), Barrier(2)
    given = [{name: array + number for name, array in models.inputs().items()} for number in range(2)]
    expected = [load(models.model(host=False)).run(each)["z"] for each in given]

    def work(number: int) -> bool:
        start.wait()
        return all(np.array_equal(model.run(given[number])["z"], expected[number]) for _ in range(30))

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(work, range(2)))


def test_setting_up_changes_no_result() -> None:
    prepared, plain = load(models.model(host=False)), load(models.model(host=False))
    assert prepared.setup() == prepared.workspace_bytes == prepared.setup()
    assert prepared.workspace_bytes >= 5 * models.COUNT * 4
    assert prepared.cycles > 0
    one, other = prepared.run(models.inputs(), hazards=True), plain.run(models.inputs())
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert prepared.cycles == plain.cycles == sum(stats.cycles for stats in plain.statistics)
    assert prepared.hazards == []


def test_hazards_raise_when_they_are_looked_for() -> None:
    model = load(models.model(host=False, race=True))
    model.run(models.inputs())
    with pytest.raises(HazardError) as caught:
        model.run(models.inputs(), hazards=True)
    assert model.hazards
    assert "first, line " in str(caught.value) and "of Cast_0, Mul_1" in str(caught.value)


def test_kernels_share_all_cycles() -> None:
    model = load(models.model(host=False))
    model.run(models.inputs(), profile=True)
    assert [(k.kernel, k.nodes, k.program) for k in model.kernel_cycles] == [
        ("mul", ("Cast_0", "Mul_1"), 0),
        ("add", ("Add_2",), 0),
        ("last", ("Gemm_4",), 1),
    ]
    assert sum(k.cycles for k in model.kernel_cycles) == model.cycles


def test_a_program_as_somebody_wrote_it_is_a_model_of_its_buffers(tmp_path: Path) -> None:
    path = tmp_path / "scale.twm"
    write_program(path, sample.program(), sample.chip(), constants={"m": sample.inputs()["m"]})
    model = load(path)
    assert [port.name for port in model.inputs] == ["a"]
    outputs = model.run({"a": sample.inputs()["a"]}, hazards=True)
    np.testing.assert_array_equal(outputs["c"], sample.inputs()["a"] * 2)
    assert not load(model_to_bytes(model.model)).model.has_signature
    assert [port.name for port in load(programs_path(tmp_path)).outputs] == ["b", "c"]


def programs_path(folder: Path) -> Path:
    write_program(folder / "add.twm", programs.program(), programs.chip())
    return folder / "add.twm"


def counted(model: CompiledModel, rows: int) -> CompiledModel:
    """The model with as many rows of ``z`` as its first input says, which is a buffer as any other."""
    output = replace(model.outputs[0], count="count")
    return replace(
        model,
        outputs=(output, model.outputs[1]),
        inputs=(*model.inputs, Port("n", "count", "int64", "int32", (1,))),
    )


def test_only_as_many_rows_count_as_the_model_says() -> None:
    model = load(model_to_bytes(counted(models.model(host=False), 5)))
    for rows in (0, 5, models.COUNT):
        outputs = model.run({**models.inputs(), "n": np.array([rows])})
        assert outputs["z"].shape == (rows,)
    for rows in (-1, models.COUNT + 1):
        with pytest.raises(CorruptError, match=f"output z has {rows} rows, but room for 64"):
            model.run({**models.inputs(), "n": np.array([rows])})


def test_empty_tensors_need_no_memory() -> None:
    whole = models.model(host=False)
    nothing = Port("none", "out9", "int64", "int32", (0, 4))
    model = load(
        model_to_bytes(
            replace(whole, outputs=(*whole.outputs, nothing), inputs=(*whole.inputs, replace(nothing, buffer="in9")))
        )
    )
    outputs = model.run({**models.inputs(), "none": np.empty((0, 4), np.int64)})
    assert outputs["none"].shape == (0, 4) and outputs["none"].dtype == np.int64


def test_inputs_are_checked() -> None:
    with pytest.raises(UsageError, match="no array is given for input y: float32"):
        load(models.model(host=False)).run({"x": models.inputs()["x"]})


def test_host_kernels_can_be_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosted.twm"
    write_model(path, models.model("{}"))
    with pytest.raises(InputError, match="TW1508"):
        load(path, host_kernels=False)
    with pytest.raises(InputError, match="TW1508"):
        load(models.model("{}"), host_kernels=False)
    with pytest.raises(CorruptError, match="host kernel plus cannot be compiled"):
        load(path).run(models.inputs())


def test_running_a_model_imports_neither_tvm_nor_onnx(tmp_path: Path) -> None:
    write_model(tmp_path / "model.twm", models.model(host=False))
    code = (
        "import sys, compiler; from tests.artifact import models\n"
        f"compiler.load({str(tmp_path / 'model.twm')!r}).run(models.inputs())\n"
        "print(sorted({'tvm', 'onnx', 'onnxruntime'} & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_segments_hold_what_they_held() -> None:
    model = models.model(host=False)
    stored = load(model_to_bytes(model)).model
    for before, after in zip(model.segments, stored.segments, strict=True):
        assert isinstance(before, ProgramSegment) and isinstance(after, ProgramSegment)
        assert before.program.same_code(after.program)
        assert before.listing == after.listing
