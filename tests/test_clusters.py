"""Models whose batch the clusters of a chip divide: compiled for one of them, run on all, and whole for the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest

from compiler import driver, pipeline
from compiler.artifact import model_to_bytes
from compiler.clusters import CLUSTERS, TOGETHER, clusters_of, of_all
from compiler.codegen.residence import GraphBuffer
from compiler.compilation import Compilation
from compiler.cost.prediction import predict_program
from compiler.frontend import import_model
from compiler.options import Options
from compiler.report.compilation import report_of
from compiler.report.page.page import page
from compiler.report.profile import profile
from compiler.runtime.loaded import load
from compiler.target import Chip, load_chip
from models.checks import run
from passes.base import Pass
from passes.graph.group_operators import GroupOperators
from tests.refused_kernels import refuse_node
from tests.test_driver import model, node

pytestmark = pytest.mark.usefixtures("first_tiles")

TW1 = load_chip("tw1")
BATCH = 8


@dataclass(frozen=True)
class Divide(Pass):
    """What divides a model in these tests: main becomes that of ``share``, imported with the batch of a cluster."""

    name: ClassVar[str] = "divide"
    establishes: ClassVar[frozenset[str]] = frozenset()
    share: Any = None

    def run(self, subject: Any, chip: Chip) -> Any:
        attributes = subject["main"].attrs
        if CLUSTERS in attributes.keys():
            return subject
        module = self.share.clone()
        module["main"] = module["main"].with_attr(CLUSTERS, chip.clusters)
        return module


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the compiler divide a model; it is given for a whole batch and for a cluster's."""

    def compiled(whole: bytes, share: bytes, chip: Chip = TW1, **options: Any) -> Compilation:
        divide = Divide(share=import_model(share, precision=options.get("precision")).module)
        monkeypatch.setattr(pipeline, "graph_passes", lambda clusters=None: (divide, GroupOperators()))
        return driver.compile_model(whole, chip, Options(cache=False, jobs=1, **options))

    return compiled


def network(batch: int) -> bytes:
    rng = np.random.default_rng(1)
    nodes = [
        node("Conv", "x k b", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "p"),
        node("Flatten", "p", "f"),
        node("MatMul", "f w", "m"),
        node("Add", "m s", "y"),
    ]
    weights = {
        "k": rng.standard_normal((16, 3, 3, 3), np.float32) / 4,
        "b": rng.standard_normal(16, np.float32),
        "w": rng.standard_normal((16, 10), np.float32),
    }
    return model(nodes, {"x": (batch, 3, 9, 9), "s": (1, 10)}, ["y", "r"], **weights)


