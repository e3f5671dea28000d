"""The zoo: every manifest entry holds together, and every model passes the checks of `python -m models check`."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest

from ci.performance.models import BATCHES
from compiler.errors import UsageError
from compiler.frontend import import_model
from compiler.target import load_chip
from models import zoo
from models.__main__ import main
from models.checks import check, run

LARGE = {
    "bert-base-128",
    "densenet121-64",
    "efficientnet-b0-64",
    "gpt2-64",
    "mobilenet-v2-96",
    "resnet18-64",
    "resnet50-224",
    "vit-tiny-224",
}
SMALL = [name for name in zoo.names() if name not in LARGE]


def digest(name: str, seed: int) -> str:
    return sha256(zoo.build(name, seed).SerializeToString(deterministic=True)).hexdigest()


@pytest.mark.parametrize("name", SMALL)
def test_small_models_are_valid_finite_and_sane_in_fp16(name: str) -> None:
    assert check(name).faults == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LARGE))
def test_large_models_are_valid_finite_and_sane_in_fp16(name: str) -> None:
    assert check(name).faults == ()


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "name"), [(1 + at % 3, name) for at, name in enumerate(zoo.names())])
def test_the_checks_hold_for_other_seeds(name: str, seed: int) -> None:
    assert check(name, seed).faults == ()


@pytest.mark.parametrize("name", zoo.names())
def test_inputs_are_as_the_manifest_says_and_the_same_for_the_same_seed(name: str) -> None:
    first, again, other = (zoo.inputs(name, seed) for seed in (3, 3, 4))
    for each in zoo.manifest(name).inputs:
        assert first[each.name].shape == each.shape
        assert first[each.name].dtype == each.draw.dtype
        np.testing.assert_array_equal(first[each.name], again[each.name])
    assert any((first[key] != other[key]).any() for key in first)


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_gives_the_same_bytes(name: str) -> None:
    assert digest(name, 5) == digest(name, 5)
    if name != "digits-cnn":  # whose weights are trained
        assert digest(name, 5) != digest(name, 6)


def test_the_names_are_unique_and_the_chips_exist() -> None:
    assert len(set(zoo.names())) == len(zoo.MODELS)
    for chip in {chip for model in zoo.MODELS for chip in model.chips}:
        load_chip(chip)


def test_an_open_axis_is_open_in_the_file_and_has_a_size_in_the_manifest() -> None:
    model = zoo.build("mlp-256")
    for value in (*model.graph.input, *model.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"
    assert zoo.inputs("mlp-256")["x"].shape == (16, 784)


OPEN = [model.name for model in zoo.MODELS if any(each.symbols for each in model.inputs)]


@pytest.mark.parametrize("name", OPEN)
def test_a_batch_of_another_size_gives_each_sample_what_it_gives_alone(name: str) -> None:
    model = zoo.build(name)
    inputs = [{key: value[:1] for key, value in zoo.inputs(name, seed).items()} for seed in (0, 1)]
    joined = run(model, {key: np.concatenate([each[key] for each in inputs]) for key in inputs[0]})
    for index, each in enumerate(inputs):
        for key, value in run(model, each).items():
            np.testing.assert_allclose(joined[key][index], value[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", sorted({*SMALL} & {*zoo.measured()}))
def test_measured_models_hold_together_at_the_largest_batch_they_are_measured_at(name: str) -> None:
    manifest = zoo.batched(name, max(BATCHES))
    shapes = {each.name: each.shape for each in manifest.inputs if each.symbols}
    imported = import_model(zoo.build(manifest).SerializeToString(), shapes=shapes)
    assert [each.shape for each in imported.inputs] == [each.shape for each in manifest.inputs]


def test_padding_leaves_at_least_half_of_every_sequence() -> None:
    mask = zoo.inputs("bert-base-128")["attention_mask"]
    assert (np.diff(mask) <= 0).all()
    assert mask.sum(-1).min() >= 64
    assert zoo.inputs("bert-base-128")["input_ids"].max() < 8192


def test_a_name_that_does_not_exist_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no model is named 'resnet19'"):
        zoo.build("resnet19")


def test_the_command_line_lists_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in zoo.names())
    file = tmp_path / "mlp.onnx"
    assert main(["write", "mlp-256", "-o", str(file), "--seed", "5"]) == 0
    assert sha256(file.read_bytes()).hexdigest() == digest("mlp-256", 5)
    onnx.checker.check_model(onnx.load(file))


def test_the_command_line_says_when_there_is_no_such_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["write", "nothing", "-o", str(tmp_path / "file")]) == UsageError.exit_code
    assert "no model is named 'nothing'" in capsys.readouterr().err
