"""One case is observed: it passes where a compiler is right and the record holds, and fails on whatever is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ci.models import record, trail
from ci.models.cases import Case
from ci.models.observe import Changed, Compiled, Mismatch, Observation, Options, Ran
from ci.models.outcome import STAGES, Passed
from compiler.errors import HazardError, Problem
from models import zoo
from models.checks import run as run_onnxruntime

MLP = Case("mlp-256", "tw1", "fp32")
DIGITS = Case("digits-cnn", "tw1", "fp16")
SIZES = {"instructions": 10, "program_bytes": 320, "constant_bytes": 4, "ddr_bytes": 64}
STEPS = [trail.Step("import", "1"), trail.Step("double-buffer", "2"), trail.Step("program", "3")]


def program(run: Any, *host_kernels: str) -> Compiled:
    return Compiled(run, host_kernels, SIZES, lambda: STEPS)


def genuine(model: onnx.ModelProto, case: Case) -> Compiled:
    """A compiler that is right."""
    return program(lambda inputs, hazards: Ran(run_onnxruntime(model, inputs), 1000))


def stages(case: Case, build: Any, options: Options) -> Iterator[Passed]:
    model = zoo.build(case.model)
    return Observation(case, options).stages(model, run_onnxruntime(model, zoo.inputs(case.model)), build)


@pytest.fixture
def recorded(tmp_path: Path) -> Options:
    """Of a compiler that is right."""
    for case in (MLP, DIGITS):
        facts = {"cycles": 1000, **SIZES, "seconds": 2.0, "trail": trail.as_text(STEPS)}
        record.store(case, facts, tmp_path)
    return Options(str(tmp_path))


def test_a_right_compiler_passes_all_stages(recorded: Options) -> None:
    passed = list(stages(MLP, genuine, recorded))
    assert [each.stage for each in passed] == list(STAGES)
    assert passed[2].found == {"cycles": 1000}
    assert passed[3].found == {"logits": "error 0"}


def test_the_trained_network_is_compared_over_its_whole_hold_out_set(recorded: Options) -> None:
    *_, matched, _ = stages(DIGITS, genuine, recorded)
    assert matched.found["right answers"] == "354, by onnxruntime 354"


def test_another_accuracy_is_a_mismatch(recorded: Options) -> None:
    def forgetful(model: onnx.ModelProto, case: Case) -> Compiled:
        def run(inputs: Mapping[str, np.ndarray], hazards: bool) -> Ran:
            return Ran({key: value * hazards for key, value in run_onnxruntime(model, inputs).items()}, 1)

        return program(run)

    with pytest.raises(Mismatch, match="right answers on the hold-out set, 354 by onnxruntime"):
        list(stages(DIGITS, forgetful, recorded))


def test_wrong_values_are_a_mismatch(recorded: Options) -> None:
    def wrong(model: onnx.ModelProto, case: Case) -> Compiled:
        return program(lambda inputs, hazards: Ran({"logits": np.zeros((16, 10), np.float32)}, 1))

    with pytest.raises(Mismatch, match=r"logits: error is .* times the tolerance"):
        list(stages(MLP, wrong, recorded))


def test_a_host_kernel_that_is_not_expected_is_a_mismatch(recorded: Options) -> None:
    def lazy(model: onnx.ModelProto, case: Case) -> Compiled:
        return program(genuine(model, case).run, "Gemm")

    with pytest.raises(Mismatch, match=r"on the host run \['Gemm'\], expected are \[\]"):
        list(stages(MLP, lazy, recorded))


def test_a_hazard_fails_the_run_and_only_there(recorded: Options) -> None:
    def hazardous(model: onnx.ModelProto, case: Case) -> Compiled:
        def run(inputs: Mapping[str, np.ndarray], hazards: bool) -> Ran:
            assert hazards
            raise HazardError(Problem("TW9999", "a race"))

        return program(run)

    found = stages(MLP, hazardous, recorded)
    assert [next(found).stage, next(found).stage] == ["import", "compile"]
    with pytest.raises(HazardError):
        next(found)


def test_other_cycles_than_recorded_name_the_first_step_that_differs(recorded: Options) -> None:
    other = [STEPS[0], trail.Step("double-buffer", "9"), trail.Step("program", "8")]

    def slower(model: onnx.ModelProto, case: Case) -> Compiled:
        return Compiled(
            lambda i, _: Ran(run_onnxruntime(model, i), 1100), (), {**SIZES, "instructions": 12}, lambda: other
        )

    with pytest.raises(Changed) as raised:
        list(stages(MLP, slower, recorded))
    assert str(raised.value) == (
        "cycles 1,000 -> 1,100 (+10.0 %), instructions 10 -> 12 (+20.0 %)\nfirst to differ: pass double-buffer"
    )


def test_other_cycles_of_the_same_program_are_the_simulators(recorded: Options) -> None:
    def slower(model: onnx.ModelProto, case: Case) -> Compiled:
        return program(lambda inputs, hazards: Ran(run_onnxruntime(model, inputs), 1001))

    with pytest.raises(Changed, match="the program is the same: the simulator, the chip or the runtime changed"):
        list(stages(MLP, slower, recorded))


def test_what_is_not_recorded_fails_and_says_how_to_record_it(tmp_path: Path) -> None:
    with pytest.raises(Changed, match="--record"):
        list(stages(MLP, genuine, Options(str(tmp_path))))


def test_recording_finds_what_the_record_holds(tmp_path: Path) -> None:
    model = zoo.build(MLP.model)
    observation = Observation(MLP, Options(str(tmp_path), record=True))
    list(observation.stages(model, run_onnxruntime(model, zoo.inputs(MLP.model)), genuine))
    record.store(MLP, observation.facts, tmp_path)
    entry = record.recorded(MLP, tmp_path)
    assert entry is not None
    assert entry | {"seconds": 1} == {"cycles": 1000, **SIZES, "seconds": 1, "trail": trail.as_text(STEPS)}
