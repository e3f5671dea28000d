"""The overlay: every node of the model has its figures, by the name that it has in the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.cli.main import main
from compiler.report.overlay import overlay
from compiler.runtime.model import HostSegment
from models import zoo
from tests.report.test_page import profiled


def test_nodes_of_a_layer_have_its_figures() -> None:
    found = profiled()
    nodes = overlay(found)["nodes"]
    for layer in found.layers:
        for node in layer.nodes:
            mine = nodes[node]
            assert (mine["placement"], mine["cycles"], mine["bound_by"]) == ("chip", layer.cycles, layer.limit)
            assert {node, *mine["together_with"]} == set(layer.nodes)
    once = {tuple(sorted([name, *node["together_with"]])): node["cycles"] for name, node in nodes.items()}
    assert sum(once.values()) == found.cycles


def test_nodes_on_the_host_have_the_reason() -> None:
    found = profiled()
    host = HostSegment("a+b", "no instruction does it", "{}", ("t0", "t1"), ("t1",))
    model = replace(
        found.model, segments=(*found.model.segments, host), kernels=(*found.model.kernels, ("x", ("a", "b")))
    )
    nodes = overlay(replace(found, model=model))["nodes"]
    assert (nodes["b"]["placement"], nodes["b"]["reason"], nodes["b"]["cycles"]) == (
        "host",
        "no instruction does it",
        0,
    )


def test_the_command_writes_every_node_of_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = zoo.build("digits-cnn")
    path, artifact, written = tmp_path / "digits.onnx", tmp_path / "digits.twm", tmp_path / "overlay.json"
    path.write_bytes(model.SerializeToString())
    assert main(["profile", str(path), "--chip", "tiny", "--precision", "fp16", "--overlay", str(written)]) == 0
    content = json.loads(written.read_text())
    assert set(content["nodes"]) == {node.name for node in model.graph.node}
    placements = {name: node["placement"] for name, node in content["nodes"].items()}
    assert set(placements.values()) == {"chip", "none"}
    assert placements["/conv1/Conv"] == "chip"
    assert main(["compile", str(path), "--chip", "tiny", "--precision", "fp16", "-o", str(artifact)]) == 0
    assert main(["profile", str(artifact), "--overlay", str(written)]) == 0  # without the model: what kernels compute
    assert set(json.loads(written.read_text())["nodes"]) == {n for n, where in placements.items() if where == "chip"}