def inputs(batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {
        "x": rng.standard_normal((batch, 3, 9, 9), np.float32),
        "s": rng.standard_normal((1, 10), np.float32),
    }


def expected(source: bytes, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    plain = onnx.load_from_string(source)
    plain.ir_version = 10  # the newest that onnxruntime reads
    return list(run(plain, given).values())


def close(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 1e-2)])
def test_the_whole_batch_comes_out(divided: Any, precision: str, tolerance: float) -> None:
    """Of a ragged map, with an input that all clusters share, and two outputs."""
    whole = network(BATCH)
    compiled = divided(whole, network(BATCH // 4), precision=precision)
    (segment,) = compiled.model.segments
    program = segment.program
    assert program.cores == TW1.cores
    assert {i.row.mnemonic for i in program.instrs}.isdisjoint({"core_barrier", "cross_set", "cross_wait"})
    assert {b.name: b.shape for b in program.buffers if b.role == "input"}["in0"] == (BATCH, 3, 9, 9)
    assert not [b for b in program.buffers if b.role == "scratch" and b.memory == "ddr"]
    given = inputs(BATCH)
    close(list(load(compiled.model).run(given, hazards=True).values()), expected(whole, given), tolerance)


def test_an_artifact_holds_it(divided: Any) -> None:
    whole = network(BATCH)
    compiled = divided(whole, network(BATCH // 4))
    given = inputs(BATCH)
    again = load(model_to_bytes(compiled.model))
    assert [port.shape for port in again.inputs] == [(BATCH, 3, 9, 9), (1, 10)]
    assert [port.shape for port in again.outputs] == [(BATCH, 10), (BATCH, 16, 9, 9)]
    close(list(again.run(given).values()), expected(whole, given), 1e-5)


def test_clusters_do_alike_and_are_predicted(divided: Any) -> None:
    compiled = divided(network(BATCH), network(BATCH // 4), precision="fp16")
    loaded = load(compiled.model)
    loaded.run(inputs(BATCH))
    (run,) = loaded.runs
    ends = run.schedule.finished_at.reshape(4, 8).max(axis=1)
    assert np.ptp(ends) <= 4  # where a part begins within a line is not the same for all
    turns = {f"k{n}.{s.name}": s.kernel.code.turns for n, s in enumerate(compiled.steps) if s.kernel is not None}
    predicted = predict_program(run.program, TW1, turns)
    assert predicted.cycles == pytest.approx(run.cycles, rel=0.15)  # kernels of some hundred cycles
    assert predicted.ddr_bytes == pytest.approx(sum(each.ddr_bytes for each in profile(loaded).layers), rel=0.05)


def test_a_profile_counts_all_clusters(divided: Any) -> None:
    compiled = divided(network(BATCH), network(BATCH // 4), precision="fp16")
    found = profile(load(compiled.model))
    assert found.cores == TW1.cores
    assert sum(layer.cycles for layer in found.layers) == found.cycles
    assert not [moved for moved in found.traffic if "result of" in moved.tensor]  # nothing between kernels
    assert max(layer.cores for layer in found.layers) == TW1.cores
    html = page(found)
    assert "cluster 0" in html


def test_a_report_counts_the_cores_of_all_clusters(divided: Any) -> None:
    compiled = divided(network(BATCH), network(BATCH // 4), precision="fp16")
    assert compiled.clusters == 4
    cores = [kernel.cores for kernel in report_of(compiled).kernels]
    assert cores == [4 * step.kernel.code.cores for step in compiled.steps if step.kernel is not None]


def test_what_the_host_computes_a_part_of_stays_in_one_piece(divided: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_node(monkeypatch, "p")
    whole = network(BATCH)
    compiled = divided(whole, network(BATCH // 4))
    assert any(step.host for step in compiled.steps)
    assert clusters_of(compiled.module) == TOGETHER
    given = inputs(BATCH)
    close(list(load(compiled.model).run(given, hazards=True).values()), expected(whole, given), 1e-5)


def test_a_buffer_of_all_clusters() -> None:
    shapes = {"in0": (8, 3), "in1": (1, 3), "out0": (8, 5)}
    part = GraphBuffer("in0", "fp32", (2, 3), 24, "input")
    assert of_all(part, shapes, 4) == GraphBuffer("in0", "fp32", (8, 3), 96, "input")
    shared = GraphBuffer("in1", "fp32", (1, 3), 12, "input")
    assert of_all(shared, shapes, 4) == GraphBuffer("in1", "fp32", (1, 3), 12, "constant")
    held = GraphBuffer("w0", "fp32", (2, 3), 24, "constant")
    assert of_all(held, {"w0": (2, 3)}, 4) == held
    assert of_all(held, {"w0": (8, 3)}, 4) == GraphBuffer("w0", "fp32", (8, 3), 96, "input")
    between = GraphBuffer("t0", "fp32", (2, 3), 24, "intermediate")
    assert of_all(between, shapes, 4) == between
    whole = GraphBuffer("out0", "fp32", (8, 5), 160, "output")
    assert of_all(whole, shapes, 4, rows=True) == replace(whole, is_common=True)
    with pytest.raises(ValueError, match=r"out0 is \[8, 5\], but \[8, 5\] on each of 4 clusters"):
        of_all(whole, shapes, 4)
