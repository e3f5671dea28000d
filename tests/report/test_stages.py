"""The schedule in reports: stages, round trips, and their picture."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import compiler
from compiler.codegen.link import LLB_PLACEMENT
from compiler.kept_in_l1 import SWITCH
from compiler.pipeline import Observer
from compiler.report import profile_text
from compiler.report.page import schedule
from compiler.report.page.page import page
from compiler.report.profile import Profile, profile
from compiler.report.stages import pieces_of
from models import zoo


@cache
def in_pieces() -> Profile:
    artifact = compiler.compile(zoo.build("digits-cnn"), chip="tiny")
    return profile(compiler.load(artifact), report=artifact.report)


def two_products() -> ModelProto:
    weights = np.ones((64, 64), np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], name="a"),
            helper.make_node("MatMul", ["a", "v"], ["y"], name="y"),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [32, 64])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(2 * weights, "v")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def test_stages_are_the_layers_in_as_many_pieces() -> None:
    found = in_pieces()
    pieces = pieces_of(found.layers, found.order)
    assert max(pieces) > 1 and sum(pieces) == len(found.order)
    covered = [number for stage in found.stages for number in range(stage.first, stage.last + 1)]
    assert covered == list(range(len(found.layers)))
    for stage in found.stages:
        assert {pieces[number] for number in range(stage.first, stage.last + 1)} == {stage.pieces}
    assert all(one.pieces != other.pieces for one, other in zip(found.stages, found.stages[1:], strict=False))


def test_stages_add_up_to_the_whole() -> None:
    found = in_pieces()
    assert sum(stage.cycles for stage in found.stages) == found.cycles
    assert sum(stage.ddr_bytes for stage in found.stages) == found.ddr_bytes
    cube = sum(stage.busy["M"] * stage.cycles * found.cores for stage in found.stages)
    assert round(cube) == found.busy["M"]


def test_the_picture_has_a_block_for_every_use_of_a_kernel() -> None:
    found = in_pieces()
    drawn = re.findall(r'<path d="([^"]*)" class="limit-', schedule.picture(found))
    pieces = pieces_of(found.layers, found.order)
    assert [path.count("M") for path in drawn] == pieces
    assert max(pieces) > 1 and f"in {max(pieces)} pieces" in page(found)
    assert "Nothing goes through DDR between kernels" in page(found)


def test_results_that_go_through_ddr_are_named_with_the_reason() -> None:
    without = Observer(without=frozenset({LLB_PLACEMENT, SWITCH}))
    artifact = compiler.compile(two_products(), chip="tiny", observer=without)
    found = profile(compiler.load(artifact), report=artifact.report)
    (trip,) = found.round_trips
    assert trip.layer == found.layers[0].name
    assert trip.written == 32 * 64 * 4 <= trip.read
    assert trip.reason == artifact.report.far_results[0].reason != ""
    assert trip.reason in page(found)
    assert "through DDR between kernels: 8.0 KiB, from 1 of 2 layers" in list(profile_text.lines(found, 0, "order"))
    without_report = profile(compiler.load(artifact))
    assert [each.reason for each in without_report.round_trips] == [""]
